from __future__ import annotations

from pathlib import Path

import pytest

from suffice.errors import DataError, UsageError
from suffice.serve.service_settings import ServeSettings, load_settings, with_given


def written(folder: Path, text: str) -> Path:
    file = folder / "serve.toml"
    file.write_text(text, encoding="utf-8")
    return file


def test_a_file_states_what_it_states_and_options_hold_before_it(tmp_path: Path) -> None:
    file = written(
        tmp_path,
        "port = 9000\n[model]\nllm = 'http://localhost:1/v1'\ntimeout = 5\n"
        "[policies]\na = 'fixed-2'\n[record]\nexplore = 0.1\n",
    )
    settings = load_settings(file)
    assert (settings.port, settings.model.timeout, settings.policies) == (
        9000,
        5.0,
        {"a": "fixed-2"},
    )
    assert settings.model.api == ServeSettings().model.api
    given = with_given(settings, {"port": 1, "record": "traces", "request_timeout": 3.0})
    assert (given.port, given.record.folder, given.record.explore) == (1, "traces", 0.1)
    assert given.limits.seconds == 3.0
    assert settings.port == 9000


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("prot = 1", "'prot'.*'port'"),
        ("[record]\nexplor = 0.1", "record.*'explor'.*'explore'"),
        ("port = '80'", "port"),
        ("port = true", "port"),
        ("[model]\napi = 'caht'", r"model\.api.*chat.*caht"),
        ("model = 3", "model"),
        ("[policies]\na = 2", r"policies\.a"),
        ("[limits]\nquestions = 0", r"limits\.questions"),
        ("port = ", "TOML"),
        ("port = 2026-01-01", "port"),
    ],
)
def test_what_is_wrong_is_told_with_file_and_key(tmp_path: Path, text: str, key: str) -> None:
    with pytest.raises(DataError, match=f"serve.toml: .*{key}"):
        load_settings(written(tmp_path, text))


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot read the settings"):
        load_settings(tmp_path / "none.toml")
