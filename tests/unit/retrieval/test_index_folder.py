from __future__ import annotations

import hashlib
import json
import os
import shutil
import threading
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from suffice.errors import BackendError, DataError, UsageError
from suffice.retrieval import index_folder
from suffice.retrieval.index_folder import load_index, prepare_folder, save_index
from suffice.retrieval.lexical.bm25 import OKAPI, BM25Index, BM25Settings, BM25Variant
from suffice.trace.rounds.records import Passage

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


def changed_header(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    path = folder / "index.json"
    header = json.loads(path.read_text())
    change(header)
    path.write_text(json.dumps(header))


def without_checksums(header: dict[str, Any]) -> None:
    """As the first version wrote it."""
    del header["kind"]
    header["schema"] = 1
    header["files"] = {name: each["bytes"] for name, each in header["files"].items()}


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_loaded_index_is_the_saved_one(tmp_path: Path, variant: BM25Variant) -> None:
    index = saved(tmp_path / "new" / "index", variant)
    loaded = BM25Index.load(tmp_path / "new" / "index")
    assert loaded.passages == tuple(PASSAGES)
    assert loaded.settings == index.settings
    for query in ("red boat", "old tree", "nothing"):
        np.testing.assert_array_equal(loaded.scores(query), index.scores(query))


def test_saving_again_replaces_and_leaves_nothing_behind(tmp_path: Path) -> None:
    saved(tmp_path)
    BM25Index.build(PASSAGES[:1]).save(tmp_path)
    assert len(BM25Index.load(tmp_path)) == 1
    assert {path.name for path in tmp_path.iterdir()} == {
        *("index.json", ".index.lock"),
        data_folder(tmp_path).name,
    }


def test_a_failed_save_keeps_the_old_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved(tmp_path)

    def fail(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("suffice.retrieval.index_folder._write_passages", fail)
    with pytest.raises(BackendError, match=r"cannot write the index to .*disk full.*make room"):
        BM25Index.build(PASSAGES[:1]).save(tmp_path)
    assert len(BM25Index.load(tmp_path)) == len(PASSAGES)
    assert {path.name for path in tmp_path.iterdir()} == {
        *("index.json", ".index.lock"),
        data_folder(tmp_path).name,
    }


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
    with pytest.raises(DataError, match="saved"):
        BM25Index.load(tmp_path)
    changed_header(tmp_path, without_checksums)
    with pytest.raises(DataError, match="indexed"):
        BM25Index.load(tmp_path)


def test_a_broken_row_is_named(tmp_path: Path) -> None:
    saved(tmp_path)
    path = data_folder(tmp_path) / "passages.jsonl"
    path.write_text(path.read_text().replace('"id": "b"', '"ix": "b"'))
    changed_header(tmp_path, without_checksums)
    with pytest.raises(DataError, match="not a passage") as caught:
        BM25Index.load(tmp_path)
    assert caught.value.row == 1


def test_an_array_of_the_right_size_that_is_none(tmp_path: Path) -> None:
    saved(tmp_path)
    path = data_folder(tmp_path) / "indptr.csc.index.npy"
    path.write_bytes(b"x" * path.stat().st_size)
    with pytest.raises(DataError, match="saved") as caught:
        BM25Index.load(tmp_path)
    assert caught.value.file == str(path)
    changed_header(tmp_path, without_checksums)
    with pytest.raises(DataError, match="not a readable bm25s index"):
        BM25Index.load(tmp_path)


def test_every_flipped_bit_is_refused_before_anything_is_parsed(tmp_path: Path) -> None:
    saved(tmp_path)
    rng = np.random.default_rng(3)
    for path in data_folder(tmp_path).iterdir():
        content = path.read_bytes()
        for place in rng.integers(0, 8 * len(content), 12).tolist():
            damaged = bytearray(content)
            damaged[place // 8] ^= 1 << place % 8
            path.write_bytes(damaged)
            with pytest.raises(DataError, match="saved") as caught:
                BM25Index.load(tmp_path)
            assert caught.value.file == str(path)
        path.write_bytes(content)
    assert len(BM25Index.load(tmp_path)) == len(PASSAGES)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # NumPy on odd headers
def test_flipped_bits_without_checksums_never_escape_as_other_errors(tmp_path: Path) -> None:
    """Arrays may then load with other numbers; what cannot be read is still a DataError."""
    saved(tmp_path)
    changed_header(tmp_path, without_checksums)
    refused = 0
    for path in data_folder(tmp_path).iterdir():
        content = path.read_bytes()
        for place in range(0, 8 * min(128, len(content)), 3):  # where arrays say what they are
            damaged = bytearray(content)
            damaged[place // 8] ^= 1 << place % 8
            path.write_bytes(damaged)
            try:
                BM25Index.load(tmp_path)
            except DataError:
                refused += 1
        path.write_bytes(content)
    assert refused > 300


def test_no_index(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"index\.json: missing"):
        BM25Index.load(tmp_path)


FIRST_VERSION = """{
  "schema": 1,
  "fingerprint": "FINGERPRINT",
  "passages": 2,
  "settings": {"k1": 1.5, "b": 0.75, "variant": "okapi"},
  "folder": "data-0123456789abcdef0123456789abcdef",
  "files": {"passages.jsonl": 94}
}
"""
FIRST_PASSAGES = (
    '{"id": "a", "title": "Lund", "text": "by the sea"}\n'
    '{"id": "b", "title": "", "text": "a mill"}\n'
)


def test_a_sample_of_the_first_version_is_read(tmp_path: Path) -> None:
    rows = b'["a", "Lund", "by the sea"]\n["b", "", "a mill"]\n'
    header = FIRST_VERSION.replace("FINGERPRINT", sha256(rows).hexdigest())
    (tmp_path / "index.json").write_text(header)
    data = tmp_path / "data-0123456789abcdef0123456789abcdef"
    data.mkdir()
    (data / "passages.jsonl").write_text(FIRST_PASSAGES)
    loaded = BM25Index.load(tmp_path)
    assert [each.text for each in loaded.passages] == ["by the sea", "a mill"]
    assert loaded.settings == OKAPI


@pytest.mark.parametrize(
    "header",
    ["", "[]", "{}", '{"schema": 1}', '{"schema": 1, "folder": "x", "settings": {"k": 1}}', "\xff"],
)
def test_headers_that_are_none(tmp_path: Path, header: str) -> None:
    (tmp_path / "index.json").write_bytes(header.encode("latin-1"))
    with pytest.raises(DataError) as caught:
        BM25Index.load(tmp_path)
    assert caught.value.file == str(tmp_path / "index.json")


ID = "0123456789abcdef" * 2
UNLIKELY_NUMBERS = ["0", "-1", "true", "1.5", '"1"', "null", "Infinity", "9" * 400, "9" * 5000]


@pytest.mark.parametrize(
    ("column", "value"),
    [
        *[
            ("folder", each)
            for each in ("", ".", "../x", f"../data-{ID}", f"data-{ID}/..", 7, None)
        ],
        *[("folder", each) for each in (f"data-{ID}\n", f"data-{ID.upper()}", "data-mine")],
        *[("settings", each) for each in (None, 7, "x")],
        *[("fingerprint", each) for each in (None, 7)],
        *[("files", each) for each in (None, "x", 7)],
        ("files", {}),
    ],
)
def test_header_parts_that_are_none(tmp_path: Path, column: str, value: object) -> None:
    saved(tmp_path)
    changed_header(tmp_path, lambda header: header.update({column: value}))
    with pytest.raises(DataError, match="must be") as caught:
        BM25Index.load(tmp_path)
    assert (caught.value.file, caught.value.column) == (str(tmp_path / "index.json"), column)


@pytest.mark.parametrize(
    ("stated", "value"),
    [
        *(('"schema": 2', each) for each in (*UNLIKELY_NUMBERS, "3")),
        *(('"k1": 1.1', each) for each in ("Infinity", "NaN", "9" * 400, "-1", '"x"', "null")),
    ],
)
def test_numbers_of_a_header_that_are_none(tmp_path: Path, stated: str, value: str) -> None:
    saved(tmp_path)
    path = tmp_path / "index.json"
    path.write_text(path.read_text().replace(stated, f"{stated.split(maxsplit=1)[0]} {value}"))
    with pytest.raises(DataError) as caught:
        BM25Index.load(tmp_path)
    assert caught.value.file == str(path)


@pytest.mark.parametrize(
    ("name", "entry"),
    [
        *((name, {"bytes": 1, "sha256": "x"}) for name in ("", ".", "..", "a/b", "..\\x", "a\0")),
        *(("passages.jsonl", {"bytes": json.loads(n)}) for n in UNLIKELY_NUMBERS[1:7]),
        *((name, None) for name in ("params.index.json", "vocab.index.json", "data.csc.index.npy")),
    ],
)
@pytest.mark.parametrize("first_version", [True, False])
def test_files_that_a_header_cannot_name(
    tmp_path: Path, name: str, entry: dict[str, Any] | None, first_version: bool
) -> None:
    saved(tmp_path)

    def change(header: dict[str, Any]) -> None:
        if entry is None:
            del header["files"][name]
        else:
            header["files"][name] = header["files"].get(name, {}) | entry
        if first_version:
            without_checksums(header)

    changed_header(tmp_path, change)
    with pytest.raises(DataError) as caught:
        BM25Index.load(tmp_path)
    assert caught.value.file == str(tmp_path / "index.json")


# --- the user's own files ---------------------------------------------------------------------------
def test_only_what_saves_made_is_deleted(tmp_path: Path) -> None:
    saved(tmp_path)
    left_over = tmp_path / f"data-{ID}"
    mine = [tmp_path / name for name in ("data-2024", f"data-{ID}.bak", f"data-{ID.upper()}")]
    for folder in (left_over, *mine):
        folder.mkdir()
        (folder / "notes.txt").write_text("dear")
    elsewhere = tmp_path.parent / f"{tmp_path.name}-elsewhere"
    shutil.copytree(mine[0], elsewhere)
    link = tmp_path / f"data-{'0' * 32}"
    link.symlink_to(elsewhere)
    file = tmp_path / f"data-{'1' * 32}"
    file.write_text("dear")
    saved(tmp_path)
    assert not left_over.exists()
    assert all((each / "notes.txt").exists() for each in (*mine, elsewhere, link))
    assert file.read_text() == "dear"
    assert len(BM25Index.load(tmp_path)) == len(PASSAGES)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        *(("notes.txt", "x"), (".hidden", ""), ("data-2024", None), ("index.json", "{}")),
        *(("index.json", '{"schema": 1, "folder": "data"}'), ("index.json", "{")),
    ],
)
def test_a_folder_of_other_things_is_refused_and_kept(
    tmp_path: Path, name: str, content: str | None
) -> None:
    path = tmp_path / name
    if content is None:
        path.mkdir()
    else:
        path.write_text(content)
    with pytest.raises(UsageError, match=r"holds other files .* name a new or empty one") as caught:
        saved(tmp_path)
    assert name in str(caught.value)
    assert [each.name for each in tmp_path.iterdir()] == [name]
    assert content is None or path.read_text() == content


@pytest.mark.skipif(os.geteuid() == 0, reason="may write everywhere")
def test_a_folder_that_may_not_be_written(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    for folder in (tmp_path, tmp_path / "new"):
        with pytest.raises(UsageError, match="an index cannot be kept in"):
            prepare_folder(folder)


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("indices.csc.index.npy", 99, "scores passages that are not there"),
        ("indptr.csc.index.npy", 99, "divide"),
    ],
)
def test_numbers_of_an_engine_that_lead_beyond_its_passages(
    tmp_path: Path, name: str, value: int, why: str
) -> None:
    """With checksums that fit, as another program may write them."""
    BM25Index.build([Passage(id=f"p{n}", text=f"Oslo {n}") for n in range(3)]).save(tmp_path)
    header = json.loads((tmp_path / "index.json").read_text())
    file = tmp_path / header["folder"] / name
    numbers = np.load(file)
    numbers[-1] = value
    np.save(file, numbers)
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    header["files"][name] = {"bytes": file.stat().st_size, "sha256": digest}
    (tmp_path / "index.json").write_text(json.dumps(header))
    with pytest.raises(DataError, match=f"not a readable bm25s index .*{why}"):
        BM25Index.load(tmp_path)


def test_two_that_save_at_once_take_nothing_from_each_other(tmp_path: Path) -> None:
    """The first to end would drop what the second is writing."""
    started = threading.Event()

    def second() -> None:
        started.set()
        save_index(tmp_path, "tfidf", tuple(PASSAGES), {}, lambda data: (data / "x").touch())

    other = threading.Thread(target=second)

    def write(data: Path) -> None:
        (data / "x").touch()
        other.start()
        started.wait()
        other.join(0.1)
        assert other.is_alive()
        assert list(tmp_path.glob("data-*")) == [data]

    save_index(tmp_path, "tfidf", tuple(PASSAGES), {}, write)
    other.join()
    assert load_index(tmp_path, "tfidf").data == data_folder(tmp_path)


def test_an_index_that_is_replaced_while_it_is_read_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved(tmp_path)
    first, read = data_folder(tmp_path).name, index_folder._read_passages

    def replaced(path: Path) -> tuple[Passage, ...]:
        if path.parent.name == first:
            saved(tmp_path)
        return read(path)

    monkeypatch.setattr(index_folder, "_read_passages", replaced)
    assert load_index(tmp_path, "bm25").data == data_folder(tmp_path)
