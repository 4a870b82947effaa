"""TF-IDF against scikit-learn used directly, and what every index promises."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from suffice.datasets.registry import load
from suffice.errors import DataError
from suffice.protocols import Retriever
from suffice.retrieval.lexical.bm25 import OKAPI, BM25Index
from suffice.retrieval.lexical.tfidf import TfidfIndex
from suffice.testing.conformance import check_retriever
from suffice.trace.rounds.records import Passage

pytest.importorskip("sklearn", reason="the extra 'tfidf' is not installed")

PASSAGES = [
    Passage(id="a", title="Ardel", text="a red boat \u2028 on a lake"),
    Passage(id="b", title="Caldra \ud800", text="green boats, Éva"),
    Passage(id="c", text=None),
    Passage(id="d", title="Tree", text="an old tree"),
]
POOL = tuple(
    {p.id: p for example in load("generated", limit=40, seed=6) for p in example.passages}.values()
)


def data_folder(folder: Path) -> Path:
    (data,) = folder.glob("data-*")
    return data


def without_checksums(folder: Path) -> None:
    """A header of the first version, with the files' sizes as they are now."""
    path = folder / "index.json"
    header = json.loads(path.read_text())
    sizes = {name: (folder / header["folder"] / name).stat().st_size for name in header["files"]}
    path.write_text(json.dumps(header | {"schema": 1, "files": sizes}))


def test_scores_are_scikit_learns() -> None:
    """Its own splitting by the same pattern, its own cosine."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.metrics.pairwise import cosine_similarity

    vectorizer = TfidfVectorizer(token_pattern=r"\w+")
    matrix = vectorizer.fit_transform([f"{p.title} {p.text}" for p in POOL])
    index = TfidfIndex.build(POOL)
    for example in load("generated", limit=20, seed=6):
        query = example.question.text
        wanted = cosine_similarity(vectorizer.transform([query]), matrix)[0]
        np.testing.assert_allclose(index.scores(query), wanted, rtol=1e-12, atol=1e-15)
        assert 0 < wanted.max() <= 1


def test_it_conforms_and_ranks_unlike_bm25() -> None:
    index = TfidfIndex.build(POOL)
    assert isinstance(index, Retriever)
    queries = [example.question.text for example in load("generated", limit=6, seed=6)]
    check_retriever(index, [*queries, "", "zeppelin"], size=len(POOL))
    other = BM25Index.build(POOL, OKAPI)
    assert any(
        [p.id for p in index.retrieve(query, 10)] != [p.id for p in other.retrieve(query, 10)]
        for query in queries
    )


@pytest.mark.parametrize("passages", [[], [Passage(id="a", text="...")]])
def test_no_words_at_all(passages: list[Passage], tmp_path: Path) -> None:
    index = TfidfIndex.build(passages)
    assert len(index.retrieve("boat", 3)) == len(passages)
    index.save(tmp_path)
    assert TfidfIndex.load(tmp_path).passages == tuple(passages)


def test_a_loaded_index_is_the_saved_one(tmp_path: Path) -> None:
    index = TfidfIndex.build(PASSAGES)
    index.save(tmp_path)
    loaded = TfidfIndex.load(tmp_path)
    assert loaded.passages == index.passages
    assert loaded.fingerprint == index.fingerprint
    for query in ("red boat", "old tree", "éva", "nothing"):
        np.testing.assert_array_equal(loaded.scores(query), index.scores(query))


@pytest.mark.parametrize("name", ["words.json", "weights.npz"])
def test_damaged_files_are_named(tmp_path: Path, name: str) -> None:
    TfidfIndex.build(PASSAGES).save(tmp_path)
    path = data_folder(tmp_path) / name
    size = path.stat().st_size
    path.write_bytes(b"x" * size)
    with pytest.raises(DataError, match="saved") as caught:
        TfidfIndex.load(tmp_path)
    assert caught.value.file == str(path)
    without_checksums(tmp_path)
    with pytest.raises(DataError, match="weights") as caught:
        TfidfIndex.load(tmp_path)
    assert caught.value.file == str(path)
    path.write_bytes(b"x" * (size - 1))
    with pytest.raises(DataError, match="bytes instead of"):
        TfidfIndex.load(tmp_path)


@pytest.mark.filterwarnings("ignore")  # NumPy on odd headers
def test_flipped_bits_without_checksums_never_escape_as_other_errors(tmp_path: Path) -> None:
    TfidfIndex.build(PASSAGES).save(tmp_path)
    without_checksums(tmp_path)
    path = data_folder(tmp_path) / "weights.npz"
    content = path.read_bytes()
    refused = 0
    for place in range(0, 8 * len(content), 37):
        damaged = bytearray(content)
        damaged[place // 8] ^= 1 << place % 8
        path.write_bytes(damaged)
        try:
            TfidfIndex.load(tmp_path)
        except DataError:
            refused += 1
    assert refused > 90


def test_weights_that_do_not_fit_each_other(tmp_path: Path) -> None:
    TfidfIndex.build(PASSAGES).save(tmp_path)
    path = data_folder(tmp_path) / "words.json"
    path.write_text(
        path.read_text().replace('"red"', '"old"')
    )  # twice now, so one column is missing
    without_checksums(tmp_path)
    with pytest.raises(DataError, match="weights"):
        TfidfIndex.load(tmp_path)


def test_nothing_in_the_folder_is_pickled(tmp_path: Path) -> None:
    """An array of objects would run code when read."""
    TfidfIndex.build(PASSAGES).save(tmp_path)
    path = data_folder(tmp_path) / "weights.npz"
    np.savez(path, idf=np.array([{}], dtype=object), data=[], indices=[], indptr=[])
    without_checksums(tmp_path)
    with pytest.raises(DataError, match="allow_pickle"):
        TfidfIndex.load(tmp_path)


def test_without_the_extra_the_install_line_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.feature_extraction.text", None)
    with pytest.raises(ImportError, match=r"suffice\[tfidf\]"):
        TfidfIndex.build(PASSAGES)
