"""Answers and looks in the loop's conversation on llama.cpp's server: what its prefix cache leaves to do."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.loops.query import Scripted, found

from suffice.llm.embedded import EmbeddedModel, EmbeddedSettings
from suffice.loops import make_pipeline
from suffice.loops.react import ReactSettings
from suffice.trace.rounds.records import Passage, Question, Round

QUESTION = Question(id="q", text="Who founded the observatory of Hanno?")


class Anything(Scripted):
    def retrieve(self, query: str, k: int) -> list[Passage]:
        self.asked.append((query, k))
        return found(*(f"passage {number}" for number in range(len(self.asked), 0, -1)))


@pytest.fixture(scope="module")
def model() -> Iterator[EmbeddedModel]:
    with EmbeddedModel.load(settings=EmbeddedSettings(replicas=1)) as loaded:
        yield loaded


def evaluated(made: Round, part: str) -> int:
    prompt, cached = (getattr(made.usage, f"{part}_{kind}_tokens") for kind in ("prompt", "cached"))
    assert prompt is not None
    assert cached is not None
    return int(prompt - cached)


@pytest.mark.slow
def test_the_server_reads_only_the_turn_that_is_asked(model: EmbeddedModel) -> None:
    looks = ("sufficient_prob", "gain_prob")
    spent = {}
    for prompt in ("in-loop", "bare"):
        settings = ReactSettings(rounds=3, step=1, prompt=prompt, looks=looks)
        rounds = list(make_pipeline(model, settings).rounds(QUESTION, Anything({})))
        spent[prompt] = sum(evaluated(made, "answer") for made in rounds)
        for made in rounds[1:]:  # the first round has nothing to share
            assert evaluated(made, "look") <= 40 * len(looks)
            if prompt == "in-loop":
                assert evaluated(made, "answer") <= 100
            assert all(0.0 <= made.signals[look] <= 1.0 for look in looks)
    assert spent["in-loop"] < spent["bare"] / 2
