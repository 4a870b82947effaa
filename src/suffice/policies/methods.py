"""The fitted methods by name: what each must read and how it is fitted on a trace set."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from suffice.errors import UsageError
from suffice.policies.controls import CONTROLS, Control, fit_control
from suffice.policies.fitting import CalibratorKind, Preset, fit_data
from suffice.policies.tasr import fit_tasr, tasr_signals
from suffice.protocols import StopPolicy
from suffice.trace.table import TraceSet

__all__ = ["METHODS", "Method", "Preset", "fit_method", "method_and_preset"]

_Fit = Callable[[TraceSet, Preset, str, CalibratorKind], StopPolicy]


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """A method that is fitted on traces.

    ``fit(traces, preset, split, calibrator)`` reads the gold answers of ``split`` and returns the
    policy.
    """

    name: str
    summary: str
    fit: _Fit


def _fit_tasr(
    traces: TraceSet, preset: Preset, split: str, calibrator: CalibratorKind
) -> StopPolicy:
    gold = tuple(answer for each in traces.only_split(split).gold for answer in each.answers)
    data = fit_data(traces, tasr_signals(preset, gold), split=split)
    return fit_tasr(data, preset, gold=gold, calibrator=calibrator)


def _control(control: Control) -> Method:
    def fit(traces: TraceSet, preset: Preset, split: str, calibrator: CalibratorKind) -> StopPolicy:
        data = fit_data(traces, control.signals, split=split)
        return fit_control(control, data, preset, calibrator)

    return Method(name=control.name, summary=control.summary, fit=fit)


METHODS: Mapping[str, Method] = MappingProxyType(
    {
        "tasr": Method(
            name="tasr",
            summary="stop when the answer repeats and its calibrated margin clears a floor",
            fit=_fit_tasr,
        ),
        **{name: _control(control) for name, control in CONTROLS.items()},
    }
)


def method_and_preset(name: str) -> tuple[Method, Preset] | None:
    """The method of a bare name or ``NAME-published``, or of ``NAME-corrected``; else ``None``."""
    presets: tuple[Preset, ...] = ("published", "corrected")
    for preset in presets:
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
    calibrator: CalibratorKind = "isotonic",
) -> StopPolicy:
    """Fit a method by its name.

    ``calibrator`` is how ``calibrated(...)`` is fitted; published presets know ``isotonic`` only.

    Raises
    ------
    UsageError
        For an unknown method, listing the known ones, and another calibrator for a published preset.
    """
    if name not in METHODS:
        raise UsageError(f"unknown method {name!r}; known: {', '.join(sorted(METHODS))}")
    if preset == "published" and calibrator != "isotonic":
        raise UsageError(
            f"the published preset of {name} is calibrated with isotonic, found {calibrator!r}; use "
            "the corrected one"
        )
    return METHODS[name].fit(traces, preset, split, calibrator)
