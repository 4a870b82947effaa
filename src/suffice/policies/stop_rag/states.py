"""States of a loop as the network reads them, and the rewards of stopping."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from types import MappingProxyType

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from suffice.errors import UsageError, counted
from suffice.measures.measures import Measures
from suffice.measures.scores import gold_answers
from suffice.scoring import F1Kind, ScoreName
from suffice.signals.columns.answer_columns import ScoredAnswers
from suffice.signals.columns.arrays import Texts, segment_means
from suffice.signals.columns.rounds import RoundColumns, blocks, only_columns
from suffice.signals.evidence import one_line
from suffice.signals.samples import sample_counts
from suffice.stats.units import Array, Mask
from suffice.trace.rounds.records import LoopView, Passage, passage_text
from suffice.trace.rounds.trace_set import TraceSet, is_veiled

_AT_ONCE = 2_000  # questions whose texts are read together
_RECORD = "record with suffice record --samples 8"


# "f1" is the paper's; "f1-hotpotqa" scores 0 where yes, no or noanswer meets anything else
REWARDS: Mapping[str, tuple[ScoreName, F1Kind]] = MappingProxyType(
    {
        "f1": ("f1", "squad"),
        "f1-hotpotqa": ("f1", "hotpotqa"),
        "em": ("em", "hotpotqa"),
        "acc": ("acc", "hotpotqa"),
    }
)
"""Score and F1 of every reward."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewards:
    """Rewards in [0, 1] of stopping after rounds 1 to ``lengths``, ``values`` (n, T); NaN: unknown."""

    values: Array
    lengths: NDArray[np.int16]
    usable: Mask
    notes: tuple[str, ...]


def read_rewards(questions: TraceSet | Measures, reward: str) -> Rewards:
    measures = Measures.of(questions)
    traces = measures.traces
    source = traces.origin.source
    if not traces.has("samples"):
        raise UsageError(
            f"a reward is the mean score of sampled final answers, and {source} holds no column "
            f"samples; {_RECORD}"
        )
    labelled = measures.labelled
    # NaN where not recorded
    counts, values = measures.derived(sample_counts, _MeanScores(*REWARDS[reward]))
    unsampled = counts == 0
    notes = _notes(traces, labelled, unsampled)
    usable = labelled & ~unsampled.any(axis=1)
    if not usable.any():
        raise UsageError(f"no question of {source} has rewards: {'; '.join(notes)}")
    return Rewards(values=values, lengths=traces.last_rounds, usable=usable, notes=notes)


def answer_rewards(questions: TraceSet | Measures, reward: str) -> Rewards:
    """Return the score of each round's own answer: one draw, where the paper takes the mean of 8."""
    measures = Measures.of(questions)
    traces, own = measures.traces, measures.metric.against == "scores"
    values = measures.score(*REWARDS["f1" if own else reward])
    unscored = np.asarray((traces.exists & np.isnan(values)).any(axis=1))
    said = "the record's own scores" if own else f"the {reward} of each round's own answer"
    mean = "" if own else f"; for the mean over sampled answers {_RECORD}"
    notes = [f"rewards are {said}, one draw a round{mean}"]
    if unscored.any():
        missing = measures.metric.untold if own else "without gold answers"
        notes.append(f"{_of(int(unscored.sum()), traces)} left out: rounds {missing}")
    if unscored.all():
        raise UsageError(f"no question of {traces.origin.source} has rewards: {notes[-1]}")
    return Rewards(values=values, lengths=traces.last_rounds, usable=~unscored, notes=tuple(notes))


