"""Places that may not be written or read, that are no files, and names that an ASCII terminal cannot show."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import chdir, contextmanager
from pathlib import Path

import pytest
from tests.commands import SUFFICE, run
from tests.faults.children import Child, Conditions, check_told
from tests.faults.work import ALL, SHORT, WORKS, Clean, line, result

import suffice
from suffice.errors import SufficeError
from suffice.testing.traces import make_record

OBEYING = Conditions(permissions=True)
EXAMPLE = Path(__file__).parents[2] / "examples" / "traces" / "generated.parquet"


@contextmanager
def locked(*places: Path, mode: int = 0o555) -> Iterator[None]:
    """The places have these permissions for a while."""
    for place in places:
        place.chmod(mode)
    try:
        yield
    finally:
        for place in places:
            place.chmod(0o755)


@pytest.mark.slow
@pytest.mark.parametrize("name", WORKS)
def test_a_folder_that_may_not_be_written(name: str, given: Path, tmp_path: Path) -> None:
    with locked(tmp_path):
        ended = Child(line(WORKS[name], given, tmp_path), given, OBEYING).end()
    check_told(ended, "choose another", "permissions", "can be made and written")
    assert str(tmp_path) in ended.err.strip().splitlines()[-1]
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.parametrize("name", SHORT)
def test_what_is_read_may_not_be_written(
    name: str, given: Path, clean: Clean, tmp_path: Path
) -> None:
    """Inputs on a disk that is only read: no lock, no cache, no index is made beside them."""
    whole, _ = clean(name)
    with locked(given, *(place for place in given.rglob("*") if place.is_dir())):
        ended = Child(line(ALL[name], given, tmp_path), given, OBEYING).end()
    assert ended.code == 0, ended.err
    assert result(tmp_path) == whole


@pytest.mark.parametrize("words", ["traces info", "traces validate", "replay", "ask"])
@pytest.mark.parametrize("mode", [0o000, 0o311, "file"], ids=["nothing", "no-list", "file"])
def test_what_may_not_be_read_is_told_as_that(
    words: str, mode: int | str, given: Path, tmp_path: Path
) -> None:
    """And not as damaged, nor as a folder that holds nothing."""
    place = tmp_path / "r"
    place.mkdir()
    inner = place / ("a.txt" if words == "ask" else "a.parquet")
    shutil.copy(EXAMPLE, inner)
    asked = ["ask", "--corpus", str(place), "Who?"]
    whole = asked if words == "ask" else [*words.split(), str(place)]
    what, bits = (inner, 0o000) if isinstance(mode, str) else (place, mode)
    with locked(what, mode=bits):
        ended = Child(whole, given, OBEYING).end()
    assert ended.code in (1, 2)
    said = ended.err + ended.out
    assert "Permission denied" in said
    assert not any(word in said for word in ("damaged", "holds no", "Traceback"))


def test_a_policy_that_may_not_be_read_is_no_text_of_a_rule(given: Path, tmp_path: Path) -> None:
    policy = tmp_path / "r" / "chosen"
    policy.mkdir(parents=True)
    with locked(tmp_path / "r", mode=0o600):
        ended = Child(["replay", str(EXAMPLE), "--policy", str(policy)], given, OBEYING).end()
    assert ended.code in (1, 2)
    assert f"{policy}: Permission denied" in ended.err


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        "replay GIVEN/foreign.parquet --policy fixed-1",
        "traces info GIVEN/foreign.parquet",
        "traces export GIVEN/foreign.parquet --format jsonl --out OUT/Århus.jsonl",
        "report GIVEN/foreign.parquet --bootstrap 10 --out OUT/Århus.html",
        "record --dataset generated --limit 2 --rounds 2 --llm scripted --out OUT/Århus",
        "ask Wo~liegt~Ålesund? --corpus GIVEN/notes --llm scripted --policy fixed-1",
        "replay OUT/Ålesund.parquet",
    ],
)
def test_a_terminal_that_knows_ascii_only(words: str, given: Path, tmp_path: Path) -> None:
    ascii_only = {"LC_ALL": "C", "LANG": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = subprocess.run(
        [*SUFFICE, *line(words, given, tmp_path)],
        env={**os.environ, **ascii_only},
        capture_output=True,
        check=False,
    )
    error = done.stderr.decode("ascii")
    assert "Traceback" not in error
    assert done.returncode == (2 if "Ålesund.parquet" in words else 0), error


def put(kind: str, place: Path) -> None:
    if kind == "pipe":
        os.mkfifo(place)
    elif kind == "device":
        place.symlink_to("/dev/zero")
    else:  # the names of sockets are short
        with chdir(place.parent), socket.socket(socket.AF_UNIX) as one:
            one.bind(place.name)


@pytest.fixture
def _nothing_waits() -> Iterator[None]:
    def waited(_signal: int, _frame: object) -> None:
        raise AssertionError("it waits for what is no file")

    before = signal.signal(signal.SIGALRM, waited)
    signal.alarm(600)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


# what reads a file of each name; WHOLE is a record
READ = {
    "record.parquet": (
        *("traces info IT", "traces validate IT", "replay IT --policy fixed-1"),
        *("choose IT --out NEW", "traces merge IT WHOLE --out NEW"),
        "traces export IT --format jsonl --out NEW",
    ),
    "policy.json": ("replay WHOLE --policy IT",),
    "rows.jsonl": (
        "traces import IT --format columns --out NEW",
        "traces label WHOLE IT --out NEW",
    ),
    "log.eval": ("traces import IT --format inspect --out NEW",),
    "suffice.toml": ("check IT", "check IT --update"),
    "serve.toml": ("serve --config IT --check",),
    "tokens": (
        "serve --tokens IT --policy fixed-1 --check",
        "serve --tokens IT --policy fixed-1 --host 0.0.0.0",
    ),
    "phrases.txt": ("replay WHOLE --policy fixed-1 --abstention IT",),
    "ids.txt": ("traces filter WHOLE --ids IT --out NEW",),
    "kept.db": ("ask Who? --corpus CORPUS --llm scripted --cache IT",),
}
IN_A_FOLDER = {
    **{
        f"record/{name}": READ["record.parquet"]
        for name in ("b.parquet", "labels.jsonl", "record.db", "failures.jsonl")
    },
    "record/index.npz": ("ask Who? --corpus CORPUS --llm scripted --index IT",),
}


@pytest.mark.usefixtures("_nothing_waits")
@pytest.mark.parametrize("kind", ["pipe", "device", "socket"])
@pytest.mark.parametrize("name", [*READ, *IN_A_FOLDER])
def test_what_is_no_file_is_refused_by_its_name(kind: str, name: str, tmp_path: Path) -> None:
    (tmp_path / "record").mkdir()
    (tmp_path / "corpus.txt").write_text("Oslo is a city.", encoding="utf-8")
    for whole in ("whole", *(["record/a"] if name != "record/index.npz" else [])):
        record = make_record(whole[-1], ["x", "y"], gold=["x"])
        suffice.write([record], tmp_path / f"{whole}.parquet")
    put(kind, tmp_path / name)
    given = tmp_path / (name if name in READ else "record")
    for command in (READ | IN_A_FOLDER)[name]:
        words = command.replace("IT", str(given)).replace("NEW", f"{tmp_path}/new")
        words = words.replace("CORPUS", f"{tmp_path}/corpus.txt")
        done = run(*words.replace("WHOLE", f"{tmp_path}/whole.parquet").split())
        assert done.returncode == 2, done.stderr
        assert str(tmp_path / name) in done.stderr + done.stdout


@pytest.mark.usefixtures("_nothing_waits")
@pytest.mark.parametrize("kind", ["pipe", "device", "socket"])
def test_python_refuses_what_is_no_file(kind: str, tmp_path: Path) -> None:
    place = tmp_path / "p.json"
    put(kind, place)
    for read in (suffice.read, suffice.Watch):
        with pytest.raises(SufficeError, match=place.name):
            read(place)
