"""Pages as a reader types them: each block in turn, in a folder that holds what the reader has."""

from __future__ import annotations

import gzip
import json
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from cyclopts import CycloptsError, MissingArgumentError
from tests.commands import run
from tests.tiny_encoder import save_scorer, vocabulary

import suffice
from suffice.cli.main import build_app
from suffice.signals.stored_signals import with_values
from suffice.testing.traces import random_records
from suffice.trace.rounds.writer import write_trace_set, write_traces
from suffice.trace.stored_file import EXAMPLE

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "examples").rglob("*.md")),
]
_BLOCK = re.compile(
    r"(?:^<!-- not run: (?P<why>.+?) -->\n+)?^```(?P<language>\w*)[^\n]*\n(?P<text>.*?)^```",
    re.MULTILINE | re.DOTALL,
)
_NAMED = re.compile(r"^# ([\w/.]+\.\w+)\b")


@dataclass(frozen=True)
class Block:
    language: str
    text: str
    why_not: str = ""

    @property
    def file(self) -> str:
        """The file that a reader writes it to: its first line says ``# NAME.py``."""
        named = _NAMED.match(self.text)
        return named[1] if named else ""

    @property
    def lines(self) -> list[str]:
        """Commands, each in one line, without comments behind them."""
        whole = self.text.replace("\\\n", " ")
        return [" ".join(line.split()) for line in whole.splitlines() if not line.startswith("#")]


def inline(page: Path) -> list[str]:
    """Commands within sentences."""
    return re.findall(
        r"(?<!`)`(suffice [^`\n-][^`\n]*)`(?!`)", _BLOCK.sub("", page.read_text("utf-8"))
    )


def blocks(page: Path) -> Iterator[Block]:
    for found in _BLOCK.finditer(page.read_text(encoding="utf-8")):
        yield Block(found["language"], found["text"], found["why"] or "")


def under_headings(page: Path) -> Iterator[tuple[str, Block]]:
    """Blocks with the heading above them."""
    for part in re.split(r"^## ", page.read_text("utf-8"), flags=re.MULTILINE)[1:]:
        heading, _, text = part.partition("\n")
        for found in _BLOCK.finditer(text):
            yield heading, Block(found["language"], found["text"], found["why"] or "")


# --- what a reader has ---------------------------------------------------------------------------
_OWN_SIGNALS = ("error", "gain_prob", "p_true", "sufficient_prob")
_HOTPOT = {
    "question": "Who wrote it?",
    "answer": "Ama",
    "type": "bridge",
    "supporting_facts": [["B", 0]],
    "context": [["A", ["One.", " Two."]], ["B", ["Ama wrote three."]]],
}
_MUSIQUE = {
    "question": "Who?",
    "question_decomposition": [{}, {}],
    "answer": "Hall",
    "answer_aliases": [],
    "answerable": True,
    "paragraphs": [
        {"idx": 0, "title": "A", "paragraph_text": "One.", "is_supporting": False},
        {"idx": 1, "title": "B", "paragraph_text": "Hall.", "is_supporting": True},
    ],
}


def lay_out(folder: Path) -> None:
    """Records, notes, questions and policies under the names that the pages give them."""
    folder.mkdir()
    write_records(folder)
    write_questions(folder)
    suffice.save_policy(suffice.Rule("answer_repeats"), folder / "policy.json", max_rounds=5)
    watch_questions(folder, "live.db", mode="live", explore=0.2)
    watch_questions(folder, "shadow.db", mode="shadow")
    save_scorer(folder / "RERANKER", vocabulary(), num_labels=1)
    for page in ("serving.md", "retrieval.md"):  # of which other pages speak
        for block in blocks(ROOT / "docs" / page):
            if block.file:
                (folder / block.file).write_text(block.text)


def write_records(folder: Path) -> None:
    """The generated questions, with signals that a page's loop would have given."""
    source = ROOT / "examples" / "traces" / "generated.parquet"
    traces = suffice.read(source)
    random = np.random.default_rng(0)
    own = {name: random.random(traces.exists.shape) for name in _OWN_SIGNALS}
    for name in ("traces", "labeled", "mine", "with-note", "monday", "tuesday"):
        (folder / name).mkdir()
        write_trace_set(with_values(traces, own), folder / name / "1.parquet")
    write_traces(random_records(20), folder / "tuesday" / "1.parquet", run={"dataset": "own"})
    for name in ("old.parquet", "new.parquet"):
        shutil.copy(EXAMPLE, folder / name)
    ids = traces.question_ids
    for name, column, cell in (("labels", "score", "1"), ("languages", "question_type", "de")):
        rows = "".join(f"{one},{cell}\n" for one in ids)
        (folder / f"{name}.csv").write_text(f"question_id,{column}\n{rows}")