@dataclass(frozen=True, slots=True)
class _MeanScores:
    """Mean score of every round's samples, (n_questions, n_rounds); NaN: no label or no samples."""

    score: ScoreName
    kind: F1Kind

    def __call__(self, traces: TraceSet) -> Array:
        means = np.full((traces.n_rounds, traces.n_questions), np.nan).T
        start = 0
        for block in blocks(only_columns(traces, "gold_answers", "samples")):
            rounds, gold = RoundColumns(block), gold_answers(block)
            samples = rounds.lists("samples")
            # a null sample says nothing, as records read it
            said = Texts.of(pc.fill_null(samples.values, ""))
            scored = ScoredAnswers(said, gold, rounds.question[samples.rows])
            scores = scored.score(self.score, self.kind)
            # rounded once whatever the order: equal rounds must tie
            of_rounds = segment_means(np.nan_to_num(scores), samples.offsets)
            of_rounds[~gold.labelled[rounds.question]] = np.nan
            means[start : start + block.n_questions, : block.n_rounds] = block.dense(of_rounds)
            start += block.n_questions
        return means


def _notes(traces: TraceSet, labelled: Mask, unsampled: Mask) -> tuple[str, ...]:
    notes = []
    if not labelled.all():
        notes.append(f"{_of(int((~labelled).sum()), traces)} left out for want of gold answers")
    missing = unsampled & labelled[:, None]
    if missing.any():
        question, number = np.argwhere(missing)[0]
        notes.append(
            f"{_of(int(missing.any(axis=1).sum()), traces)} left out for a round without samples, "
            f"the first {traces.question_ids[question]!r} in round {number + 1}: {_RECORD}"
        )
    return tuple(notes)


def _of(count: int, traces: TraceSet) -> str:
    return f"{count} of {counted(traces.n_questions, 'question')} {'is' if count == 1 else 'are'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class StateTexts:
    """The states of a question: ``documents[t - 1]`` are the new texts of round t.

    A passage counts once, at its first round; a passage without title and text does not count.
    """

    question: str
    documents: tuple[tuple[str, ...], ...]

    def seen(self, number: int) -> tuple[str, ...]:
        """Return the documents of rounds 1 to ``number``, in order."""
        return tuple(text for texts in self.documents[:number] for text in texts)


def texts_of_view(view: LoopView) -> StateTexts:
    """Return the states of a loop up to its last round."""
    rounds = (
        [(passage.id, _text(passage)) for passage in one.passages or ()] for one in view.rounds
    )
    return _states(view.question, rounds)


def texts_of_traces(traces: TraceSet) -> RecordedStates:
    if not traces.has("passages"):
        raise UsageError(
            f"the network reads the passages each round added, and {traces.origin.source} holds no "
            "column passages; record them, or learn from signals alone"
        )
    if is_veiled(traces.origin.run):
        raise UsageError(
            f"the network reads texts, and {traces.origin.source} holds names in their place: learn from its "
            "signals with --features signals, or from the record itself"
        )
    return RecordedStates(traces)


class RecordedStates:
    """The states of recorded questions, read in blocks on every iteration."""

    def __init__(self, traces: TraceSet) -> None:
        self._traces = traces

    def __len__(self) -> int:
        return self._traces.n_questions

    def __iter__(self) -> Iterator[StateTexts]:
        for block in blocks(only_columns(self._traces, "question", "passages"), _AT_ONCE):
            yield from _texts_of(block)


States = Sequence[StateTexts] | RecordedStates


def _texts_of(traces: TraceSet) -> Iterator[StateTexts]:
    recorded = RoundColumns(traces).lists("passages")
    fields = (recorded.field(name).to_pylist() for name in ("id", "title", "text"))
    passages = (
        (name or "", _text(Passage(id=name or "", title=title or "", text=text)))
        for name, title, text in zip(*fields, strict=True)
    )
    rounds = (list(islice(passages, count)) for count in recorded.lengths.tolist())
    questions = traces.first_rounds("question").to_pylist()
    for question, length in zip(questions, traces.last_rounds.tolist(), strict=True):
        yield _states(question, islice(rounds, length))


def _text(passage: Passage) -> str:
    return one_line(passage_text(passage))


def _states(question: str, rounds: Iterable[Sequence[tuple[str, str]]]) -> StateTexts:
    seen: set[str] = set()
    documents = []
    for added in rounds:
        new = []
        for name, text in added:
            if name not in seen and text:
                new.append(text)
            seen.add(name)
        documents.append(tuple(new))
    return StateTexts(question=one_line(question), documents=tuple(documents))
