"""Answer stability: the model repeats its previous answer, exactly or nearly."""

from __future__ import annotations

import difflib
from functools import partial

import numpy as np
import pyarrow as pa

from suffice.contracts import Absence
from suffice.scoring import answer_form, published_normalizer
from suffice.signals.columns.answer_columns import answer_forms, f1_of_pairs, without_articles
from suffice.signals.columns.arrays import NONE, Codes, Texts
from suffice.signals.columns.rounds import RoundColumns, added_nothing, by_appearance
from suffice.signals.known_signals import SignalSpec, share
from suffice.stats import series
from suffice.stats.units import Array, Mask
from suffice.trace.rounds.records import Round

MAX_COMPARED = 1_000  # letters of an answer that are compared letter by letter


def as_published(texts: pa.Array) -> pa.Array:
    """Apply :func:`published_normalizer` to every text, for :meth:`Texts.mapped`."""
    return without_articles(texts, published_normalizer, articles_first=True)


def forms(rounds: RoundColumns) -> Texts:
    return rounds.texts("answer").mapped(answer_forms)


def published_forms(rounds: RoundColumns) -> Texts:
    return rounds.texts("answer").mapped(as_published)


def answer_stable(rounds: RoundColumns) -> Array:
    """Return 1.0 where the answer equals the previous one, else 0.0 (paper 0, Eq. 1; corrected).

    NaN in round 1 and where the round added no new passage, because the answer repeats trivially there.
    """
    return np.where(rounds.once(added_nothing), np.nan, answer_repeats(rounds))


def answer_repeats(rounds: RoundColumns) -> Array:
    """Return 1.0 where the answer equals the previous one, else 0.0, with or without new passages."""
    return _equal_to_previous(rounds, rounds.once(forms))


def answer_stable_published(rounds: RoundColumns) -> Array:
    """Return answer stability as the published code computes it, 0.0 or 1.0 (paper 0; published)."""
    return _equal_to_previous(rounds, rounds.once(published_forms))


def _equal_to_previous(rounds: RoundColumns, answers: Texts) -> Array:
    previous = rounds.before(answers.codes, NONE)
    return np.where(previous == NONE, np.nan, answers.codes == previous)


def vote_share(rounds: RoundColumns) -> Array:
    """Return the share of answers so far that equal this one, in (0, 1] (LearnStop); high: they agree."""
    votes, answered = rounds.once(_votes)
    return (votes / np.maximum(np.cumsum(answered, axis=1), 1))[rounds.traces.exists]


def backtracking(rounds: RoundColumns) -> Array:
    """Count the returns so far to an answer that the loop had left, at least 0; high: unsteady."""
    votes, answered = rounds.once(_votes)
    changed = answer_repeats(rounds) == 0.0
    back = np.zeros(votes.shape, bool)
    back[rounds.traces.exists] = changed
    returns = np.cumsum(back & (votes > 1), axis=1).astype(np.float64)
    return np.where(answered, returns, np.nan)[rounds.traces.exists]


def _votes(rounds: RoundColumns) -> tuple[Array, Mask]:
    """Count the rounds so far with each answer, and mark those with one, (n_questions, n_rounds)."""
    answers = rounds.once(forms)
    given = (answers.codes != NONE) & (answers.codes != answers.code_of(""))
    codes = rounds.traces.dense(np.where(given, answers.codes, np.nan))
    return series.occurrences(codes), ~np.isnan(codes)


def answer_similarity_f1(rounds: RoundColumns) -> Array:
    """Return the token F1 of this answer and the previous one, in [0, 1]; high: they agree."""
    previous, current, pair = rounds.once(_pairs)
    scores = f1_of_pairs(rounds.once(forms).distinct, current, previous)
    return np.append(scores, np.nan)[pair]


