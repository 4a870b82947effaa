"""Policies without a fit: fixed budgets, rules of other systems, and plain patience.

The rules read a number that the loop gives in every round: its error, a score, a judge's rating. A name
adds the number behind a colon, as in ``loopgain:my_error``; a score of at most 1 is an error as
``loopgain:1-my_score``. The definitions follow the published sources that each class names.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np

from suffice.contracts import Certainty, Explanation, Facts, LoopNeeds, PolicyTable
from suffice.errors import UsageError, counted
from suffice.options import Option
from suffice.policies.method import Method, PolicyKind, Preset
from suffice.policies.rules.policy import Rule, RuleKind, rule_needs
from suffice.scoring import AnswerChoice
from suffice.signals.derived import DerivedName
from suffice.signals.known_signals import SIGNALS, SignalSpec
from suffice.stats.fields import Fields
from suffice.stats.units import Mask

if TYPE_CHECKING:
    from suffice.measures.measures import Measures


_MOST_ROUNDS = int(np.iinfo(np.int16).max)


@dataclass(frozen=True, slots=True)
class FixedPolicy:
    """A policy that always stops after ``rounds`` rounds."""

    rounds: int

    kind: ClassVar[str] = "fixed"
    preset: ClassVar[None] = None
    signals: ClassVar[tuple[str, ...]] = ()
    specs: ClassVar[tuple[SignalSpec, ...]] = ()
    needs: ClassVar[LoopNeeds] = LoopNeeds()

    def __post_init__(self) -> None:
        if not 1 <= self.rounds <= _MOST_ROUNDS:
            raise UsageError(f"fixed-K needs K from 1 to {_MOST_ROUNDS}, found {self.rounds}")

    @classmethod
    def named(cls, name: str) -> FixedPolicy | None:
        """Return the policy of a name such as ``fixed-3``; ``None`` for other names."""
        match = re.fullmatch(r"fixed-(\d{1,6})", name)
        return None if match is None else cls(int(match.group(1)))

    @property
    def facts(self) -> Facts:
        summary = f"always {counted(self.rounds, 'round')}"
        return Facts(summary=summary, max_rounds=self.rounds, earliest=self.rounds)

    def fires(self, table: PolicyTable) -> Mask:
        """Return whether the round is ``rounds`` or later, (n_questions, n_rounds)."""
        held = np.arange(1, table.n_rounds + 1) >= self.rounds
        return np.broadcast_to(held, (table.n_questions, table.n_rounds))

    def explain(self, table: PolicyTable, question: int, round_number: int) -> Explanation:
        del table, question
        return Explanation(
            reason=f"always stops after round {self.rounds}; this is round {round_number}",
            values={"round": float(round_number)},
        )

    def document(self) -> dict[str, Any]:
        return {"rounds": self.rounds}


class _FixedKind(PolicyKind):
    main_field = "rounds"

    def read(self, document: Mapping[str, Any], file: Path) -> FixedPolicy:
        del file
        fields = Fields(document)
        fields.need("rounds")
        return FixedPolicy(fields.of("rounds", int))


KIND = _FixedKind()


# --- rules of other systems -----------------------------------------------------------------------
Error = Annotated[
    str,
    Option(
        metavar="NAME",
        help="signal for the loop's error in a round, 0 if all is well; of a score, TOP-NAME, as "
        "1-self_consistency",
    ),
]
Target = Annotated[float, Option(metavar="E", help="stop at this error or less")]


class _ReadyRule(RuleKind, Method):
    presets: tuple[Preset, ...] = ("published",)
    fitted: frozenset[Preset] = frozenset()

    @abstractmethod
    def rule(self, settings: Any) -> Rule: ...

    def named(self, words: str) -> Any:
        """Return the settings that ``words`` behind the method's name state; ``None``: no such name."""
        if not words:
            return self.options()
        first, text = fields(self.options)[0].name, words[1:]
        return self.options(**{first: text}) if words[0] == ":" and text else None

    @cached_property
    def unfitted(self) -> Mapping[Preset, Callable[[Certainty], Rule]]:  # type: ignore[override]
        ready = self.rule(self.options())
        return MappingProxyType({"published": lambda _: ready})

    def fit(self, measures: Measures, preset: Preset, settings: Any, split: str) -> Rule:
        from suffice.policies.fitting import warn_of_rule
        from suffice.signals.signal_table import refuse_lacking

        del preset, split
        policy = self.rule(settings)
        refuse_lacking(policy.specs, measures.traces)
        warn_of_rule(policy, measures, self.name)
        return policy

    def _policy(self, rule: str, answer: str = "latest") -> Rule:
        names = (
            name if (derived := DerivedName.parse(name)) is None else derived.of
            for name in rule_needs(rule).signals
        )
        own = tuple(dict.fromkeys(name for name in names if name not in SIGNALS))
        return Rule(rule=rule, kind=self.name, preset="published", own_signals=own, answer=answer)


