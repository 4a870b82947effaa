"""Indexes on disk: read as they were saved, replaced as a whole, refused when damaged or old."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from suffice.errors import DataError, UsageError
from suffice.retrieval import ranking
from suffice.retrieval.bm25 import OKAPI, BM25Index, BM25Settings, BM25Variant
from suffice.retrieval.ranking import load_index, save_index
from suffice.testing.conformance import check_retriever
from suffice.trace.rounds.records import Passage

PASSAGES = [
    Passage(id="a", title="Ardel", text="a red boat \u2028 on a lake"),
    Passage(id="b", title="Caldra \ud800", text="green boats"),
    Passage(id="c", text=None),
    Passage(id="d", title="Tree", text="an old tree"),
]
VARIANTS: tuple[BM25Variant, ...] = ("okapi", "lucene")


def saved(folder: Path, variant: BM25Variant = "lucene") -> BM25Index:
    index = BM25Index.build(PASSAGES, BM25Settings(k1=1.1, b=0.6, variant=variant))
    index.save(folder)
    return index


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_loaded_index_is_the_saved_one(tmp_path: Path, variant: BM25Variant) -> None:
    index = saved(tmp_path / "new" / "index", variant)
    loaded = BM25Index.load(tmp_path / "new" / "index")
    assert loaded.passages == tuple(PASSAGES)
    assert loaded.settings == index.settings
    for query in ("red boat", "old tree", "nothing"):
        np.testing.assert_array_equal(loaded.scores(query), index.scores(query))


@pytest.mark.parametrize("content", [None, b"", b"x" * 100, b"PK\x05\x06" + bytes(18)])
def test_files_that_are_none(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "index.npz").write_bytes(content)
    with pytest.raises(DataError) as caught:
        BM25Index.load(tmp_path)
    assert caught.value.file == str(tmp_path / "index.npz")


def test_a_newer_schema_another_kind_and_other_settings_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_index(tmp_path, "dense", tuple(PASSAGES), {}, {})
    with pytest.raises(DataError) as caught:
        BM25Index.load(tmp_path)
    assert caught.value.column == "kind"
    for settings in ({"k1": "x"}, {"k1": -1}, {"links": 3}):
        save_index(tmp_path, "bm25", tuple(PASSAGES), settings, {})
        with pytest.raises(DataError, match="settings"):
            BM25Index.load(tmp_path)
    save_index(tmp_path, "bm25", tuple(PASSAGES), {}, {"data": np.zeros(2, np.float32)})
    with pytest.raises(DataError, match="arrays"):
        BM25Index.load(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(ranking, "SCHEMA", 99)
        saved(tmp_path)
    with pytest.raises(DataError, match="newer"):
        load_index(tmp_path, "bm25")


TEXTS = ["a red boat", "a green boat", "an old tree", "green leaves of an old green tree", ""]
TEXT_PASSAGES = [Passage(id=str(i), title=f"T{i}", text=text) for i, text in enumerate(TEXTS)]


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_variant_conforms_and_keeps_passage_order_at_ties(variant: BM25Variant) -> None:
    index = BM25Index.build(TEXT_PASSAGES, BM25Settings(variant=variant))
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
    (found,) = BM25Index.build(TEXT_PASSAGES, OKAPI).retrieve("tree", 1)
    assert found.id == "2"
    with pytest.raises(ImportError, match=r"suffice\[bm25\]"):
        BM25Index.build(TEXT_PASSAGES)
