"""A file is written whole or not at all, and where it cannot be, that is said before the work."""

from __future__ import annotations

from pathlib import Path

import pytest

from suffice.errors import BackendError, UsageError
from suffice.policies.file import save_policy
from suffice.policies.fixed import FixedPolicy
from suffice.trace.durable import replace_file, writable


def test_it_replaces_and_leaves_nothing_behind(tmp_path: Path) -> None:
    replace_file(tmp_path / "f", b"one")
    replace_file(tmp_path / "f", b"two")
    assert (tmp_path / "f").read_bytes() == b"two"
    assert [each.name for each in tmp_path.iterdir()] == ["f"]


def test_a_full_disk_keeps_what_stood_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_policy(FixedPolicy(2), tmp_path / "p.json")
    before = (tmp_path / "p.json").read_bytes()

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(BackendError, match=r"p\.json: No space left on device"):
        save_policy(FixedPolicy(3), tmp_path / "p.json")
    assert (tmp_path / "p.json").read_bytes() == before
    assert [each.name for each in tmp_path.iterdir()] == ["p.json"]


def test_a_place_that_can_be_written_is_made_by_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "old.d").mkdir()
    for path in ("p.json", "new/p.json", "new", "run-0.05", "run.v2", "old.d", "meant.txt/", "."):
        assert writable(path, ".json", folder=True) == Path(path)
    assert writable("cache.sqlite") == Path("cache.sqlite")
    assert [each.name for each in tmp_path.iterdir()] == ["old.d"]


@pytest.mark.parametrize(
    ("path", "suffixes", "folder", "said"),
    [
        (
            "p.txt",
            (".json",),
            True,
            r"p\.txt would be made a directory; write p\.json, or p\.txt/ if",
        ),
        ("demo.zip", (), True, r"demo\.zip would be made a directory; write demo\.zip/ if"),
        ("there", (".html", ".htm"), False, r"there is a directory; write there/there\.html"),
        ("new/", (".html",), False, r"does not end in \.html; write new\.html"),
        (
            "r.txt",
            (".html", ".htm"),
            False,
            r"r\.txt does not end in \.html or \.htm; write r\.html",
        ),
        ("there", (), False, "there is a directory; write there/there"),
        ("file", (".json",), True, r"file is a file, and a \.json file or a directory is wanted"),
        ("file", (), True, "file is a file, and a directory is wanted"),
        ("file/p.json", (".json",), True, "since file is no directory; choose another place"),
        (" ", (".json",), True, "an empty text names no place"),
    ],
)
def test_a_place_that_cannot_be_written_is_refused_with_what_to_type(
    path: str,
    suffixes: tuple[str, ...],
    folder: bool,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there").mkdir()
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match=said):
        writable(path, *suffixes, folder=folder)


def test_a_policy_is_not_written_into_a_folder_named_like_a_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"write .*p\.json"):
        save_policy(FixedPolicy(2), tmp_path / "p.txt")
    assert not any(tmp_path.iterdir())
