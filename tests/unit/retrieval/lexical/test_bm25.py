from __future__ import annotations

import sys

import numpy as np
import pytest

from suffice.errors import UsageError
from suffice.retrieval.bm25 import OKAPI, BM25Index, BM25Settings, BM25Variant
from suffice.testing.conformance import check_retriever
from suffice.trace.rounds.records import Passage

VARIANTS: tuple[BM25Variant, ...] = ("okapi", "lucene")
TEXTS = ["a red boat", "a green boat", "an old tree", "green leaves of an old green tree", ""]
PASSAGES = [Passage(id=str(i), title=f"T{i}", text=text) for i, text in enumerate(TEXTS)]


def ids(passages: tuple[Passage, ...]) -> list[str]:
    return [passage.id for passage in passages]


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_variant_conforms_and_keeps_passage_order_at_ties(variant: BM25Variant) -> None:
    index = BM25Index.build(PASSAGES, BM25Settings(variant=variant))
    check_retriever(index, ["Green, TREE?", "", "zeppelin"], size=5)
    found = index.retrieve("Green, TREE?", 3)
    assert (found[0].id, found[0].text) == ("3", TEXTS[3])
    for query in ("", "???", "zeppelin"):
        found = index.retrieve(query, 3)
        assert [(passage.id, passage.score) for passage in found] == [(n, 0.0) for n in "012"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"k1": -0.1}, "k1"),
        ({"k1": float("nan")}, "k1"),
        ({"b": 1.1}, "b must"),
        ({"variant": "bm11"}, "lucene"),
    ],
)
def test_bad_settings_are_refused_when_built(settings: dict[str, float], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        BM25Settings(**settings)  # type: ignore[arg-type]


def test_the_lucene_formula_by_hand() -> None:
    index = BM25Index.build(
        [Passage(id="a", text="sun sun sea"), Passage(id="b", text="sea")],
        BM25Settings(k1=1.2, b=0.5, variant="lucene"),
    )
    idf = np.log(1 + (2 - 1 + 0.5) / (1 + 0.5))
    expected = idf * 2 / (2 + 1.2 * (0.5 + 0.5 * 3 / 2))
    np.testing.assert_allclose(index.scores("sun"), [expected, 0.0], rtol=1e-6)


def test_okapi_needs_no_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "bm25s", None)
    assert ids(BM25Index.build(PASSAGES, OKAPI).retrieve("tree", 1)) == ["2"]
    with pytest.raises(ImportError, match=r"suffice\[bm25\]"):
        BM25Index.build(PASSAGES)
