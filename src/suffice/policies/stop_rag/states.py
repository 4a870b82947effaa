"""What the network sees of a loop, and what stopping earns after each round of it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from suffice.errors import UsageError
from suffice.protocols import Score
from suffice.scoring import accuracy, exact_match, f1_score
from suffice.signals.evidence import one_line
from suffice.signals.samples import sample_counts
from suffice.trace.rounds.records import LoopView, Passage
from suffice.trace.rounds.tokens import passage_text

if TYPE_CHECKING:
    from suffice.trace.rounds.table import TraceSet


_RECORD = "record with suffice record --samples 8"


def _squad_f1(prediction: str, gold_answers: Iterable[str]) -> float:
    return f1_score(prediction, gold_answers, "squad")


def _hotpotqa_f1(prediction: str, gold_answers: Iterable[str]) -> float:
    return f1_score(prediction, gold_answers, "hotpotqa")


# "f1" is the paper's; "f1-hotpotqa" scores 0 where yes, no or noanswer meets anything else
REWARDS: Mapping[str, Score] = MappingProxyType(
    {"f1": _squad_f1, "f1-hotpotqa": _hotpotqa_f1, "em": exact_match, "acc": accuracy}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewards:
    """Rewards of recorded questions.

    Parameters
    ----------
    values
        (n, T) in [0, 1]: column t - 1 is r(s_t, STOP). NaN: unlabelled, not recorded, not sampled.
    lengths
        (n,), the last recorded round of each question.
    usable
        (n,), labelled and sampled in every recorded round: every reward is defined.
    notes
        How many questions are not usable and why, in sentences.
    """

    values: NDArray[np.float64]
    lengths: NDArray[np.int16]
    usable: NDArray[np.bool_]
    notes: tuple[str, ...]


def read_rewards(traces: TraceSet, score: Score) -> Rewards:
    """The rewards of stopping, by any score of an answer against gold answers.

    Rounds with the same scores in another order have the same reward, to the bit. A sample that
    occurs again for a question is scored once.

    Parameters
    ----------
    score
        In [0, 1]; those of :data:`REWARDS`, or any other.

    Raises
    ------
    UsageError
        When there are no samples, no question is usable, or the score leaves [0, 1].

    Notes
    -----
    Paper 1, equations 13 and 14, as published; the paper's score is ``REWARDS["f1"]`` and it draws 8
    samples a round.
    """
    source = traces.origin.source
    if not traces.has("samples"):
        raise UsageError(
            f"a reward is the mean score of sampled final answers, and {source} holds no column "
            f"samples; {_RECORD}"
        )
    labelled = np.array([bool(gold.answers) for gold in traces.gold], bool)
    counts = sample_counts(traces)  # NaN where not recorded
    unsampled = counts == 0
    notes = _notes(traces, labelled, unsampled)
    usable = labelled & ~unsampled.any(axis=1)
    if not usable.any():
        raise UsageError(f"no question of {source} has rewards: {'; '.join(notes)}")
    return Rewards(
        values=_mean_scores(traces, score, labelled, counts),
        lengths=traces.last_rounds,
        usable=usable,
        notes=notes,
    )


def _mean_scores(
    traces: TraceSet, score: Score, labelled: NDArray[np.bool_], counts: NDArray[np.float64]
) -> NDArray[np.float64]:
    """(n_questions, n_rounds), NaN where there is nothing to score."""
    drawn = counts[traces.exists].astype(np.int64)  # rows are questions in order, then rounds
    kept = labelled[np.nonzero(traces.exists)[0]]
    scores = _sample_scores(traces, score, np.repeat(kept, drawn), drawn).tolist()
    means, end = np.full(len(drawn), np.nan), 0
    for row in np.flatnonzero(kept & (drawn > 0)).tolist():
        start, end = end, end + int(drawn[row])
        # exact whatever the order: equal rounds must tie
        means[row] = math.fsum(scores[start:end]) / (end - start)
    return traces.dense(means)


def _sample_scores(
    traces: TraceSet, score: Score, chosen: NDArray[np.bool_], drawn: NDArray[np.int64]
) -> NDArray[np.float64]:
    """The score of every chosen sample, in the order of rows, (n_chosen,)."""
    question_of, round_of = np.nonzero(traces.exists)
    row = np.repeat(np.arange(len(drawn)), drawn)[chosen]
    words = traces.table.column("samples").combine_chunks().flatten().dictionary_encode()
    # a null sample says nothing, as records read it
    texts = [*(text or "" for text in words.dictionary.to_pylist()), ""]
    code = words.indices.fill_null(len(texts) - 1).to_numpy().astype(np.int64)[chosen]
    asked = question_of[row]
    _, firsts, which = np.unique(asked * len(texts) + code, return_index=True, return_inverse=True)
    accepted = [gold.answers for gold in traces.gold]
    scores = np.array(
        [score(texts[code[first]], accepted[asked[first]]) for first in firsts.tolist()], np.float64
    )
    outside = ~((scores >= 0.0) & (scores <= 1.0))
    if outside.any():
        first = int(firsts[outside].min())
        raise UsageError(
            f"score {_name(score)} gave {float(scores[which[first]])!r} for a sample of question "
            f"{traces.question_ids[asked[first]]!r}, round {round_of[row[first]] + 1}; a reward "
            "needs a score from 0 to 1"
        )
    return np.asarray(scores[which])


def _name(score: Score) -> str:
    known = [name for name, score_of in REWARDS.items() if score_of is score]
    return known[0] if known else getattr(score, "__name__", type(score).__name__)


def _notes(
    traces: TraceSet, labelled: NDArray[np.bool_], unsampled: NDArray[np.bool_]
) -> tuple[str, ...]:
    """Who is left out; a question without gold answers is not counted again for its samples."""
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
    return f"{count} of {traces.n_questions} questions {'is' if count == 1 else 'are'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class StateTexts:
    """The states of one question: ``documents[t - 1]`` are the texts round t added.

    A passage counts once, where it was first added; one without title and text is left out, since
    there is nothing to read.
    """

    question: str
    documents: tuple[tuple[str, ...], ...]

    @property
    def n_rounds(self) -> int:
        """How many rounds, and so states."""
        return len(self.documents)

    def seen(self, number: int) -> tuple[str, ...]:
        """The documents of rounds 1 to ``number``, in order."""
        return tuple(text for texts in self.documents[:number] for text in texts)


def texts_of_view(view: LoopView) -> StateTexts:
    """The states of a loop so far; the last one is to be decided.

    >>> from suffice.trace.rounds.records import Round
    >>> rounds = (Round(answer="", passages=(Passage(id="1", title="Oslo", text="A city."),)),)
    >>> texts_of_view(LoopView("Where?", rounds))
    StateTexts(question='Where?', documents=(('Oslo A city.',),))
    """
    rounds = (
        [(passage.id, _text(passage)) for passage in one.passages or ()] for one in view.rounds
    )
    return _states(view.question, rounds)


def texts_of_traces(traces: TraceSet) -> tuple[StateTexts, ...]:
    """The same for every recorded question, read by column.

    Raises
    ------
    UsageError
        When no passage is recorded at all.
    """
    if not traces.has("passages"):
        raise UsageError(
            f"the network reads the passages each round added, and {traces.origin.source} holds no "
            "column passages; record them, or learn from signals alone"
        )
    column = traces.table.column("passages").combine_chunks()
    counts = column.value_lengths().fill_null(0).to_pylist()
    inner = column.flatten()
    fields = (inner.field(name).to_pylist() for name in ("id", "title", "text"))
    passages = iter(
        [
            (name or "", _text(Passage(id=name or "", title=title or "", text=text)))
            for name, title, text in zip(*fields, strict=True)
        ]
    )
    rounds = iter([[next(passages) for _ in range(count)] for count in counts])
    return tuple(
        _states(question.text, [next(rounds) for _ in range(length)])
        for question, length in zip(traces.questions, traces.last_rounds.tolist(), strict=True)
    )


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
