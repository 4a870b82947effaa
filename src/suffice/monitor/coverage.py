"""Watching the coverage that a policy promises of its answer sets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from suffice.contracts import CoveragePolicy
from suffice.errors import DataError, UsageError, counted
from suffice.monitor.alarms import CoverageMonitor, ExchangeabilityMonitor
from suffice.monitor.questions import SetReturned
from suffice.results.as_json import as_json
from suffice.results.formats import bracket, percent
from suffice.scoring import answer_form
from suffice.stats.betting import Monitor
from suffice.stats.fields import finite, map_fields, whole
from suffice.stats.intervals import Estimate
from suffice.stats.p_values import rate_interval

_DECIMALS = 9  # of scores: a policy file may hold other last digits, and ties would be none
_COUNTS = ("answers", "labelled", "undecided", "misses")
_MISSING = {
    "coverage": "no answer set has its right answer yet",
    "exchangeability": "the policy file holds no first-round scores",
}


class Coverage:
    """Both monitors over one stream of answer sets, with counts.

    ``labelled`` sets have a known right answer. For ``undecided`` ones it is unknown whether "Can't Answer"
    is right: they count as covered, and as misses at the low end of the interval. That interval holds for
    one look at the end; monitors allow a look after every answer.
    """

    def __init__(self, policy: CoveragePolicy, level: float, seed: int) -> None:
        if policy.facts.coverage is None:
            raise UsageError(f"a policy of kind {policy.kind!r} promises no coverage")
        self._promised = policy.facts.coverage
        self._n_calibration, past = _calibration(policy.facts.fitted_on)
        self.counts: dict[str, int] = dict.fromkeys(_COUNTS, 0)
        self._misses = CoverageMonitor(self._promised.alpha, self._n_calibration, level)
        self._likeness = ExchangeabilityMonitor(past, level, seed=seed) if past else None

    @property
    def monitors(self) -> Mapping[str, Monitor]:
        found: dict[str, Monitor] = {"coverage": self._misses}
        return found if self._likeness is None else {**found, "exchangeability": self._likeness}

    def take(self, returned: SetReturned) -> None:
        self.counts["answers"] += 1
        if self._likeness is not None:
            self._likeness.update(round(returned.first_score, _DECIMALS))

    def label(self, returned: SetReturned, gold: Sequence[str]) -> None:
        """Take the right answers of a counted set."""
        covered = self._covers(returned, gold)
        self.counts["labelled"] += 1
        self.counts["undecided"] += covered is None
        self.counts["misses"] += covered is False
        self._misses.update(covered is not False)  # what is undecided can only delay an alarm

    def _covers(self, returned: SetReturned, gold: Sequence[str]) -> bool | None:
        """Whether the set holds a right answer; ``None``: a cluster by meaning may hold it unseen."""
        match, held = self._promised.match, returned.held
        if any(match(member.answer, gold) for member in held.answers):
            return True
        right = {answer_form(sample) for sample in returned.samples if match(sample, gold)}
        if right and self._promised.shows_all:
            return not right.isdisjoint(answer_form(member.answer) for member in held.answers)
        if right:
            return None
        return held.cannot_answer

    # --- what was seen ---------------------------------------------------------------------------
    @property
    def coverage(self) -> Estimate:
        """Share of the labeled sets that covered, with its exact 95% interval (Clopper and Pearson)."""
        labelled = self.counts["labelled"]
        if labelled == 0:
            return Estimate(estimate=None)
        covered = labelled - self.counts["misses"]
        low, _ = rate_interval(covered - self.counts["undecided"], labelled)
        _, high = rate_interval(covered, labelled)
        return Estimate(estimate=1.0 - self.counts["misses"] / labelled, low=low, high=high)

    @property
    def decided(self) -> tuple[str, str]:
        found, promised = self.coverage, 1.0 - float(self._promised.alpha)
        if found.low is None:
            return "not shown", _MISSING["coverage"]
        told = f"coverage is {percent(found.estimate)}% {bracket(found)}, promised {percent(promised)}%"
        return "kept" if found.low >= promised else "not shown", told

    def to_json(self) -> dict[str, Any]:
        """Return the counts and coverage as strict JSON."""
        return {
            "alpha": self._promised.alpha,
            "calibration_questions": self._n_calibration,
            "limit": self._misses.limit,
            **self.counts,
            "coverage": as_json(self.coverage),
        }

    @property
    def notes(self) -> list[str]:
        """Sentences on the promise, the coverage, and what cannot be tested."""
        counts, found = self.counts, self.coverage
        notes = [
            f"Promised: at most {percent(self._promised.alpha)}% of answer sets miss the right answer. "
            f"Calibrated on {counted(self._n_calibration, 'question')}."
        ]
        if found.estimate is not None:
            notes.append(
                f"Coverage {percent(found.estimate)}% {bracket(found)}: {counts['misses']:,} of "
                f"{counts['labelled']:,} labeled answer sets miss."
            )
        if counts["undecided"]:
            notes.append(
                f"{counts['undecided']:,} of them may hold a right answer in a cluster. They count as "
                "covered, and as misses for the interval's low end."
            )
        silent = {"coverage": not counts["labelled"], "exchangeability": self._likeness is None}
        notes += [f"{kind} cannot be tested: {_MISSING[kind]}." for kind in silent if silent[kind]]
        return notes


def _calibration(fitted_on: Mapping[str, Any]) -> tuple[int, Mapping[float, int]]:
    n = whole(fitted_on.get("calibration_questions"), "fitted_on.calibration_questions", 1)
    stored = fitted_on.get("first_round_scores")
    if stored is None:
        return n, {}
    fields = map_fields(stored, "first_round_scores", ("values", "counts"))
    values, counts = fields.get("values"), fields.get("counts")
    if not isinstance(values, list) or not isinstance(counts, list) or len(values) != len(counts):
        raise DataError("values and counts must be lists of one length", column="counts")
    past: Counter[float] = Counter()
    for value, times in zip(values, counts, strict=True):
        past[round(finite(value, "values"), _DECIMALS)] += whole(times, "counts", 1)
    if past.total() > n:
        raise DataError(
            f"add up to {past.total()}, more than the {n} calibration questions", column="counts"
        )
    past[float("nan")] = n - past.total()  # calibration questions without a score
    return n, +past
