from __future__ import annotations

import re
from dataclasses import replace

import pytest

from suffice.contracts import Completion, GenerationRequest
from suffice.errors import BackendError, UsageError
from suffice.testing.models import Failures, ScriptedModel

EXAMPLE = (
    "Evidence:\n[Lake Osmer] It is in Caldra.\nQuestion: Where is it?\n"
    "Answer: Caldra\nConfidence: 5\n\n"
)
PASSAGES = [
    f"[{name}] {name} was founded by {founder} in the city of {city}."
    for name, founder, city in [
        ("Brill Works", "Ada Thorn", "Lund"),
        ("Carrow House", "Ben Ashby", "Porto"),
        ("Delmar Mill", "Cora Finch", "Turku"),
        ("Eastgate Hall", "Dov Stern", "Gent"),
        ("Fennel Bank", "Elsa Brandt", "Ghent North"),
    ]
]


def prompt(rounds: int, question: str = "Who founded it?", end: str = "") -> str:
    evidence = "\n".join(PASSAGES[:rounds])
    return f"{EXAMPLE}Evidence:\n{evidence}\nQuestion: {question}\n{end}"


def ask(model: ScriptedModel, text: str, **options: object) -> tuple[Completion, ...]:
    request = replace(GenerationRequest(prompt=text), **options)  # type: ignore[arg-type]
    return model.generate(request).completions


def test_made_up_replies_parse_and_come_from_the_evidence() -> None:
    text = ask(ScriptedModel(), prompt(3))[0].text
    match = re.fullmatch(r"Answer: (.+)\nConfidence: [1-5]", text)
    assert match is not None
    assert match[1] in "\n".join(PASSAGES[:3])
    assert match[1] != "Caldra"


def test_samples_vary_by_index_and_seed_and_repeat() -> None:
    model = ScriptedModel()
    drawn = ask(model, prompt(5), n=20, temperature=0.8, seed=1)
    assert len({completion.text for completion in drawn}) > 3
    assert ask(model, prompt(5), n=20, temperature=0.8, seed=1) == drawn
    shifted = ask(model, prompt(5), n=17, temperature=0.8, seed=4, top_logprobs=5)
    assert shifted == ask(model, prompt(5), n=20, temperature=0.8, seed=1, top_logprobs=5)[3:]
    assert len({completion.text for completion in ask(model, prompt(5), n=5)}) == 1


def test_stop_and_max_tokens_cut() -> None:
    model = ScriptedModel(["one two three\nfour"] * 3)
    assert ask(model, "x", stop=("\n",)) == (
        Completion(text="one two three", finish_reason="stop"),
    )
    assert ask(model, "x", max_tokens=2) == (Completion(text="one two", finish_reason="length"),)
    assert ask(model, "x", max_tokens=4)[0].finish_reason == "stop"


def test_replies_by_sequence_mapping_and_function() -> None:
    sequence = ScriptedModel(["a", "b", "c"])
    assert [c.text for c in ask(sequence, "x", n=2)] == ["a", "b"]
    assert ask(sequence, "x")[0].text == "c"
    with pytest.raises(UsageError, match="all 3 scripted replies"):
        ask(sequence, "x")
    mapping = ScriptedModel({"cat": "short", "cats": "long"})
    assert ask(mapping, "two cats")[0].text == "long"
    with pytest.raises(UsageError, match="no scripted reply"):
        ask(mapping, "dog")
    function = ScriptedModel(lambda request, index: f"{request.seed}-{index}")
    assert [c.text for c in ask(function, "x", n=2, seed=7)] == ["7-0", "7-1"]


def test_failures_are_injected_and_requests_counted() -> None:
    model = ScriptedModel(failures=Failures(first=1, containing=("bad",), times=2))
    for text, fails in [("x", 1), ("x", 0), ("bad", 1), ("bad", 1), ("bad", 0)]:
        if fails:
            with pytest.raises(BackendError, match="scripted failure"):
                ask(model, text)
        else:
            ask(model, text)
    assert [request.prompt for request in model.requests] == ["x", "x", "bad", "bad", "bad"]
