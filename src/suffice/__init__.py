"""Suffice decides when an iterative retrieval loop has seen enough.

Record a loop once, replay every stopping policy on the record, choose with honest statistics, run the
chosen policy live::

    controller = suffice.Controller.load("policy.json")
    decision = controller.observe(suffice.Round(answer="Oslo"))
    if decision.stop:
        ...
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from suffice.calibration.drift import CoverageMonitor, ExchangeabilityMonitor
    from suffice.costs.prices import prices_of
    from suffice.costs.usage import CostModel
    from suffice.errors import BackendError, DataError, SufficeError, SufficeWarning, UsageError
    from suffice.pipelines.controller import Controller
    from suffice.pipelines.planning import PlanningAgent
    from suffice.policies.ab_rag import ABRagPolicy
    from suffice.policies.file import load_policy, save_policy
    from suffice.policies.fixed import FixedPolicy
    from suffice.policies.gate.gate import Gate
    from suffice.policies.gate.settings import GateCosts, GateSettings, PlanAction
    from suffice.policies.gate.stopping import GatePolicy
    from suffice.policies.methods import fit_method
    from suffice.policies.micp import MiCPPolicy
    from suffice.policies.rule import RulePolicy
    from suffice.protocols import Action, AnswerSet, Decision
    from suffice.replay.certified import CertifySettings
    from suffice.replay.certified_fit import CertifiedSettings, fit_certified
    from suffice.replay.compare import ComparisonSettings, compare
    from suffice.replay.diagnosis import DiagnosisSettings, diagnosis
    from suffice.replay.families import FamilySettings
    from suffice.replay.macro import macro_means
    from suffice.replay.search import SearchSettings, search
    from suffice.replay.sweep import SweepSettings, sweep
    from suffice.trace.plan import PlanTask
    from suffice.trace.plan_file import read_plans
    from suffice.trace.reader import read_traces
    from suffice.trace.records import (
        Gold,
        Passage,
        Question,
        QuestionRecord,
        Round,
        Token,
        TopToken,
        Usage,
    )
    from suffice.trace.table import TraceSet
    from suffice.trace.writer import write_traces

__all__ = [
    "ABRagPolicy",
    "Action",
    "AnswerSet",
    "BackendError",
    "CertifiedSettings",
    "CertifySettings",
    "ComparisonSettings",
    "Controller",
    "CostModel",
    "CoverageMonitor",
    "DataError",
    "Decision",
    "DiagnosisSettings",
    "ExchangeabilityMonitor",
    "FamilySettings",
    "FixedPolicy",
    "Gate",
    "GateCosts",
    "GatePolicy",
    "GateSettings",
    "Gold",
    "MiCPPolicy",
    "Passage",
    "PlanAction",
    "PlanTask",
    "PlanningAgent",
    "Question",
    "QuestionRecord",
    "Round",
    "RulePolicy",
    "SearchSettings",
    "SufficeError",
    "SufficeWarning",
    "SweepSettings",
    "Token",
    "TopToken",
    "TraceSet",
    "Usage",
    "UsageError",
    "compare",
    "diagnosis",
    "fit_certified",
    "fit_method",
    "load_policy",
    "macro_means",
    "prices_of",
    "read_plans",
    "read_traces",
    "save_policy",
    "search",
    "sweep",
    "write_traces",
]

# Names are imported when first used, so that `import suffice` costs next to nothing.
_HOMES = {
    "ABRagPolicy": "policies.ab_rag",
    "Action": "protocols",
    "AnswerSet": "protocols",
    "BackendError": "errors",
    "CertifiedSettings": "replay.certified_fit",
    "CertifySettings": "replay.certified",
    "ComparisonSettings": "replay.compare",
    "Controller": "pipelines.controller",
    "CostModel": "costs.usage",
    "CoverageMonitor": "calibration.drift",
    "DataError": "errors",
    "Decision": "protocols",
    "DiagnosisSettings": "replay.diagnosis",
    "ExchangeabilityMonitor": "calibration.drift",
    "FamilySettings": "replay.families",
    "FixedPolicy": "policies.fixed",
    "Gate": "policies.gate.gate",
    "GateCosts": "policies.gate.settings",
    "GatePolicy": "policies.gate.stopping",
    "GateSettings": "policies.gate.settings",
    "Gold": "trace.records",
    "MiCPPolicy": "policies.micp",
    "Passage": "trace.records",
    "PlanAction": "policies.gate.settings",
    "PlanTask": "trace.plan",
    "PlanningAgent": "pipelines.planning",
    "Question": "trace.records",
    "QuestionRecord": "trace.records",
    "Round": "trace.records",
    "RulePolicy": "policies.rule",
    "SearchSettings": "replay.search",
    "SufficeError": "errors",
    "SufficeWarning": "errors",
    "SweepSettings": "replay.sweep",
    "Token": "trace.records",
    "TopToken": "trace.records",
    "TraceSet": "trace.table",
    "Usage": "trace.records",
    "UsageError": "errors",
    "compare": "replay.compare",
    "diagnosis": "replay.diagnosis",
    "fit_certified": "replay.certified_fit",
    "fit_method": "policies.methods",
    "load_policy": "policies.file",
    "macro_means": "replay.macro",
    "prices_of": "costs.prices",
    "read_plans": "trace.plan_file",
    "read_traces": "trace.reader",
    "save_policy": "policies.file",
    "search": "replay.search",
    "sweep": "replay.sweep",
    "write_traces": "trace.writer",
}


def __getattr__(name: str) -> object:
    if name == "__version__":
        from suffice._version import VERSION

        return VERSION
    if name not in _HOMES:
        raise AttributeError(f"module 'suffice' has no attribute {name!r}")
    return getattr(importlib.import_module(f"suffice.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
