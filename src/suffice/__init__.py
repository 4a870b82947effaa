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
    from suffice.costs.prices import prices_of
    from suffice.costs.usage import CostModel
    from suffice.errors import BackendError, DataError, SufficeError, SufficeWarning, UsageError
    from suffice.monitor.alarms import CoverageMonitor, ExchangeabilityMonitor
    from suffice.pipelines.live.answering import Answered
    from suffice.pipelines.live.ask import AskSettings, ask
    from suffice.pipelines.live.budgets import Budgets
    from suffice.pipelines.live.controller import Controller
    from suffice.pipelines.planning.agent import PlanningAgent
    from suffice.policies.ab_rag.policy import ABRagPolicy
    from suffice.policies.file import load_policy, save_policy
    from suffice.policies.fitting import fit_rule
    from suffice.policies.fixed import FixedPolicy
    from suffice.policies.gate.gate import Gate
    from suffice.policies.gate.policy import GatePolicy
    from suffice.policies.gate.settings import GateCosts, GateSettings, PlanAction
    from suffice.policies.micp.policy import MiCPPolicy
    from suffice.policies.registry import fit_method
    from suffice.policies.rules.policy import RulePolicy
    from suffice.protocols import Action, AnswerSet, Decision
    from suffice.replay.choose.certified import CertifiedSettings, fit_certified
    from suffice.replay.choose.families import FamilySettings
    from suffice.replay.choose.learn_then_test import CertifySettings
    from suffice.replay.choose.search import search
    from suffice.replay.choose.sweep import sweep
    from suffice.replay.diagnose.diagnosis import diagnosis
    from suffice.replay.run.compare import compare
    from suffice.replay.run.macro import macro_means
    from suffice.replay.settings import (
        ComparisonSettings,
        DiagnosisSettings,
        SearchSettings,
        SweepSettings,
    )
    from suffice.trace.plans.file import read_plans
    from suffice.trace.plans.records import PlanTask
    from suffice.trace.rounds.reader import read_traces
    from suffice.trace.rounds.records import (
        Gold,
        Passage,
        Question,
        QuestionRecord,
        Round,
        Token,
        TopToken,
        Usage,
    )
    from suffice.trace.rounds.table import TraceSet
    from suffice.trace.rounds.writer import write_traces

__all__ = [
    "ABRagPolicy",
    "Action",
    "AnswerSet",
    "Answered",
    "AskSettings",
    "BackendError",
    "Budgets",
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
    "ask",
    "compare",
    "diagnosis",
    "fit_certified",
    "fit_method",
    "fit_rule",
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
    "ABRagPolicy": "policies.ab_rag.policy",
    "Action": "protocols",
    "AnswerSet": "protocols",
    "Answered": "pipelines.live.answering",
    "AskSettings": "pipelines.live.ask",
    "BackendError": "errors",
    "Budgets": "pipelines.live.budgets",
    "CertifiedSettings": "replay.choose.certified",
    "CertifySettings": "replay.choose.learn_then_test",
    "ComparisonSettings": "replay.settings",
    "Controller": "pipelines.live.controller",
    "CostModel": "costs.usage",
    "CoverageMonitor": "monitor.alarms",
    "DataError": "errors",
    "Decision": "protocols",
    "DiagnosisSettings": "replay.settings",
    "ExchangeabilityMonitor": "monitor.alarms",
    "FamilySettings": "replay.choose.families",
    "FixedPolicy": "policies.fixed",
    "Gate": "policies.gate.gate",
    "GateCosts": "policies.gate.settings",
    "GatePolicy": "policies.gate.policy",
    "GateSettings": "policies.gate.settings",
    "Gold": "trace.rounds.records",
    "MiCPPolicy": "policies.micp.policy",
    "Passage": "trace.rounds.records",
    "PlanAction": "policies.gate.settings",
    "PlanTask": "trace.plans.records",
    "PlanningAgent": "pipelines.planning.agent",
    "Question": "trace.rounds.records",
    "QuestionRecord": "trace.rounds.records",
    "Round": "trace.rounds.records",
    "RulePolicy": "policies.rules.policy",
    "SearchSettings": "replay.settings",
    "SufficeError": "errors",
    "SufficeWarning": "errors",
    "SweepSettings": "replay.settings",
    "Token": "trace.rounds.records",
    "TopToken": "trace.rounds.records",
    "TraceSet": "trace.rounds.table",
    "Usage": "trace.rounds.records",
    "UsageError": "errors",
    "ask": "pipelines.live.ask",
    "compare": "replay.run.compare",
    "diagnosis": "replay.diagnose.diagnosis",
    "fit_certified": "replay.choose.certified",
    "fit_method": "policies.registry",
    "fit_rule": "policies.fitting",
    "load_policy": "policies.file",
    "macro_means": "replay.run.macro",
    "prices_of": "costs.prices",
    "read_plans": "trace.plans.file",
    "read_traces": "trace.rounds.reader",
    "save_policy": "policies.file",
    "search": "replay.choose.search",
    "sweep": "replay.choose.sweep",
    "write_traces": "trace.rounds.writer",
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
