"""What a reader of MiCP's evaluation must know, each thing once."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction

from suffice.bench.micp.arrays import Recorded
from suffice.numbers.conformal.order_statistics import smallest_sample
from suffice.policies.micp.notes import few_notes, unsampled_notes
from suffice.policies.micp.stage2 import Sampled, Stage2


@dataclass(slots=True, kw_only=True)
class StudyNotes:
    """Gathers what fits of all divisions have to say; ``sizes`` are those of the parts."""

    record: Recorded
    sizes: tuple[int, int, int]
    _held: dict[str, None] = field(default_factory=dict)
    _asked: dict[Fraction, int] = field(default_factory=dict)
    _never: dict[Fraction, int] = field(default_factory=dict)

    def held(self, calibration: Sampled) -> None:
        """Look at the questions a division calibrates on."""
        self._held.update(dict.fromkeys(unsampled_notes(calibration)))

    def fitted(self, alpha: Fraction, thresholds: Stage2) -> None:
        """Look at the thresholds of one fit."""
        self._asked[alpha] = self._asked.get(alpha, 0) + 1
        if few_notes(self.sizes[:2], alpha, thresholds):
            self._never[alpha] = self._never.get(alpha, 0) + 1

    def said(self) -> tuple[str, ...]:
        """The sentences."""
        return (*self._about_the_record(), *self._held, *self._few(), *self._without_stop())

    def _about_the_record(self) -> list[str]:
        record, said = self.record, []
        if record.unlabelled:
            said.append(f"{record.unlabelled} questions without gold answers are left out")
        short = int((record.last_rounds < record.rounds).sum())
        if short:
            said.append(
                f"{short} questions hold fewer than {record.rounds} rounds: they sample nothing in the "
                "ones they lack"
            )
        if record.filtered:
            said.append(
                "no retention: its passages were filtered when it was recorded, and those dropped are not "
                "in it"
            )
        elif record.relevances is None:
            said.append(
                "no retention: the record holds no relevance of passages, or no gold passages"
            )
        return said

    def _few(self) -> list[str]:
        few = [each for each in self._asked if min(self.sizes[:2]) < smallest_sample(each)]
        if not few:
            return []
        needed = ", ".join(f"{smallest_sample(each)} for {float(each):g}" for each in few)
        return [
            f"too few questions ({self.sizes[0]} to optimise, {self.sizes[1]} to calibrate on) for "
            f"alpha = {_levels(few)}: each part needs at least {needed}"
        ]

    def _without_stop(self) -> list[str]:
        if not self._never:
            return []
        shares = ", ".join(
            f"{self._never[each]} of {self._asked[each]} at alpha {float(each):g}"
            for each in sorted(self._never)
        )
        return [
            f"fits without any early stop, presets, objectives and divisions together: {shares}. Either too "
            "few questions for a threshold, or no division of the budget was better on those to optimise"
        ]


def _levels(levels: list[Fraction]) -> str:
    return ", ".join(f"{float(each):g}" for each in levels)
