"""The published rule AS_m25 by plain loops and scikit-learn, on a real model's rounds."""

from __future__ import annotations

import re
import string
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from suffice.evaluation.replay.runner import stop_rounds
from suffice.policies.registry import fit_method
from suffice.trace.rounds.reader import read_traces


def official(text: str) -> str:
    text = "".join(char for char in text.lower() if char not in set(string.punctuation))
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", text).split())


def articles_first(text: str) -> str:
    text = re.sub(r"\b(a|an|the)\b", " ", text.lower())
    return " ".join("".join(char for char in text if char not in set(string.punctuation)).split())


def margin(tokens: list[dict[str, Any]] | None) -> float | None:
    """Top-1 minus top-2 at the first token with something visible after ``Answer:``."""
    text = ""
    for token in tokens or []:
        before = len(text)
        text += token["token"]
        at = text.find("Answer:")
        if at < 0:
            continue
        visible = text[max(before, at + len("Answer:")) :]
        if "\n" in visible[: len(visible) - len(visible.lstrip())]:
            return None
        if visible.strip():
            top = sorted((each["logprob"] for each in token["top"]), reverse=True)
            return top[0] - top[1] if len(top) > 1 else None
    return None


def load(trace: Path) -> dict[str, list[dict[str, Any]]]:
    questions: dict[str, list[dict[str, Any]]] = {}
    for row in pq.read_table(trace).to_pylist():
        questions.setdefault(row["question_id"], []).append(row)
    for rows in questions.values():
        rows.sort(key=lambda row: row["round"])
        for row in rows:
            row["em"] = float(
                any(official(g) == official(row["answer"]) for g in row["gold_answers"])
            )
            row["margin"] = margin(row["tokens"])
    return dict(sorted(questions.items()))


def gates(tune: list[list[dict[str, Any]]]) -> list[Any]:
    """For each round a function from a margin to P(EM = 1), with the published fallbacks."""
    isotonic = pytest.importorskip("sklearn.isotonic")
    found = []
    for t in range(5):
        rows = [question[t] for question in tune if len(question) > t]
        usable = [row for row in rows if row["margin"] is not None]
        if len(usable) < 5 or len({row["margin"] for row in usable}) < 2:
            mean = sum(row["em"] for row in rows) / len(rows)
            found.append(lambda _, mean=mean: mean)
            continue
        model = isotonic.IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip")
        model.fit([row["margin"] for row in usable], [row["em"] for row in usable])
        found.append(
            lambda value, model=model: 0.5 if value is None else float(model.predict([value])[0])
        )
    return found


def test_the_published_rule_stops_where_a_plain_loop_stops(qwen_traces: Path) -> None:
    questions = load(qwen_traces)
    gate = gates([rows for rows in questions.values() if rows[0]["split"] == "tune"])
    expected, nearest = [], 1.0
    for rows in questions.values():
        stop = len(rows)
        for t in range(1, len(rows)):
            chance = gate[t](rows[t]["margin"])
            nearest = min(nearest, abs(chance - 0.25))
            same = articles_first(rows[t]["answer"]) == articles_first(rows[t - 1]["answer"])
            if same and chance > 0.25:
                stop = t + 1
                break
        expected.append(stop)
    assert nearest > 1e-9  # no decision hangs on rounding
    traces = read_traces(qwen_traces)
    policy = fit_method("tasr", traces, "published", "tune")
    found = stop_rounds(policy, traces)
    assert traces.question_ids == tuple(questions)
    np.testing.assert_array_equal(found, expected)
    assert len(set(expected)) > 2
