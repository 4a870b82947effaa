"""Too little memory: the command works, or says so in one line; what stands there is whole."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.faults.children import Child, Conditions
from tests.faults.work import WORKS, Tried, Work, result

# bytes beyond what a process takes that has everything imported
ROOM = (0, 1 << 20, 32 << 20)
# without memory for a variable of a thread the C library ends the process with 127
ABORTED = (-signal.SIGABRT, -signal.SIGSEGV, 127)


@pytest.mark.slow
@pytest.mark.parametrize("work", WORKS, ids=lambda work: work.name)
def test_little_memory(
    work: Work, given: Path, clean: Callable[[Work], Any], tmp_path: Path, tried: Tried
) -> None:
    whole = clean(work)
    for room in ROOM:
        out = tmp_path / str(room)
        out.mkdir()
        line = work.line(given, out)
        ended = Child(line, given, conditions=Conditions(more_memory=room)).end(60.0)
        tried(
            "too little memory: aborted by a library"
            if ended.code in ABORTED
            else "too little memory"
        )
        assert ended.code in (0, 1, 2, *ABORTED), ended.err
        assert "Traceback" not in ended.err, ended.err
        if result(out) != whole.result or work.name == "monitor":
            again = Child(line, given).end()
            assert again.code == 0, again.err
            assert result(out) == whole.result or work.name == "monitor"
