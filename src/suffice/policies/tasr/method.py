"""TASR: stop when the answer repeats and its calibrated margin clears a floor (paper 0, Eq. 1).

``published`` is the rule AS_m25 as the paper's code ran it: the floor is 0.25, stability uses the
code's own normaliser, and a round without log-probabilities counts as calibrated margin 0.5.
``corrected`` uses the official normaliser, never fires on an undefined margin or on a stable
abstention, and chooses the floor on the tune split from out-of-fold calibrated margins.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from suffice.policies.defaults import FLOORS, MARGIN, PUBLISHED_RULE, PUBLISHED_UNDEFINED, TEMPLATE
from suffice.policies.fitting import fit_calibrator, fit_data, right_abstentions
from suffice.policies.method import Preset, RuleFit, RuleMethod
from suffice.policies.rules.policy import RulePolicy
from suffice.policies.thresholds import cheapest_within_one_error, fill, open_rule

if TYPE_CHECKING:
    from suffice.measures.measures import Measures

SIGNALS_READ: dict[Preset, tuple[str, ...]] = {
    "published": ("answer_stable_published", MARGIN),
    "corrected": ("answer_stable", "abstained", MARGIN),
}


class TASR(RuleMethod):
    """See :class:`suffice.policies.method.Method`."""

    name = "tasr"
    summary = "stop when the answer repeats and its calibrated margin clears a floor"
    source = "paper 0, Eq. 1"
    chosen_by_f1 = frozenset({"corrected"})

    def fit_rule(self, measures: Measures, how: RuleFit) -> RulePolicy:
        """Calibrated on the tune questions."""
        data = fit_data(
            measures,
            SIGNALS_READ[how.preset],
            split=how.split,
            f1_kind=how.f1_kind,
            abstention=right_abstentions(measures.only_split(how.split)),
        )
        if how.preset == "published":
            return RulePolicy(
                rule=PUBLISHED_RULE,
                calibrators={MARGIN: fit_calibrator(data, MARGIN, undefined=PUBLISHED_UNDEFINED)},
                kind="tasr",
                preset=how.preset,
                fitted_on=data.provenance,
            )
        swept = open_rule(TEMPLATE, data, calibrator=how.calibrator)
        floor = swept.chosen(FLOORS, cheapest_within_one_error).threshold
        return RulePolicy(
            rule=fill(TEMPLATE, floor),
            calibrators={MARGIN: fit_calibrator(data, MARGIN, kind=how.calibrator)},
            kind="tasr",
            preset=how.preset,
            abstention=data.abstention,
            fitted_on={**data.chosen_by, "floors": [FLOORS[0], FLOORS[-1]], "floor": floor},
        )


METHOD = TASR()