def _error(text: str, target: float) -> tuple[str, str, str]:
    try:
        name = DerivedName.parse(f"gain({text})")
    except UsageError:
        name = None
    if name is None:
        raise UsageError(
            f"no error: {text!r}; type the name of a signal, or of a score TOP-NAME, as 1-self_consistency"
        )
    if name.top is None:
        return name.of, f"{name.of} <= {target:g}", f"first-lowest:{name.of}"
    met = f"{name.of} >= {name.top - target:g}"
    return f"{name.top:g} - {name.of}", met, f"first-highest:{name.of}"


# --- LoopGain ------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True, kw_only=True)
class _BandsSettings:
    error: Error = "error"
    target: Target = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _LoopGainSettings(_BandsSettings):
    stalls: Annotated[
        int, Option(metavar="N", at_least=1, help="stop after this many stalled rounds in a row")
    ] = 2


class _LoopGain(_ReadyRule):
    name = "loopgain"
    summary = (
        "stop when the loop's error is met, diverges, oscillates or stalls; return the best so far"
    )
    source = "LoopGain 0.6.5, trajectory classifier"
    options = _LoopGainSettings
    variants: Mapping[str, Mapping[str, Any]] = MappingProxyType(
        {error: {"error": error} for error in ("1-self_consistency", "1-token_probability")}
    )

    def rule(self, settings: _LoopGainSettings) -> Rule:
        of, met, best = _error(settings.error, settings.target)
        stalls = f"stalling({of}) >= {settings.stalls}"
        return self._policy(f"{met} or diverging({of}) or oscillating({of}) or {stalls}", best)


class _LoopGainBands(_ReadyRule):
    name = "loopgain-bands"
    summary = "stop when the loop's error is met or its smoothed gain reaches 0.95; return the best so far"
    source = "LoopGain 0.2.0, with which its benchmark was run"
    options = _BandsSettings

    def rule(self, settings: _BandsSettings) -> Rule:
        of, met, best = _error(settings.error, settings.target)
        return self._policy(f"{met} or gain({of}) >= 0.95", best)


# --- OptiLLM -------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True, kw_only=True)
class _OptiLLMSettings:
    completeness: Annotated[
        str, Option(metavar="NAME", help="signal for how complete the answer is, from 0 to 1")
    ] = "completeness"


class _OptiLLM(_ReadyRule):
    name = "optillm-deep-research"
    summary = "stop when the draft is rated complete, or nearly complete and no better than before"
    source = "OptiLLM 0.4.0, deep_research plugin"
    options = _OptiLLMSettings
    variants: Mapping[str, Mapping[str, Any]] = MappingProxyType(
        {name: {"completeness": name} for name in ("self_consistency", "token_probability")}
    )

    def rule(self, settings: _OptiLLMSettings) -> Rule:
        complete = settings.completeness
        improved = "improvement" if complete == "completeness" else f"change({complete})"
        return self._policy(f"{complete} > 0.9 or ({improved} < 0.03 and {complete} > 0.7)")


