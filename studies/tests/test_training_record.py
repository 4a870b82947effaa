"""What a trained reranker has seen."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from studies.training.interaction import trained_on, training_ids, write_training

from suffice.errors import BackendError, DataError


def test_what_is_written_is_read(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "reranker"
    write_training(folder, {"train_ids": ["a", "\u00e9"], "held_out_ids": ["b"]})
    assert training_ids(folder) == trained_on(str(folder)) == frozenset({"a", "\u00e9"})
    write_training(folder, {"train_ids": ["c"]})
    assert training_ids(folder) == frozenset({"c"})
    assert [each.name for each in folder.iterdir()] == ["training.json"]


def test_what_cannot_be_written_leaves_the_old_record(tmp_path: Path) -> None:
    write_training(tmp_path, {"train_ids": ["a"]})
    with pytest.raises(ValueError, match="JSON"):
        write_training(tmp_path, {"train_ids": ["b"], "loss": float("nan")})
    assert training_ids(tmp_path) == frozenset({"a"})
    (tmp_path / "other" / "training.json").mkdir(parents=True)
    with pytest.raises(BackendError, match="cannot write"):
        write_training(tmp_path / "other", {"train_ids": ["b"]})


def test_nothing_is_known_where_nothing_tells(tmp_path: Path) -> None:
    assert (
        trained_on(None) == trained_on("a/name-on-the-hub") == trained_on(tmp_path) == frozenset()
    )
    with pytest.raises(DataError, match="training"):
        training_ids(tmp_path)


@pytest.mark.parametrize(
    "text", ["", "[]", "{broken", "{}", json.dumps({"train_ids": "abc"}), '{"train_ids": null}']
)
def test_a_damaged_record_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "training.json").write_text(text)
    for read in (training_ids, trained_on):
        with pytest.raises(DataError, match="training"):
            read(str(tmp_path))