def answer_similarity_seq(rounds: RoundColumns) -> Array:
    """Return the share of matching characters of both answers, in [0, 1]; high: they agree."""
    previous, current, pair = rounds.once(_pairs)
    answers = rounds.once(forms)
    empty = answers.code_of("")
    ratios = np.where((current == previous) & (current != empty), 1.0, 0.0)
    rows = np.flatnonzero((current != previous) & (current != empty) & (previous != empty))
    texts = [
        answers.distinct.take(pa.array(codes[rows])).to_pylist() for codes in (previous, current)
    ]
    ratios[rows] = list(map(matching_characters, *texts))
    return np.append(ratios, np.nan)[pair]


def _pairs(rounds: RoundColumns) -> tuple[Codes, Codes, Codes]:
    """Return the distinct pairs of previous and current answer, and the pair of every row."""
    current = rounds.once(forms).codes
    previous = rounds.before(current, NONE)
    defined = (previous != NONE) & (current != NONE) & ~rounds.once(added_nothing)
    rows = np.flatnonzero(defined)
    keys = previous[rows] * (current.max(initial=0) + 1) + current[rows]
    pair, places = by_appearance(keys)
    of_row = np.full(rounds.n_rows, NONE)
    of_row[rows] = pair
    return previous[rows][places], current[rows][places], of_row


def matching_characters(one: str, other: str) -> float:
    """Return ``difflib``'s ratio of two texts, in [0, 1]; it depends on their order.

    It reads the first 1,000 letters of each text, because the time may grow with the cube of the length.
    """
    texts = one[:MAX_COMPARED], other[:MAX_COMPARED]
    return difflib.SequenceMatcher(None, *texts, autojunk=False).ratio()


def no_new_passage(current: Round, earlier: tuple[Round, ...]) -> bool:
    """Say whether the round recorded passages and none of them is new by id."""
    if current.passages is None:
        return False
    seen = {passage.id for round_ in earlier for passage in round_.passages or ()}
    return all(passage.id in seen for passage in current.passages)


_NO_EARLIER = Absence(
    "there is no earlier answer to repeat",
    lambda view: view.previous is None or view.previous.answer is None,
    "record with --rounds 2 or more, or ask for earlier answers: suffice probe",
)
_NOTHING_NEW = Absence(
    "the round added no new passage, so its answer repeats trivially",
    lambda view: no_new_passage(view.current, view.rounds[:-1]),
    "record with --corpus pooled, or use answer_repeats, which is defined there",
)
ANSWER_STABLE = share(
    summary="1 if the answer equals the previous one",
    columns=answer_stable,
    undefined=(_NO_EARLIER, _NOTHING_NEW),
    binary=True,
)
_repeats = partial(share, undefined=(_NO_EARLIER,), binary=True, variant_of="answer_stable")
ANSWER_STABLE_PUBLISHED = _repeats(
    summary="1 if the answer equals the previous one, by the published code's comparison",
    columns=answer_stable_published,
)
ANSWER_REPEATS = _repeats(
    summary="1 if the answer equals the previous one, even without new passages",
    columns=answer_repeats,
)
_EMPTY = Absence(
    "the answer holds no word to compare", lambda view: not answer_form(view.current.answer_text)
)
VOTE_SHARE = share(
    summary="share of the answers so far that equal this one",
    columns=vote_share,
    undefined=(_EMPTY,),
)
BACKTRACKING = SignalSpec(
    summary="how often so far an answer came back that another had replaced",
    low=0.0,
    direction="low",
    columns=backtracking,
    undefined=(_EMPTY,),
)
ANSWER_SIMILARITY_F1 = share(
    summary="similarity of the answer and the previous one, word by word",
    columns=answer_similarity_f1,
    undefined=(_NO_EARLIER, _NOTHING_NEW),
)
ANSWER_SIMILARITY_SEQ = share(
    summary="similarity of the answer and the previous one, letter by letter",
    columns=answer_similarity_seq,
    undefined=(_NO_EARLIER, _NOTHING_NEW),
)