# --- patience ------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True, kw_only=True)
class _PatienceSettings:
    best: Annotated[
        str, Option(metavar="highest:NAME|lowest:NAME", help="signal to improve, and its direction")
    ] = "lowest:error"
    rounds: Annotated[
        int, Option(metavar="N", at_least=1, help="stop after this many rounds without improvement")
    ] = 3


class _Patience(_ReadyRule):
    name = "patience"
    summary = "stop after n rounds without a better value of a signal; return the best so far"
    source = "standard early stopping"
    options = _PatienceSettings
    variants: Mapping[str, Mapping[str, Any]] = MappingProxyType(
        {
            "2 rounds, self_consistency": {"best": "highest:self_consistency", "rounds": 2},
            "2 rounds, token_probability": {"best": "highest:token_probability", "rounds": 2},
        }
    )

    def named(self, words: str) -> _PatienceSettings | None:
        """Read ``-N`` and ``-N:highest:NAME``."""
        match = re.fullmatch(r"(?:-(?P<rounds>\d{1,5}))?(?::(?P<best>.+))?", words)
        if match is None:
            return None
        stated: dict[str, Any] = {name: text for name, text in match.groupdict().items() if text}
        if "rounds" in stated:
            stated["rounds"] = int(stated["rounds"])
        return _PatienceSettings(**stated)

    def rule(self, settings: _PatienceSettings) -> Rule:
        if settings.rounds < 1:
            raise UsageError("patience needs at least 1 round; type patience-2")
        best = AnswerChoice.parse(settings.best)
        if not best.signal or best.first:
            raise UsageError(f"best is highest:NAME or lowest:NAME, found {settings.best!r}")
        return self._policy(
            f"since_{best.rule}({best.signal}) >= {settings.rounds}", f"first-{settings.best}"
        )


# --- answer convergence --------------------------------------------------------------------------
@dataclass(frozen=True, slots=True, kw_only=True)
class ConvergenceSettings:
    """How sure and how steady the answer must be, over how many rounds."""

    theta: Annotated[float, Option(metavar="P", help="least likelihood of every answer")] = 0.995
    epsilon: Annotated[
        float, Option(metavar="E", help="largest mean change (1 - token F1) from answer to answer")
    ] = 0.05
    window: Annotated[int, Option(metavar="N", at_least=2, help="answers looked at")] = 3


class _AnswerConvergence(_ReadyRule):
    """Stops when the last answers are likely and hardly change; an abstention begins anew."""

    name = "acs"
    summary = "stop when the last three answers are almost certain and hardly change"
    source = "ACS (arXiv 2609.34590), open answers"
    options = ConvergenceSettings

    def named(self, words: str) -> ConvergenceSettings | None:
        return None if words else ConvergenceSettings()

    def rule(self, settings: ConvergenceSettings) -> Rule:
        """Likely answers in a whole window, and their mean similarity."""
        likely = f"answer_likelihood >= {settings.theta:g} and not abstained"
        n, least = settings.window, 1 - settings.epsilon
        similar = f"mean_of(answer_similarity_f1, {n - 1}) >= {least:g}"
        return self._policy(f"stable_for({likely}, {n}) and {similar}")


LOOPGAIN, LOOPGAIN_BANDS = _LoopGain(), _LoopGainBands()
OPTILLM, PATIENCE, ACS = _OptiLLM(), _Patience(), _AnswerConvergence()
_READY: tuple[_ReadyRule, ...] = (LOOPGAIN_BANDS, LOOPGAIN, OPTILLM, PATIENCE, ACS)


def ready_rule(name: str) -> Rule | None:
    """Return the rule of a name such as ``patience-2:highest:my_score``; ``None`` for other names."""
    for method in _READY:
        rest = name.removeprefix(method.name)
        if rest != name and (settings := method.named(rest)) is not None:
            return method.rule(settings)
    return None
