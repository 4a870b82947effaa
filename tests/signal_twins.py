"""Every computed signal by a single round, slow and obvious: what the definitions by columns are held to."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from suffice.scoring import answer_form, normalize_answer, published_normalizer, token_f1
from suffice.signals.abstained import ABSTENTION_PHRASES, Abstentions, ready
from suffice.signals.answer_stability import matching_characters
from suffice.signals.evidence import NOT_EXTRACTIVE, seen_passages
from suffice.signals.known_signals import SignalSpec
from suffice.signals.model_confidence import BLANKS, MARKUP, labelled_span, span_behind
from suffice.signals.samples import (
    Clustering,
    MarkerDetector,
    agreement,
    entropy_of_counts,
    sample_clusters,
)
from suffice.trace.rounds.records import LoopView, Passage, Round, Token, passage_tokens


def added_nothing(current: Round, earlier: tuple[Round, ...]) -> bool:
    if current.passages is None:
        return False
    seen = {passage.id for round_ in earlier for passage in round_.passages or ()}
    return all(passage.id in seen for passage in current.passages)


def _pair(view: LoopView) -> tuple[str, str] | None:
    previous = _previous_answer(view)
    if previous is None or added_nothing(view.current, view.rounds[:-1]):
        return None
    return previous, view.current.answer_text


def _previous_answer(view: LoopView) -> str | None:
    return None if view.previous is None else view.previous.answer


def answer_stable(view: LoopView) -> float:
    pair = _pair(view)
    return math.nan if pair is None else float(len(set(map(answer_form, pair))) == 1)


def answer_repeats(view: LoopView) -> float:
    previous = _previous_answer(view)
    if previous is None:
        return math.nan
    return float(answer_form(previous) == answer_form(view.current.answer_text))


def answer_stable_published(view: LoopView) -> float:
    previous = _previous_answer(view)
    if previous is None:
        return math.nan
    current = published_normalizer(view.current.answer_text)
    return float(current == published_normalizer(previous))


def _given(view: LoopView) -> list[str]:
    return [form for one in view.rounds if (form := answer_form(one.answer_text))]


def vote_share(view: LoopView) -> float:
    current = answer_form(view.current.answer_text)
    return _given(view).count(current) / len(_given(view)) if current else math.nan


def backtracking(view: LoopView) -> float:
    if not answer_form(view.current.answer_text):
        return math.nan
    forms = [None if one.answer is None else answer_form(one.answer) for one in view.rounds]
    back = 0
    for place, form in enumerate(forms):
        left = place > 0 and forms[place - 1] not in (form, None)
        back += bool(form) and left and form in forms[:place]
    return float(back)


def answer_similarity_f1(view: LoopView) -> float:
    pair = _pair(view)
    return math.nan if pair is None else token_f1(answer_form(pair[1]), answer_form(pair[0]))


def answer_similarity_seq(view: LoopView) -> float:
    pair = _pair(view)
    if pair is None:
        return math.nan
    previous, current = map(answer_form, pair)
    return matching_characters(previous, current) if previous and current else 0.0


def _new_and_earlier(view: LoopView) -> tuple[list[Passage], list[Passage]] | None:
    earlier = seen_passages(view.rounds[:-1])
    seen = seen_passages(view.rounds)
    if not earlier or seen is None or len(seen) == len(earlier):
        return None
    if any(passage.text is None for passage in seen.values()):
        return None
    new = [passage for key, passage in seen.items() if key not in earlier]
    return new, list(earlier.values())


def overlap(view: LoopView) -> float:
    pair = _new_and_earlier(view)
    if pair is None:
        return math.nan
    new, earlier = (frozenset[str]().union(*map(token_set, passages)) for passages in pair)
    union = len(new | earlier)
    return len(new & earlier) / union if union else math.nan


def overlap_idf(view: LoopView) -> float:
    pair = _new_and_earlier(view)
    if pair is None:
        return math.nan
    new, earlier = pair
    df = Counter(token for text in new + earlier for token in token_set(text))
    if not df:
        return math.nan
    in_new = frozenset[str]().union(*map(token_set, new))
    in_earlier = frozenset[str]().union(*map(token_set, earlier))

    def weight(tokens: Collection[str]) -> float:
        # fsum rounds once, so the value does not hang on the order of a set
        about = math.log(len(new) + len(earlier) + 1) + 1
        return len(tokens) * about - math.fsum(math.log(df[token] + 1) for token in tokens)

    return weight(in_new & in_earlier) / weight(df)


def new_passages(view: LoopView) -> float:
    if view.current.passages is None:
        return math.nan
    listed = {passage.id for passage in view.current.passages}
    seen = {passage.id for round_ in view.rounds[:-1] for passage in round_.passages or ()}
    new = listed - seen
    if not new:
        return 0.0
    if any(round_.passages is None for round_ in view.rounds[:-1]):
        return math.nan
    return len(new) / len(listed.union(passage.id for passage in view.current.refound or ()))


def query_repeats(view: LoopView) -> float:
    query = view.current.query
    if query is None or view.previous is None:
        return math.nan
    earlier = [round_.query for round_ in view.rounds[:-1]]
    if answer_form(query) in {answer_form(sent) for sent in earlier if sent is not None}:
        return 1.0
    return math.nan if None in earlier else 0.0


def token_set(passage: Passage) -> frozenset[str]:
    return frozenset(passage_tokens(passage))


def finite(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None and math.isfinite(value)]


def rerank_scores(rounds: Iterable[Round]) -> list[float]:
    distinct: dict[str, float | None] = {}
    for round_ in rounds:
        for passage in round_.passages or ():
            distinct.setdefault(passage.id, passage.rerank_score)
    return finite(distinct.values())


def candidate_scores(rounds: Sequence[Round]) -> list[float]:
    for round_ in reversed(rounds):
        if round_.candidate_scores is not None:
            return finite(round_.candidate_scores)
    return []


def answer_in_evidence(view: LoopView) -> float:
    answer = normalize_answer(view.current.answer_text)
    if answer in NOT_EXTRACTIVE:
        return math.nan
    wanted = f" {answer} "
    complete = True
    for round_ in reversed(view.rounds):
        complete = complete and round_.passages is not None
        for passage in round_.passages or ():
            if passage.text is None:
                complete = False
            elif wanted in f" {normalize_answer(passage.text)} ":
                return 1.0
    return 0.0 if complete else math.nan


def answer_in_evidence_published(view: LoopView) -> float:
    answer = published_normalizer(view.current.answer_text)
    passages = [passage for round_ in view.rounds for passage in round_.passages or ()]
    texts = [passage.text for passage in passages if passage.text is not None]
    if answer and answer in " ".join(filter(None, map(published_normalizer, texts))):
        return 1.0
    complete = len(texts) == len(passages) and all(
        round_.passages is not None for round_ in view.rounds
    )
    return 0.0 if complete else math.nan


def _sizes(view: LoopView, by: Clustering) -> tuple[list[int], list[int]]:
    if by == "string":  # without the clusters themselves, which take three times as long
        counts = Counter(map(answer_form, view.current.samples or ()))
        return list(counts.values()), [count for answer, count in counts.items() if answer]
    clusters = sample_clusters(view.current, by)
    sizes = [cluster.size for cluster in clusters]
    return sizes, [cluster.size for cluster in clusters if cluster.is_answer]


def self_consistency(view: LoopView) -> float:
    sizes, _ = _sizes(view, "string")
    return max(sizes) / sum(sizes) if sizes else math.nan


def normalized_entropy(view: LoopView, by: Clustering = "string") -> float:
    sizes, answers = _sizes(view, by)
    return entropy_of_counts(sizes) if sum(sizes) > 1 and answers else math.nan


def top_cluster_confidence(view: LoopView, by: Clustering = "string") -> float:
    sizes, answers = _sizes(view, by)
    return max(answers) / sum(sizes) if sum(sizes) > 1 and answers else math.nan


def answer_tokens(
    tokens: Sequence[Token], answer: str = "", starts: int | None = None
) -> tuple[Token, ...]:
    text = "".join(token.token for token in tokens)
    span = _span(text, tokens, answer, starts)
    if span is None:
        return ()
    start, end = span
    of_answer = []
    offset = 0
    for token in tokens:
        begin, offset = offset, offset + len(token.token)
        if begin < end and offset > start and begin < offset:
            of_answer.append(token)
    return tuple(of_answer) if start < end else ()


def _span(
    text: str, tokens: Sequence[Token], answer: str, starts: int | None
) -> tuple[int, int] | None:
    if starts is not None:
        return span_behind(text, sum(len(token.token) for token in tokens[:starts]))
    if (labelled := labelled_span(text)) is not None:
        return labelled
    normalized = answer_form(text)
    if normalized and normalized == answer_form(answer):
        around = BLANKS + MARKUP
        return len(text) - len(text.lstrip(around)), len(text.rstrip(around))
    return None


def _of_round(finished: Round) -> tuple[Token, ...]:
    return answer_tokens(finished.tokens or (), finished.answer_text, finished.answer_starts)


def token_margin(token: Token) -> float:
    ranked = sorted(
        (alternative.logprob for alternative in token.top if alternative.logprob > -math.inf),
        reverse=True,
    )
    return (ranked[0] - ranked[1]) or 0.0 if len(ranked) > 1 else math.nan  # never -0.0


def answer_margins(view: LoopView) -> list[float]:
    return [token_margin(token) for token in _of_round(view.current)]


def answer_token_margin(view: LoopView) -> float:
    margins = answer_margins(view)
    return margins[0] if margins else math.nan


def answer_likelihood(view: LoopView) -> float:
    tokens = view.current.tokens
    if not tokens:
        return math.nan
    return float(np.exp(statistics.fmean(min(token.logprob, 0.0) for token in tokens)))


def token_probability(view: LoopView) -> float:
    tokens = view.current.tokens
    if tokens is None:
        return math.nan
    if not tokens:
        return 0.0
    # A server may report a log-probability a hair above 0.
    capped = np.minimum([token.logprob for token in tokens], 0.0)
    return statistics.fmean(
        np.exp(capped).tolist()
    )  # NumPy's, which may round as math.exp does not


def verbalized_confidence(view: LoopView) -> float:
    rating = view.current.verbalized_confidence
    return rating if rating is not None and 1 <= rating <= 5 else math.nan


def candidate_agreement(view: LoopView) -> float:
    samples = view.current.samples
    return agreement(samples) if samples else math.nan


def contradiction(view: LoopView) -> float:
    if not view.current.answer_text.strip():
        return math.nan
    previous = view.previous
    if previous is None:
        return 0.0
    if not previous.answer_text.strip():
        return math.nan
    pair = (previous.answer_text, view.current.answer_text)
    return float(MarkerDetector().contradictions([pair])[0])


def retrieval_z(view: LoopView) -> float:
    scores = candidate_scores(view.rounds)
    if not scores:
        return math.nan
    if min(scores) == max(scores):
        return 0.0
    return float((max(scores) - np.mean(scores)) / np.std(scores))


def retrieval_z_robust(view: LoopView) -> float:
    scores = candidate_scores(view.rounds)
    if not scores:
        return math.nan
    if min(scores) == max(scores):
        return 0.0
    low, median, high = np.percentile(scores, [25, 50, 75])
    return float((max(scores) - median) / (high - low)) + 0.0 if high > low else math.nan


def retrieval_gap(view: LoopView) -> float:
    scores = sorted(candidate_scores(view.rounds), reverse=True)
    return scores[0] - scores[1] + 0.0 if len(scores) > 1 else math.nan


def rerank_top_score(view: LoopView) -> float:
    scores = finite(p.rerank_score for round_ in view.rounds for p in round_.passages or ())
    return max(scores, default=math.nan) + 0.0


def rerank_mean(view: LoopView) -> float:
    scores = rerank_scores(view.rounds)
    return statistics.fmean(scores) if scores else math.nan


def rerank_variance(view: LoopView) -> float:
    scores = rerank_scores(view.rounds)
    if not scores:
        return 0.0 if seen_passages(view.rounds) == {} else math.nan
    low, high = min(scores), max(scores)
    if low == high:
        return 0.0
    return float(np.var([(score - low) / (high - low) for score in scores]))


def rerank_variance_raw(view: LoopView) -> float:
    scores = rerank_scores(view.rounds)
    if not scores:
        return math.nan
    return 0.0 if min(scores) == max(scores) else float(np.var(scores))


def abstains(phrases: Abstentions, answer: str) -> bool:
    return phrases.holds(answer_form(answer), answer)


def _margin(statistic: Callable[[Sequence[float]], float]) -> Callable[[LoopView], float]:
    def compute(view: LoopView) -> float:
        margins = [margin for margin in answer_margins(view) if not math.isnan(margin)]
        return statistic(margins) if margins else math.nan

    return compute


def abstained_by(phrases: Iterable[str]) -> Callable[[LoopView], float]:
    own = ready(tuple(phrases))
    return lambda view: float(abstains(own, view.current.answer_text))


TWINS: Mapping[str, Callable[[LoopView], float]] = {
    **{
        one.__name__: one
        for one in (
            *(answer_stable, answer_repeats, answer_stable_published, answer_similarity_f1),
            *(vote_share, backtracking, answer_likelihood),
            *(answer_similarity_seq, overlap, overlap_idf, new_passages, query_repeats),
            *(answer_in_evidence, answer_in_evidence_published, self_consistency),
            *(normalized_entropy, top_cluster_confidence, answer_token_margin, token_probability),
            *(verbalized_confidence, candidate_agreement, contradiction, retrieval_z),
            *(retrieval_z_robust, retrieval_gap, rerank_top_score, rerank_mean, rerank_variance),
            rerank_variance_raw,
        )
    },
    "margin_min": _margin(min),
    "margin_p10": _margin(lambda margins: float(np.percentile(margins, 10))),
    "margin_mean": _margin(statistics.fmean),
    "margin_median": _margin(statistics.median),
    "abstained": abstained_by(ABSTENTION_PHRASES),
}


def twin(spec: SignalSpec, compute: Callable[[LoopView], float] | None = None) -> SignalSpec:
    """The signal asked round by round."""
    return replace(spec, columns=None, compute=compute or TWINS[spec.name], own_settings=True)
