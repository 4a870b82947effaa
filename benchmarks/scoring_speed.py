"""Scoring a million answers by columns, beside Arrow's own normalising of them and one answer at a time.

A share of the answers differs from that of the round before; answers are gold ones, answers that many
questions share, or answers of their own, of three words on average that are drawn as those of a language are;
a fifth of the questions have a second gold answer.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.timing import best_cpu_seconds
from suffice.scoring import accuracy, exact_match, f1_score, normalize_answer
from suffice.signals.columns.answers import GoldAnswers, ScoredAnswers
from suffice.signals.columns.texts import Texts

QUESTIONS, ROUNDS = 200_000, 5
SLOW_ROWS = 50_000  # scored one at a time, which grows with their number
_BLANKS = "\t\n\v\f\r\x1c\x1d\x1e\x1f "


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """Answers of rounds, row by row, and the gold answers of questions."""

    answers: pa.Array
    gold: pa.Array
    question: np.ndarray[tuple[int], np.dtype[np.int64]]


def make(questions: int, *, changing: float, seed: int = 0) -> Answered:
    """Answers of which a share ``changing`` differs from the round before."""
    rng = np.random.default_rng(seed)
    gold, others = _texts(rng, questions, 2.3), _texts(rng, questions, 2.3)
    own, shared = _texts(rng, questions * ROUNDS, 3.0), _texts(rng, 2_000, 1.5)
    size = questions, ROUNDS
    answers = np.where(rng.random(size) < 0.2, rng.choice(shared, size), own.reshape(size))
    answers = np.where(rng.random(size) < 0.35, gold[:, None], answers)
    stays = rng.random(size) >= changing
    for number in range(1, ROUNDS):
        answers[:, number] = np.where(stays[:, number], answers[:, number - 1], answers[:, number])
    second = rng.random(questions) < 0.2
    accepted = [
        [one, other] if both else [one]
        for one, other, both in zip(gold, others, second, strict=True)
    ]
    question = np.repeat(np.arange(questions), ROUNDS)
    return Answered(answers=pa.array(answers.ravel()), gold=pa.array(accepted), question=question)


def _texts(rng: np.random.Generator, count: int, mean: float) -> np.ndarray[tuple[int], np.dtype]:
    words = ["the", "of", "in", "and", "a", "an", "New", "York", "U.S.", "1990", "yes", "no"]
    words += [f"w{number:x}" for number in range(20_000)]
    chance = 1.0 / np.arange(5, len(words) + 5)
    lengths = 1 + rng.poisson(mean - 1.0, count)
    drawn = rng.choice(np.array(words, object), int(lengths.sum()), p=chance / chance.sum())
    ends = np.cumsum(lengths)
    made = [
        " ".join(drawn[end - length : end]).capitalize() + ("." if end % 7 == 0 else "")
        for end, length in zip(ends.tolist(), lengths.tolist(), strict=True)
    ]
    return np.array(made, object)


def by_columns(made: Answered) -> list[np.ndarray[tuple[int], np.dtype[np.float64]]]:
    """EM, F1 and Acc of every answer."""
    scored = ScoredAnswers(Texts.of(made.answers), GoldAnswers.of(made.gold), made.question)
    return [scored.score("em"), scored.score("f1"), scored.score("acc")]


def normalised(texts: pa.Array) -> pa.Array:
    """Normal forms of ASCII texts by Arrow's own functions."""
    texts = pc.replace_substring_regex(pc.ascii_lower(texts), r"[!-/:-@\[-`{-~]", "")
    texts = pc.replace_substring_regex(texts, r"\b(?:a|an|the)\b", " ")
    texts = pc.replace_substring_regex(texts, r"[\x09-\x0d\x1c-\x20]+", " ")
    return pc.ascii_trim(texts, characters=_BLANKS)


def one_by_one(made: Answered, rows: int) -> list[list[float]]:
    """The same of the first rows, by the functions of one answer."""
    normalize_answer.cache_clear()
    answers, gold = made.answers.slice(0, rows).to_pylist(), made.gold.to_pylist()
    pairs = list(zip(answers, made.question[:rows].tolist(), strict=True))
    return [
        [score(answer, gold[question]) for answer, question in pairs]
        for score in (exact_match, f1_score, accuracy)
    ]


def main() -> dict[str, float]:
    figures: dict[str, float] = {}
    for changing in (0.35, 0.8):
        figures |= _figures(make(QUESTIONS, changing=changing))
    return figures


def _figures(made: Answered) -> dict[str, float]:
    for ours, theirs in zip(by_columns(made), one_by_one(made, SLOW_ROWS), strict=True):
        assert ours[:SLOW_ROWS].tobytes() == np.array(theirs).tobytes()

    def distinct() -> None:
        for texts in (made.answers, made.gold.flatten()):
            normalised(texts.dictionary_encode().dictionary)

    seconds = best_cpu_seconds(lambda: by_columns(made), repeats=5)
    of_all = best_cpu_seconds(lambda: normalised(made.answers), repeats=3)
    of_distinct = best_cpu_seconds(distinct, repeats=5)
    slow = best_cpu_seconds(lambda: one_by_one(made, SLOW_ROWS), repeats=1)
    share = f"{pc.count_distinct(made.answers).as_py() / len(made.answers):.0%} distinct"
    return {
        f"scoring 1,000,000 answers, {share}, over Arrow's normalising of them": seconds / of_all,
        f"the same over Arrow's normalising of distinct answers and gold answers, {share}": seconds
        / of_distinct,
        f"one answer at a time over ours, {share}": slow * len(made.answers) / SLOW_ROWS / seconds,
        f"seconds by columns, {share}": seconds,
    }
