"""Indexes kept in a folder: used again when they fit, made anew or refused when they do not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest
from tests.hashing_encoder import HashingEncoder

from suffice.errors import DataError, UsageError
from suffice.retrieval.retrievers import IndexKind, IndexMaker
from suffice.trace.rounds.records import Passage

pytest.importorskip("bm25s")

PASSAGES = tuple(
    Passage(id=f"p{n}", title=f"Town {n}", text=f"{name} stands on the river {name}a.")
    for n, name in enumerate(["Ardel", "Borel", "Cadel", "Dorel"])
)
CHANGED = (replace(PASSAGES[0], text="Something else."), *PASSAGES[1:])


def maker(dimension: int = 64) -> IndexMaker:
    return IndexMaker(encoder=HashingEncoder(dimension))


def inode(folder: Path) -> int:
    return (folder / "index.npz").stat().st_ino


@pytest.mark.parametrize("kind", get_args(IndexKind))
def test_what_is_kept_is_used_again(kind: IndexKind, tmp_path: Path) -> None:
    folder = tmp_path / "index"
    first = maker().kept(kind, PASSAGES, folder)
    written = inode(folder)
    for again in (maker().kept(kind, PASSAGES, folder), maker().cached(kind, PASSAGES, folder)):
        assert inode(folder) == written
        found = [each.retrieve("river Cadela", 2) for each in (first, again)]
        assert found[0] == found[1]
        assert found[0][0].id == "p2"


@pytest.mark.parametrize("kind", get_args(IndexKind))
def test_another_corpus_is_refused_with_what_changed(kind: IndexKind, tmp_path: Path) -> None:
    folder = tmp_path / "index"
    maker().kept(kind, PASSAGES, folder)
    for passages, said in (
        (CHANGED, r"1 changed \(p0\)"),
        (PASSAGES[1:], r"1 removed \(p0\)"),
        ((*CHANGED, Passage(id="new", text="x")), r"1 added \(new\), 1 changed \(p0\)"),
        (PASSAGES[::-1], "the same passages in another order"),
    ):
        with pytest.raises(DataError, match=said) as refused:
            maker().kept(kind, passages, folder)
        assert "--reindex" in str(refused.value)
        assert str(folder) in str(refused.value)
    renewed = maker().kept(kind, CHANGED, folder, renew=True)
    assert renewed.passages == maker().kept(kind, CHANGED, folder).passages == CHANGED


def test_another_encoder_is_refused_or_a_cache_made_anew(tmp_path: Path) -> None:
    folder = tmp_path / "index"
    maker().kept("dense", PASSAGES, folder)
    with pytest.raises(DataError, match=r"hashing-64.*hashing-32.*--reindex"):
        maker(32).kept("dense", PASSAGES, folder)
    before = inode(folder)
    maker(32).cached("dense", PASSAGES, folder)
    assert inode(folder) != before
    maker(32).kept("dense", PASSAGES, folder)


@pytest.mark.parametrize("kind", get_args(IndexKind))
def test_a_place_that_cannot_be_is_told_before_anything_is_built(
    kind: IndexKind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def built(*_: object) -> None:
        raise AssertionError("built before the folder was looked at")

    monkeypatch.setattr(IndexMaker, "build", built)
    (tmp_path / "file").write_text("dear")
    for place, said in (
        (tmp_path / "file", "cannot be kept"),
        (tmp_path / "file" / "below" / "index", "Not a directory.*name a folder"),
        (tmp_path, r"holds other files \(file\)"),
        (tmp_path / ("x" * 300), "too long.*name a folder"),
    ):
        for renew in (False, True):
            with pytest.raises(UsageError, match=rf"^--index: .*{said}"):
                maker().kept(kind, PASSAGES, place, renew=renew)
        with pytest.raises(UsageError, match=said):
            maker().cached(kind, PASSAGES, place)
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


def test_a_broken_cache_is_made_anew(tmp_path: Path) -> None:
    folder = tmp_path / "index"
    maker().cached("dense", PASSAGES, folder)
    (folder / "index.npz").write_text("{", encoding="utf-8")
    assert maker().cached("dense", PASSAGES, folder).passages == PASSAGES
    (folder / "index.npz").write_text("{", encoding="utf-8")
    with pytest.raises(DataError, match="--reindex"):
        maker().kept("dense", PASSAGES, folder)
