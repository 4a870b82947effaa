from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from suffice.errors import DataError, UsageError
from suffice.retrieval.bm25 import BM25Index, BM25Settings, BM25Variant
from suffice.trace.records import Passage

PASSAGES = [
    Passage(id="a", title="Ardel", text="a red boat \u2028 on a lake"),
    Passage(id="b", title="Caldra \ud800", text="green boats"),
    Passage(id="c", text=None),
    Passage(id="d", title="Tree", text="an old tree"),
]
VARIANTS: tuple[BM25Variant, ...] = ("okapi", "robertson", "lucene")


def saved(folder: Path, variant: BM25Variant = "lucene") -> BM25Index:
    index = BM25Index.build(PASSAGES, BM25Settings(k1=1.1, b=0.6, variant=variant))
    index.save(folder)
    return index


def data_folder(folder: Path) -> Path:
    (data,) = folder.glob("data-*")
    return data


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_loaded_index_is_the_saved_one(tmp_path: Path, variant: BM25Variant) -> None:
    index = saved(tmp_path / "new" / "index", variant)
    loaded = BM25Index.load(tmp_path / "new" / "index")
    assert loaded.passages == tuple(PASSAGES)
    assert loaded.settings == index.settings
    for query in ("red boat", "old tree", "nothing"):
        np.testing.assert_array_equal(loaded.scores(query), index.scores(query))


@pytest.mark.parametrize("passages", [[], [Passage(id="a", text="...")]])
def test_an_index_without_words(tmp_path: Path, passages: list[Passage]) -> None:
    BM25Index.build(passages).save(tmp_path)
    assert len(BM25Index.load(tmp_path).retrieve("boat", 3)) == len(passages)


def test_saving_again_replaces_and_leaves_nothing_behind(tmp_path: Path) -> None:
    saved(tmp_path)
    BM25Index.build(PASSAGES[:1]).save(tmp_path)
    assert len(BM25Index.load(tmp_path)) == 1
    assert len(list(tmp_path.iterdir())) == 2


def test_a_failed_save_keeps_the_old_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved(tmp_path)

    def fail(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("suffice.retrieval.index_folder._write_passages", fail)
    with pytest.raises(OSError, match="disk full"):
        BM25Index.build(PASSAGES[:1]).save(tmp_path)
    assert len(BM25Index.load(tmp_path)) == len(PASSAGES)
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize(
    "name", ["passages.jsonl", "data.csc.index.npy", "vocab.index.json", "params.index.json"]
)
def test_missing_and_truncated_files_are_named(tmp_path: Path, name: str) -> None:
    saved(tmp_path)
    path = data_folder(tmp_path) / name
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(DataError, match="bytes instead of") as caught:
        BM25Index.load(tmp_path)
    assert caught.value.file == str(path)
    path.unlink()
    with pytest.raises(DataError, match="missing") as caught:
        BM25Index.load(tmp_path)
    assert caught.value.file == str(path)


def test_changed_passages_are_refused(tmp_path: Path) -> None:
    saved(tmp_path)
    path = data_folder(tmp_path) / "passages.jsonl"
    path.write_text(path.read_text().replace("red boat", "old boat"))
    with pytest.raises(DataError, match="not the ones that were indexed"):
        BM25Index.load(tmp_path)


def test_a_broken_row_is_named(tmp_path: Path) -> None:
    saved(tmp_path)
    path = data_folder(tmp_path) / "passages.jsonl"
    path.write_text(path.read_text().replace('"id": "b"', '"ix": "b"'))
    with pytest.raises(DataError, match="not a passage") as caught:
        BM25Index.load(tmp_path)
    assert caught.value.row == 1


def test_an_array_of_the_right_size_that_is_none(tmp_path: Path) -> None:
    saved(tmp_path)
    path = data_folder(tmp_path) / "indptr.csc.index.npy"
    path.write_bytes(b"x" * path.stat().st_size)
    with pytest.raises(DataError, match="not a readable bm25s index"):
        BM25Index.load(tmp_path)


def test_no_index(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"index\.json: missing"):
        BM25Index.load(tmp_path)


def test_a_newer_schema_is_refused(tmp_path: Path) -> None:
    saved(tmp_path)
    path = tmp_path / "index.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"schema": 2}))
    with pytest.raises(DataError, match="newer than 1"):
        BM25Index.load(tmp_path)


@pytest.mark.parametrize(
    "header",
    ["", "[]", "{}", '{"schema": 1}', '{"schema": 1, "folder": "x", "settings": {"k": 1}}', "\xff"],
)
def test_headers_that_are_none(tmp_path: Path, header: str) -> None:
    (tmp_path / "index.json").write_bytes(header.encode("latin-1"))
    with pytest.raises(DataError) as caught:
        BM25Index.load(tmp_path)
    assert caught.value.file == str(tmp_path / "index.json")


def test_a_file_in_the_way(tmp_path: Path) -> None:
    path = tmp_path / "index"
    path.write_text("")
    with pytest.raises(UsageError, match="is a file"):
        BM25Index.build(PASSAGES).save(path)
