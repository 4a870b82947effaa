"""What the adapters share, and that they load without the frameworks they adapt."""

from __future__ import annotations

import importlib.util
import math
import subprocess
import sys
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from suffice.errors import BackendError, DataError, MissingExtra, SufficeWarning, UsageError
from suffice.integrations.documents import (
    AdaptedRetriever,
    AdapterSettings,
    Found,
    ranked,
)
from suffice.integrations.haystack import HaystackRetriever
from suffice.integrations.langchain import LangChainRetriever, as_langchain_retriever
from suffice.integrations.llamaindex import LlamaIndexRetriever

PLAIN = AdapterSettings()


def found(text: str, *, score: Any = None, **metadata: Any) -> Found:
    return Found(text=text, score=score, metadata=metadata)


def test_own_ids_come_before_hashes_and_named_ones_before_both() -> None:
    documents = [Found(text="a", id="7", metadata={"key": 3}), Found(text="b", metadata={"key": 4})]
    first, second = ranked(documents, 2, PLAIN, source="x")
    # printf b | sha256sum
    assert (first.id, second.id) == (
        "7",
        "3e23e8160039594a33894f6564e1b1348bbd7a0088d42c4acb73eeaed59c009d",
    )
    named = ranked(documents, 2, AdapterSettings(id_key="key"), source="x")
    assert [each.id for each in named] == ["3", "4"]
    with pytest.raises(DataError, match="'isbn'"):
        ranked(documents, 2, AdapterSettings(id_key="isbn"), source="x")


def test_the_first_of_an_id_stays_and_k_counts_different_ones() -> None:
    documents = [found("a", score=3), found("a", score=2), found("b", score=1), found("c", score=0)]
    kept = ranked(documents, 2, PLAIN, source="x")
    assert [(each.text, each.score) for each in kept] == [("a", 3.0), ("b", 1.0)]


@pytest.mark.parametrize(("title", "wanted"), [("Boats", "Boats"), (None, ""), (7, "7"), ("", "")])
def test_titles_are_texts(title: object, wanted: str) -> None:
    assert ranked([found("a", title=title)], 1, PLAIN, source="x")[0].title == wanted
    other = AdapterSettings(title_key="name")
    assert ranked([found("a", title=title)], 1, other, source="x")[0].title == ""


@pytest.mark.parametrize(
    ("settings", "wanted"),
    [
        (AdapterSettings(), [5.0, 4.0, 4.0]),
        (AdapterSettings(scores="rank"), [1.0, 0.5, pytest.approx(1 / 3)]),
        (AdapterSettings(scores="none"), [None, None, None]),
        (AdapterSettings(score_key="s"), [0.75, 0.5, 0.25]),
    ],
)
def test_where_scores_come_from(settings: AdapterSettings, wanted: list[float | None]) -> None:
    documents = [
        found("a", score=5, s=0.75),
        found("b", score=4, s=np.float32(0.5)),
        found("c", score=4, s=0.25),
    ]
    assert [each.score for each in ranked(documents, 3, settings, source="x")] == wanted


def test_documents_without_scores_get_their_rank() -> None:
    documents = [found("a"), found("b")]
    assert [each.score for each in ranked(documents, 5, PLAIN, source="x")] == [1.0, 0.5]
    assert ranked([], 5, PLAIN, source="x") == ()


@pytest.mark.parametrize(
    ("documents", "settings", "error", "told"),
    [
        ([found("a", score=1), found("b")], PLAIN, DataError, "without a score"),
        ([found("a", score=1), found("b", score=2)], PLAIN, UsageError, "must fall along"),
        ([found("a", score=math.nan)], PLAIN, DataError, "score nan"),
        ([found("a", score=10**400)], PLAIN, DataError, "score 10000"),
        *[
            ([found("a", score=value)], PLAIN, DataError, f"score {value!r}")
            for value in (True, np.True_, "0.5", b"1")
        ],
        ([found("a", s="high")], AdapterSettings(score_key="s"), DataError, "score 'high'"),
        ([found("a", s="0.5")], AdapterSettings(score_key="s"), DataError, "score '0.5'"),
        ([found("a", s=False)], AdapterSettings(score_key="s"), DataError, "score False"),
        ([found("a", s=[1])], AdapterSettings(score_key="s"), DataError, r"score \[1\]"),
        ([found("a")], AdapterSettings(score_key="s"), DataError, "'s'"),
    ],
)
def test_scores_that_are_none(
    documents: list[Found], settings: AdapterSettings, error: type[Exception], told: str
) -> None:
    with pytest.raises(error, match=f"^the store .*{told}"):
        ranked(documents, 2, settings, source="the store")


def test_settings_that_cannot_be() -> None:
    with pytest.raises(UsageError, match="'best'"):
        AdapterSettings(scores="best")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="'rank'"):
        AdapterSettings(score_key="s", scores="rank")


class Listed(AdaptedRetriever):
    """Finds the same two texts, unless it fails."""

    def __init__(self, error: Exception | None = None) -> None:
        super().__init__("x", None, advice="Do something.")
        self.error = error

    def _search(self, query: str, k: int) -> tuple[list[str], bool]:
        if self.error is not None:
            raise self.error
        return ["a", "b"], query == "sized"

    def _found(self, document: str) -> Found:
        return Found(text=document)


def test_only_failures_named_are_translated() -> None:
    with pytest.raises(BackendError, match="TimeoutError: late") as caught:
        Listed(TimeoutError("late")).retrieve("q", 1)
    assert isinstance(caught.value.__cause__, TimeoutError)
    with pytest.raises(KeyError):
        Listed(KeyError()).retrieve("q", 1)


def test_a_short_result_is_said_once() -> None:
    listed = Listed()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(listed.retrieve("q", 2)) == len(listed.retrieve("sized", 3)) == 2
    with pytest.warns(SufficeWarning, match="documents"):
        listed.retrieve("q", 3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        listed.retrieve("q", 3)


@pytest.mark.parametrize(
    ("build", "module", "line"),
    [
        (LangChainRetriever, "langchain_core", "pip install langchain-core"),
        (as_langchain_retriever, "langchain_core", "pip install langchain-core"),
        (LlamaIndexRetriever, "llama_index", "pip install llama-index-core"),
        (HaystackRetriever, "haystack", "pip install haystack-ai"),
    ],
)
def test_a_missing_framework_is_told_with_its_install_line(
    build: Callable[[Any], object], module: str, line: str
) -> None:
    if importlib.util.find_spec(module):
        pytest.skip(f"{module} is installed")
    with pytest.raises(MissingExtra, match=rf"{module}', which is not installed\. .*: {line}$"):
        build(object())


def test_the_modules_load_without_any_framework() -> None:
    names = ("documents", "elasticsearch", "haystack", "langchain", "llamaindex")
    code = (
        "import importlib, sys\n"
        f"for name in {names}: importlib.import_module('suffice.integrations.' + name)\n"
        "print([m for m in ('haystack', 'httpx2', 'langchain_core', 'llama_index', 'torch') if m in "
        "sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
