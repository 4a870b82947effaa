"""The fitted methods by name: what each must read and how it is fitted on a trace set."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Any

from suffice.errors import UsageError
from suffice.policies.ab_rag.fit import choose_signals, fit_ab_rag, published_ab_rag
from suffice.policies.ab_rag.policy import ABRagPolicy
from suffice.policies.controls import CONTROLS, Control, fit_control
from suffice.policies.defaults import FIT_SPLIT
from suffice.policies.fitting import fit_data
from suffice.policies.gate.fit import fit_gate_policy, gate_costs, published_gate_policy
from suffice.policies.method import PRESETS, Preset
from suffice.policies.micp.fit import CALIBRATE, OPTIMIZE, MiCPSettings, fit_micp
from suffice.policies.stop_rag.fit import StopRAGSettings, TrainingRun, fit_stop_rag
from suffice.policies.tasr.fit import fit_tasr, tasr_signals
from suffice.protocols import Certainty, StopPolicy
from suffice.scoring import Match
from suffice.trace.rounds.table import TraceSet

_BOTH: frozenset[Preset] = frozenset(PRESETS)
MICP_OPTIONS = frozenset(
    {"match_f1", *(each.name for each in fields(MiCPSettings) if each.name != "match")}
)
GATE_OPTIONS = frozenset({"retrieval_cost", "failure_loss"})
STOP_RAG_OPTIONS = frozenset(each.name for each in fields(StopRAGSettings))


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """A method that is fitted on traces.

    Parameters
    ----------
    name, summary
        For people.
    fit
        ``fit(traces, preset, split, **options)`` reads the gold answers of ``split`` and returns the
        policy.
    options
        The options each preset takes.
    fitted
        Presets that learn something. Others read of the traces only which signals they hold, and need
        no split.
    reads
        Splits it is fitted on: the first of these sets that the traces have.
    unfitted
        Presets that run live without being fitted: the policy for what a model gives.
    trains
        Whether its fit also takes ``run``: who watches, and where checkpoints go.
    """

    name: str
    summary: str
    fit: Callable[..., StopPolicy]
    options: Mapping[Preset, frozenset[str]]
    fitted: frozenset[Preset] = _BOTH
    reads: tuple[frozenset[str], ...] = (frozenset({FIT_SPLIT}),)
    unfitted: Mapping[Preset, Callable[[Certainty], StopPolicy]] = field(default_factory=dict)
    trains: bool = False

    def can_read(self, traces: TraceSet) -> bool:
        """Whether the traces have splits it is fitted on."""
        return any(splits <= set(traces.splits) for splits in self.reads)


def _gold(traces: TraceSet, split: str) -> tuple[str, ...]:
    return tuple(answer for each in traces.only_split(split).gold for answer in each.answers)


def _fit_tasr(traces: TraceSet, preset: Preset, split: str, **options: Any) -> StopPolicy:
    gold = _gold(traces, split)
    data = fit_data(traces, tasr_signals(preset, gold), split=split)
    return fit_tasr(data, preset, gold=gold, **options)


def _fit_ab_rag(traces: TraceSet, preset: Preset, split: str, **options: Any) -> StopPolicy:
    if preset == "published":
        return published_ab_rag(traces, **options)
    chosen = choose_signals(
        traces.only_split(split), options.pop("certainty", None), options.pop("support", None)
    )
    data = fit_data(traces, chosen.specs, split=split)
    return fit_ab_rag(data, chosen, **options)


def _fit_micp(traces: TraceSet, preset: Preset, split: str, **options: Any) -> StopPolicy:
    if "match_f1" in options:
        options["match"] = Match(f1=options.pop("match_f1"))
    for searched in ("objective", "steps"):
        if searched in options and "allocation" in options:
            raise UsageError(
                f"an allocation by hand is not searched for; leave {searched} or allocation out"
            )
    return fit_micp(traces, preset, split, MiCPSettings(**options))


def _fit_stop_rag(
    traces: TraceSet, preset: Preset, split: str, *, run: TrainingRun | None = None, **options: Any
) -> StopPolicy:
    return fit_stop_rag(traces, preset, split, StopRAGSettings(**options), run)


def _fit_gate(traces: TraceSet, preset: Preset, split: str, **options: Any) -> StopPolicy:
    if preset == "published":
        return published_gate_policy(traces, gate_costs(**options) if options else None)
    return fit_gate_policy(traces, split, gate_costs(**options))


def _control(control: Control) -> Method:
    def fit(traces: TraceSet, preset: Preset, split: str, **options: Any) -> StopPolicy:
        data = fit_data(traces, control.signals, split=split)
        return fit_control(control, data, preset, **options)

    return Method(
        name=control.name, summary=control.summary, fit=fit, options=_CALIBRATED_WHEN_CORRECTED
    )


_CALIBRATED_WHEN_CORRECTED: Mapping[Preset, frozenset[str]] = MappingProxyType(
    {"published": frozenset(), "corrected": frozenset({"calibrator"})}
)
METHODS: Mapping[str, Method] = MappingProxyType(
    {
        "tasr": Method(
            name="tasr",
            summary="stop when the answer repeats and its calibrated margin clears a floor",
            fit=_fit_tasr,
            options=_CALIBRATED_WHEN_CORRECTED,
        ),
        "ab-rag": Method(
            name="ab-rag",
            summary="stop when a confidence made of model certainty, evidence and reranker scores "
            "reaches a threshold",
            fit=_fit_ab_rag,
            options=MappingProxyType(
                {
                    "published": frozenset({"certainty", "threshold"}),
                    "corrected": frozenset({"certainty", "support", "threshold"}),
                }
            ),
            fitted=frozenset({"corrected"}),
            unfitted=MappingProxyType({"published": ABRagPolicy.published}),
        ),
        "micp": Method(
            name="micp",
            summary="stop when samples agree, and give a set of answers with a promised coverage",
            fit=_fit_micp,
            options=MappingProxyType(dict.fromkeys(PRESETS, MICP_OPTIONS)),
            reads=(frozenset({OPTIMIZE, CALIBRATE}), frozenset({FIT_SPLIT})),
        ),
        "gate": Method(
            name="gate",
            summary="stop when samples agree and answers do not contradict each other, by a risk that "
            "falls round by round",
            fit=_fit_gate,
            options=MappingProxyType(dict.fromkeys(PRESETS, GATE_OPTIONS)),
            fitted=frozenset({"corrected"}),
        ),
        "stop-rag": Method(
            name="stop-rag",
            summary="stop when a network that reads question and documents values it above going on",
            fit=_fit_stop_rag,
            options=MappingProxyType(dict.fromkeys(PRESETS, STOP_RAG_OPTIONS)),
            trains=True,
        ),
        **{name: _control(control) for name, control in CONTROLS.items()},
    }
)


def method_and_preset(name: str) -> tuple[Method, Preset] | None:
    """The method of a bare name or ``NAME-published``, or of ``NAME-corrected``; else ``None``."""
    for preset in PRESETS:
        base = name.removesuffix(f"-{preset}")  # a method's own name may hold a hyphen
        if base != name and base in METHODS:
            return METHODS[base], preset
    return (METHODS[name], "published") if name in METHODS else None


def fit_method(
    name: str,
    traces: TraceSet,
    preset: Preset,
    split: str,
    *,
    run: TrainingRun | None = None,
    **options: Any,
) -> StopPolicy:
    """Fit a method by its name.

    Parameters
    ----------
    name, traces, preset, split
        Which method, and what it reads.
    run
        Who watches a training and where its checkpoints go; nothing to methods that do not train.
    options
        The method's own: ``calibrator`` (how ``calibrated(...)`` is fitted) for corrected presets of
        tasr and the controls; ``certainty`` (S1), ``support`` (S2, corrected only) and ``threshold``
        for ab-rag; those of :class:`suffice.policies.micp.fit.MiCPSettings` for micp, with ``match_f1``
        for ``match``; those of :class:`suffice.policies.stop_rag.fit.StopRAGSettings` for stop-rag;
        ``retrieval_cost`` and ``failure_loss`` (the thresholds) for gate. One that is ``None`` counts as
        not given.

    Raises
    ------
    UsageError
        For an unknown method, listing the known ones, and an option its preset does not take.
    """
    if name not in METHODS:
        raise UsageError(f"unknown method {name!r}; known: {', '.join(sorted(METHODS))}")
    method = METHODS[name]
    given = {option: value for option, value in options.items() if value is not None}
    allowed = method.options[preset]
    for option in given:
        if option not in allowed:
            takes = f"takes {', '.join(sorted(allowed))}" if allowed else "takes no options"
            other = [each for each in PRESETS if option in method.options[each]]
            instead = f", or use the {other[0]} preset, which takes it" if other else ""
            raise UsageError(f"the {preset} preset of {name} {takes}; leave {option} out{instead}")
    if method.trains:
        given["run"] = run
    return method.fit(traces, preset, split, **given)
