"""Vectors made in blocks: kept, gone on with after a kill, and never mixed with others'."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from numpy.typing import NDArray

from suffice.errors import BackendError, DataError, UsageError
from suffice.retrieval.dense.passage_vectors import BLOCK, encode_passages
from suffice.testing.encoders import HashingEncoder

TEXTS = [f"text {number} of many" for number in range(2 * BLOCK + 10)]


def run(
    work: Path | None, encoder: Any = None, texts: Sequence[str] = TEXTS
) -> NDArray[np.float32]:
    return encode_passages(texts, encoder or HashingEncoder(8), "f1", work=work)


def test_kept_blocks_are_not_made_again(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    first = encode_passages(
        TEXTS, HashingEncoder(8), "f1", work=tmp_path, on_progress=lambda *done: seen.append(done)
    )
    assert seen == [(BLOCK, 522), (2 * BLOCK, 522), (522, 522)]
    second = HashingEncoder(8)
    assert (run(tmp_path, second) == first).all()
    assert second.calls == ()
    assert (run(None) == first).all()


@pytest.mark.parametrize("damage", ["cut", "empty", "other", "nan"])
def test_a_damaged_block_is_made_again(tmp_path: Path, damage: str) -> None:
    first = run(tmp_path)
    path = tmp_path / "vectors-0000001.npy"
    content = path.read_bytes()
    if damage == "cut":
        path.write_bytes(content[:-9])
    elif damage == "empty":
        path.write_bytes(b"")
    elif damage == "other":
        np.save(path, np.eye(3, dtype=np.float32))
    else:
        path.write_bytes(content[:-4] + np.full(1, np.nan, np.float32).tobytes())
    encoder = HashingEncoder(8)
    assert (run(tmp_path, encoder) == first).all()
    assert encoder.calls == (tuple(TEXTS[BLOCK : 2 * BLOCK]),)


@pytest.mark.filterwarnings("ignore")  # NumPy on odd headers
def test_a_block_whose_header_is_no_longer_python_is_made_again(tmp_path: Path) -> None:
    """NumPy parses it as a literal, and raises SyntaxError, TokenError and others."""
    first = run(tmp_path, texts=TEXTS[:3])
    path = tmp_path / "vectors-0000000.npy"
    content = path.read_bytes()
    for place in range(0, 8 * 80, 7):
        damaged = bytearray(content)
        damaged[place // 8] ^= 1 << place % 8
        path.write_bytes(damaged)
        assert (run(tmp_path, texts=TEXTS[:3]) == first).all(), place


def test_another_encoder_or_corpus_is_refused(tmp_path: Path) -> None:
    run(tmp_path)
    with pytest.raises(DataError, match="'hashing-8'"):
        run(tmp_path, HashingEncoder(9))
    with pytest.raises(DataError, match="'f1'"):
        encode_passages(TEXTS, HashingEncoder(8), "f2", work=tmp_path)
    with pytest.raises(DataError, match="another number of passages: 522, not 3"):
        run(tmp_path, texts=TEXTS[:3])


def test_a_folder_with_other_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "holiday.jpg").write_bytes(b"x")
    with pytest.raises(DataError, match=r"no work\.json here, but other files"):
        run(tmp_path)
    with pytest.raises(UsageError, match="is a file"):
        run(tmp_path / "holiday.jpg")
    with pytest.raises(UsageError, match="directory"):
        run(tmp_path / "holiday.jpg" / "work")
    for content in ("{", "[]"):
        (tmp_path / "work.json").write_text(content)
        with pytest.raises(DataError, match="delete"):
            run(tmp_path)


class Bad(HashingEncoder):
    """Gives what it is told."""

    def __init__(self, result: Any) -> None:
        super().__init__(4)
        self.result = result

    def encode(
        self, texts: Sequence[str], *, role: Literal["query", "passage"] = "passage"
    ) -> NDArray[np.float32]:
        result: NDArray[np.float32] = self.result(len(texts))
        return result


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (lambda n: np.ones((n - 1, 1), np.float32), r"shape \(255, 1\) for 256 texts"),
        (lambda n: np.ones(n, np.float32), r"shape \(256,\)"),
        (lambda n: np.ones((n, 0), np.float32), r"shape \(256, 0\)"),
        (lambda n: np.ones((n, 4), np.float32), "vector"),
        (lambda n: np.full((n, 4), np.nan, np.float32), "infinite"),
        (lambda n: np.eye(n, n % 250 + 300, dtype=np.float32), "of 306 numbers, then of 310"),
    ],
)
def test_what_are_no_unit_vectors_is_refused(result: Any, message: str) -> None:
    with pytest.raises(BackendError, match=message):
        run(None, Bad(result), TEXTS[: BLOCK + 10])


BUILD = """
import sys, time
from pathlib import Path
from suffice.retrieval.dense.passage_vectors import encode_passages
from suffice.testing.encoders import HashingEncoder
def slowly(done, total):
    print(done, flush=True)
    time.sleep(0.3)
texts = [f"text {number} of many" for number in range(522)]
encode_passages(texts, HashingEncoder(8), "f1", work=Path(sys.argv[1]), on_progress=slowly)
"""


def test_a_killed_build_goes_on_where_it_stopped(tmp_path: Path) -> None:
    work = tmp_path / "work"
    running = subprocess.Popen([sys.executable, "-c", BUILD, str(work)], stdout=subprocess.PIPE)
    assert running.stdout is not None
    with running.stdout:
        assert running.stdout.readline() == b"256\n"
        os.kill(running.pid, signal.SIGKILL)
    assert running.wait() == -signal.SIGKILL
    (work / ".vectors-0000001.npy.7.tmp").write_bytes(b"half")  # what a kill while writing leaves
    time.sleep(0.01)
    encoder = HashingEncoder(8)
    assert (run(work, encoder) == run(None)).all()
    assert sum(len(call) for call in encoder.calls) == 522 - BLOCK
