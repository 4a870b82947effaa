from __future__ import annotations

from pathlib import Path

import pytest

from suffice.errors import DataError, UsageError
from suffice.llm.connect import CachedModel, connect
from suffice.llm.endpoint import OpenAISettings
from suffice.llm.openai_compatible import OpenAICompatibleModel


def test_a_url_connects_without_asking() -> None:
    model = connect("http://127.0.0.1:9/v1/", "m", server=OpenAISettings(api="completion"))
    assert isinstance(model, OpenAICompatibleModel)
    assert (model.name, model.api, model.endpoint) == ("m", "completion", "http://127.0.0.1:9/v1")
    model.close()


def test_a_cache_wraps(tmp_path: Path) -> None:
    model = connect("http://127.0.0.1:9/v1", "m", cache=tmp_path / "c")
    assert isinstance(model, CachedModel)
    model.close()
    assert (tmp_path / "c").is_file()


def test_embedded_takes_a_path(tmp_path: Path) -> None:
    path = tmp_path / "not.gguf"
    path.write_text("text")
    with pytest.raises(DataError, match="not a GGUF file"):
        connect("embedded", str(path))
    with pytest.raises(UsageError, match="no model 'nothing'"):
        connect("embedded", "nothing")


def test_several_servers_are_a_proxys() -> None:
    with pytest.raises(UsageError, match="LiteLLM"):
        connect("http://127.0.0.1:9/v1,http://127.0.0.1:8/v1", "m")


@pytest.mark.parametrize("llm", ["", "Embedded", "gpt-5", "localhost:8000", "ftp://x"])
def test_anything_else_lists_what_is_allowed(llm: str) -> None:
    with pytest.raises(UsageError) as caught:
        connect(llm)
    for word in (repr(llm), "http://", "https://", "'embedded'", "'scripted'"):
        assert word in str(caught.value)
