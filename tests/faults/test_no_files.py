"""A pipe, a socket or a device in a file's place is refused by its name: nothing waits for it."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from contextlib import chdir
from pathlib import Path

import pytest

import suffice
from suffice.testing.traces import make_record

_TRIED = """
import faulthandler, json, sys
faulthandler.dump_traceback_later(25, exit=True)
from pathlib import Path
import suffice
from suffice.cli.main import main
from suffice.datasets.files import open_table
from suffice.errors import DataError, SufficeError
from suffice.monitor.coverage import read_state
from suffice.policies.file import load_policy

what, name, whole, new = sys.argv[1:]
def command(*words):
    if main(words) != 2:
        raise SystemExit(f"{words}: not refused")
    raise DataError("refused", file=name)
tried = {
    "record": {
        "read_traces": lambda: suffice.read_traces(what),
        "info": lambda: command("traces", "info", what),
        "validate": lambda: command("traces", "validate", what),
        "replay": lambda: command("replay", what, "--policy", "fixed-1"),
        "choose": lambda: command("choose", what, "--out", new),
        "merge": lambda: command("traces", "merge", what, whole, "--out", new),
        "export": lambda: command("traces", "export", what, "--format", "csv", "--out", new),
    },
    "policy": {
        "load_policy": lambda: load_policy(what),
        "replay": lambda: command("replay", whole, "--policy", what),
        "watch": lambda: suffice.Watch(what),
    },
    "rows": {
        "table": lambda: open_table(Path(what)),
        "import": lambda: command("traces", "import", what, "--format", "columns", "--out", new),
        "labels": lambda: command("traces", "label", whole, what, "--out", new),
    },
    "state": {"state": lambda: read_state(Path(what))},
}
import os
refused = {}
for kind in os.environ["TRIED"].split(","):
    for label, attempt in tried[kind].items():
        try:
            attempt()
        except SufficeError as error:
            refused[label] = getattr(error, "file", None) == name or name in str(error)
print("REFUSED", json.dumps(refused))
"""


def _put(kind: str, place: Path) -> None:
    if kind == "pipe":
        os.mkfifo(place)
    elif kind == "device":
        place.symlink_to("/dev/zero")
    else:
        # the names of sockets are short
        with chdir(place.parent), socket.socket(socket.AF_UNIX) as one:
            one.bind(place.name)


def _refused(tried: str, what: Path, name: Path, tmp_path: Path) -> dict[str, bool]:
    """Whether each way to read it names it; in a process of its own, which must end."""
    whole = tmp_path / "whole.parquet"
    suffice.write_traces([make_record("a", ["x", "y"], gold=["x"])], whole)
    arguments = [
        sys.executable,
        "-c",
        _TRIED,
        str(what),
        str(name),
        str(whole),
        str(tmp_path / "new"),
    ]
    done = subprocess.run(
        arguments,
        env={**os.environ, "TRIED": tried},
        capture_output=True,
        text=True,
        timeout=120,  # it tells where it hangs after 25
        check=False,
    )
    line = next((line for line in done.stdout.splitlines() if line.startswith("REFUSED")), None)
    assert line is not None, done.stderr
    refused: dict[str, bool] = json.loads(line.removeprefix("REFUSED"))
    return refused


pytestmark = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no pipes")
_KINDS = ["pipe", "device", "socket"]


@pytest.mark.parametrize("kind", _KINDS)
def test_in_place_of_a_record(kind: str, tmp_path: Path) -> None:
    place = tmp_path / "record.parquet"
    _put(kind, place)
    refused = _refused("record", place, place, tmp_path)
    assert len(refused) == 7
    assert all(refused.values()), refused


@pytest.mark.parametrize("name", ["b.parquet", "labels.jsonl", "record.db"])
@pytest.mark.parametrize("kind", _KINDS)
def test_in_a_record_folder(kind: str, name: str, tmp_path: Path) -> None:
    folder = tmp_path / "record"
    folder.mkdir()
    suffice.write_traces([make_record("b", ["x", "y"], gold=["x"])], folder / "a.parquet")
    _put(kind, folder / name)
    refused = _refused("record", folder, folder / name, tmp_path)
    assert len(refused) == 7
    assert all(refused.values()), refused


@pytest.mark.parametrize("kind", _KINDS)
def test_in_place_of_other_files(kind: str, tmp_path: Path) -> None:
    for tried, name in {"policy": "p.json", "rows": "rows.jsonl", "state": "state.json"}.items():
        _put(kind, tmp_path / name)
        refused = _refused(tried, tmp_path / name, tmp_path / name, tmp_path)
        assert refused
        assert all(refused.values()), refused
