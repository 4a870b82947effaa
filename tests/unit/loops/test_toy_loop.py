"""A loop of one's own is one module and one line of the registry: recorded and asked, options included."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, ClassVar

import pytest
from tests.commands import forget_commands

from suffice.cli.main import main
from suffice.contracts import Retriever
from suffice.loops import steps
from suffice.loops.calls import NOTHING_ASKED
from suffice.loops.ranked import GrowingLoop
from suffice.loops.steps import EVERYTHING, LoopSettings, RoundReads, Step, retrieved, timed
from suffice.options import Option
from suffice.trace.rounds.reader import read_traces
from suffice.trace.rounds.records import Question, Round


# --- the module --------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True, kw_only=True)
class ShoutSettings(LoopSettings):
    """How rounds are made: round t asks for the question with t exclamation marks."""

    pipeline: ClassVar[str] = "shout"
    summary: ClassVar[str] = "the question, louder every round"

    rounds: int = 2
    loudness: Annotated[int, Option(help="marks more a round", metavar="N", at_least=1)] = 1

    def shown(self, number: int) -> int:
        """One passage a round."""
        return number


class ShoutPipeline(GrowingLoop):
    """Sends the question with more marks each round."""

    settings_type = ShoutSettings

    def steps(
        self, question: Question, retriever: Retriever, reads: RoundReads = EVERYTHING
    ) -> Iterator[Step]:
        """Rounds as they are come to."""
        before: tuple[Round, ...] = ()
        for number in range(1, self.settings.rounds + 1):
            query = question.text + "!" * (number * self.settings.loudness)  # type: ignore[attr-defined]
            ranked = retriever.retrieve(query, number)
            added = tuple(ranked[number - 1 : number])
            found = Round(answer=None, passages=added, usage=NOTHING_ASKED)
            found = timed(retrieved(found, query, ranked), 0.0)
            prompt = partial(self.evidence_prompt, question, ranked[:number])
            yield Step(
                loop=self, question=question, found=found, before=before, prompt=prompt, reads=reads
            )
            before = (*before, found)


# --- the line ----------------------------------------------------------------------------------------
@pytest.fixture(autouse=True)
def line(monkeypatch: pytest.MonkeyPatch) -> None:
    forget_commands(monkeypatch)
    monkeypatch.setitem(steps._PIPELINES, "shout", f"{__name__}:ShoutPipeline")


RECORD = [
    "record",
    "--dataset",
    "generated",
    "--limit",
    "4",
    "--llm",
    "scripted",
    "--encoder",
    "none",
]


def test_it_is_recorded_with_its_own_option(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "t"
    assert main([*RECORD, "--out", str(out), "--pipeline", "shout", "--loudness", "2"]) == 0
    assert "4 questions x 2 rounds x 1" in capsys.readouterr().err
    traces = read_traces(out)
    assert {name: traces.origin.run[name] for name in ("pipeline", "loudness", "rounds")} == {
        "pipeline": "shout",
        "loudness": 2,
        "rounds": 2,
    }
    record = next(iter(traces.records()))
    assert [finished.query for finished in record.rounds] == [
        f"{record.question.text}!!",
        f"{record.question.text}!!!!",
    ]
    assert main(["replay", str(out), "--policy", "fixed-2", "--bootstrap", "10", "--json"]) == 0


def test_its_option_is_refused_elsewhere(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*RECORD, "--out", str(tmp_path / "t"), "--loudness", "2"]) == 2
    assert "--loudness" in capsys.readouterr().err


def test_it_is_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.txt").write_text(
        "Oslo is the capital of Norway.\n\nRome is the capital of Italy."
    )
    command = ["ask", "Where is Oslo?", "--corpus", str(tmp_path), "--llm", "scripted"]
    options = ["--pipeline", "shout", "--loudness", "3", "--policy", "fixed-2", "--json"]
    assert main([*command, *options]) == 0
    assert json.loads(capsys.readouterr().out)["rounds"] == 2