def write_questions(folder: Path) -> None:
    hotpot = json.dumps([_HOTPOT | {"_id": f"q{n}", "level": "hard"} for n in range(4)]).encode()
    musique = "\n".join(json.dumps(_MUSIQUE | {"id": f"2hop__{n}"}) for n in range(4)).encode()
    for name in ("hotpotqa.json.gz", "hotpotqa_500.json.gz"):
        (folder / name).write_bytes(gzip.compress(hotpot))
    (folder / "dev.json").write_bytes(hotpot)
    (folder / "musique.jsonl.gz").write_bytes(gzip.compress(musique))
    said = "Where was Ibsen born?,Skien"
    lines = [f"q{n},{said},{n},{said}\n" for n in range(4)]
    (folder / "questions.csv").write_text("".join(["id,question,answers,nr,asked,right\n", *lines]))
    rows = [{"id": f"q{n}", "question": "Where?", "answers": ["Skien"]} for n in range(4)]
    (folder / "questions.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (folder / "notes").mkdir()
    (folder / "notes" / "ibsen.md").write_text("# Ibsen\n\nHenrik Ibsen was born in Skien.\n")
    (folder / "notes" / "mill.md").write_text("# The mill\n\nAda Thorn built the mill.\n")


def watch_questions(folder: Path, store: str, **how: Any) -> None:
    ids = suffice.read(folder / "traces").question_ids
    policy = folder / "policy.json"
    with suffice.Watch(policy, record=folder / store, max_rounds=5, **how) as watch:
        for name, record in zip(ids, random_records(len(ids)), strict=True):
            gold = list(record.gold.answers)
            with watch.question(record.question.text, question_id=name, gold_answers=gold) as loop:
                for held in [*record.rounds, *record.rounds][:5]:
                    if not loop.done:
                        loop.observe(answer=held.answer, passages=held.passages)


# --- what is typed -------------------------------------------------------------------------------
_INSTEAD = (
    (r"--llm (http\S+|URL)( --model \S+)?", "--llm scripted"),  # no test has a model on a server
    (r"\b(TRACES|FOREIGN)\b", "traces"),
    (r"^suffice COMMAND\b", "suffice replay"),
    (r"^suffice fit NAME\b", "suffice fit tasr"),
    (r"\bpath/to/cross-encoder\b", "RERANKER"),
    (r"https://hooks\.example\.org", "http://127.0.0.1:9"),
    (r"^suffice traces split traces/ (?!--replace)", "suffice traces split traces/ --replace "),
    (r"--dataset hotpotqa --labelled", "--dataset generated --labelled"),
    (r" --follow\b", ""),  # which never ends
)
_ENDLESS = {"serve": "--check", "view": "--bundle"}
_QUICK = {
    **dict.fromkeys(("choose", "replay", "report", "search", "compare-loops"), "--bootstrap 10"),
    "fit stop-rag": "--min-steps 5",
}


def typed(line: str) -> list[str]:
    """The words of a command, with stand-ins for what only a reader has and quick settings."""
    for found, instead in _INSTEAD:
        line = re.sub(found, instead, line)
    words = shlex.split(line, comments=True)[1:]
    name, ends = words[0], _ENDLESS.get(words[0])
    if name in ("ask", "probe", "record", "serve") and "--llm" not in words:
        words += ["--llm", "scripted"]
    if ends is not None and ends not in words:
        words += [ends] + ["bundled"] * (name == "view")
    option = {"view": "--bundle", "record": "--out", "traces": "--out"}.get(name)
    if option in words:
        place = words.index(option) + 1  # a reader has no such folder yet
        while Path(words[place]).exists():
            words[place] = f"new-{words[place]}"
    if name == "record" and "--limit" not in words:
        words += ["--limit", "4"]
    return [*words, *_QUICK.get(name, _QUICK.get(" ".join(words[:2]), "")).split()]


def follow(page: Path, made: Callable[[Path], None]) -> None:
    """Run every block of a page here, in its order; ``made`` is told of a folder with packages.

    An assertion names what failed. A block that is not run is still parsed.
    """
    names: dict[str, object] = {}
    written = [block for block in blocks(page) if block.file]
    for block in written:
        Path(block.file).parent.mkdir(parents=True, exist_ok=True)
        Path(block.file).write_text(block.text, encoding="utf-8")
    for block in blocks(page):
        if block.language == "toml":
            tomllib.loads(block.text)
        elif block.language in ("python", "py"):
            code = compile(block.text, str(page), "exec")
            if not block.why_not and block not in written:
                # where a browser was opened this thread has a running event loop
                with ThreadPoolExecutor(1) as pool:
                    pool.submit(exec, code, names).result()
        elif block.language in ("sh", "bash"):
            for line in filter(None, block.lines):
                follow_line(line, made, runs=not block.why_not)


def follow_line(line: str, made: Callable[[Path], None], *, runs: bool) -> None:
    program, _, rest = line.partition(" ")
    if not runs:
        if program == "suffice" and "$" not in line:
            assert parse(typed(line)) == "", line
    elif program == "suffice":
        done = run(*typed(line))
        decides = done.returncode == 1 and " --against " in line  # and may say no
        assert done.returncode == 0 or decides, (line, done.stderr[-2000:])
    elif program == "make":
        assert f"\n{rest.split()[0]}:" in (ROOT / "Makefile").read_text(), line
    elif program == "pip":
        install(shlex.split(rest, comments=True)[-1], made)
    else:
        assert program in ("echo", "touch"), (
            f"nobody runs {line!r}; write <!-- not run: WHY --> before it"
        )
        subprocess.run(line, shell=True, check=True)


def parse(words: Sequence[str]) -> str:
    """What is wrong with a command's options; empty: nothing, or arguments are missing."""
    try:
        build_app(words[0]).parse_args(words, exit_on_error=False, print_error=False)
    except MissingArgumentError:
        pass
    except CycloptsError as error:
        return str(error)
    return ""


def install(what: str, made: Callable[[Path], None]) -> None:
    """Of this package an extra that it has; of a folder its wheel."""
    named, _, extra = what.partition("[")
    if named == "suffice":
        assert not extra or extra.rstrip("]") in extras()
        return
    place = Path("site-packages").absolute()
    options = ("--no-deps", "--no-index", "--no-build-isolation", "--quiet", "--target", str(place))
    subprocess.run([sys.executable, "-m", "pip", "install", *options, what], check=True)
    made(place)


@cache
def extras() -> frozenset[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return frozenset(project["optional-dependencies"])
