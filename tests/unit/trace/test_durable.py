"""A file is written whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from suffice.errors import BackendError
from suffice.policies.file import save_policy
from suffice.policies.fixed import FixedPolicy
from suffice.trace.durable import replace_file


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
