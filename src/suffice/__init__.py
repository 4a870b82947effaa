"""Suffice decides when an iterative retrieval loop has seen enough.

Record a loop once, replay every stopping policy on the record, choose with honest statistics, run the
chosen policy live in your own loop::

    controller = suffice.Controller.load("policy.json")
    decision = controller.observe(suffice.Round(answer="Oslo"))
    if decision.stop:
        ...

The names to know first; ``help(suffice.Controller)`` and so on tell more:

====================  ======================================================================
Round                 what a loop did in one round: the answer, and what else a policy reads
Controller            a policy in your own loop: ``observe`` a round, get a Decision
Watch                 many loops at once, in shadow or live, recorded as they run
ask                   answers a question over your own passages, stopping by a policy
write_traces          writes recorded questions and their rounds as a Parquet trace
read_traces           reads a trace
example_record        the trace that comes with suffice, to try things on
choose                one policy for a trace, with what it saves and a proven bound
compare               replays policies and rules on a trace, with paired intervals
fit_method            fits TASR, AB-RAG, Stop-RAG, MiCP or the gate on a trace
RulePolicy            a rule of one line as a policy, ``answer_stable and not abstained``
save_policy           writes a policy file, which Controller, replay and ask take
====================  ======================================================================

``dir(suffice)`` lists all others. They live in folders: ``suffice.trace`` and ``suffice.policies``
(records, policies), ``suffice.replay``, ``suffice.signals`` and ``suffice.costs`` (what is compared,
read and paid), ``suffice.loops``, ``suffice.retrieval`` and ``suffice.llm`` (loops, retrievers,
models), ``suffice.monitor`` (promises in use).
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from suffice.contracts import Action as Action
    from suffice.contracts import AnswerSet as AnswerSet
    from suffice.contracts import Decision as Decision
    from suffice.costs.prices import prices_of as prices_of
    from suffice.costs.usage import CostModel as CostModel
    from suffice.datasets.recordings import import_traces as import_traces
    from suffice.datasets.recordings import label_traces as label_traces
    from suffice.errors import BackendError as BackendError
    from suffice.errors import DataError as DataError
    from suffice.errors import StorageError as StorageError
    from suffice.errors import SufficeError as SufficeError
    from suffice.errors import SufficeWarning as SufficeWarning
    from suffice.errors import UsageError as UsageError
    from suffice.live.answering import Answered as Answered
    from suffice.live.answering import AskSettings as AskSettings
    from suffice.live.answering import ask as ask
    from suffice.live.controller import Controller as Controller
    from suffice.live.loop import Loop as Loop
    from suffice.live.privacy import redact_traces as redact_traces
    from suffice.live.watch import Watch as Watch
    from suffice.live.watching import Budgets as Budgets
    from suffice.loops.calls import AnswerSettings as AnswerSettings
    from suffice.loops.calls import answer_probe as answer_probe
    from suffice.loops.planning.agent import PlanningAgent as PlanningAgent
    from suffice.loops.record.probe import ProbeSettings as ProbeSettings
    from suffice.loops.record.probe import probe_traces as probe_traces
    from suffice.measures.contents import traces_info as traces_info
    from suffice.monitor.alarms import CoverageMonitor as CoverageMonitor
    from suffice.monitor.alarms import ExchangeabilityMonitor as ExchangeabilityMonitor
    from suffice.policies.ab_rag.policy import ABRagPolicy as ABRagPolicy
    from suffice.policies.fitting import fit_rule as fit_rule
    from suffice.policies.gate.gate import Gate as Gate
    from suffice.policies.gate.gate_settings import GateCosts as GateCosts
    from suffice.policies.gate.gate_settings import GateSettings as GateSettings
    from suffice.policies.gate.gate_settings import PlanAction as PlanAction
    from suffice.policies.gate.policy import GatePolicy as GatePolicy
    from suffice.policies.micp.policy import MiCPPolicy as MiCPPolicy
    from suffice.policies.policy_file import load_policy as load_policy
    from suffice.policies.policy_file import save_policy as save_policy
    from suffice.policies.registry import fit_method as fit_method
    from suffice.policies.rules.policy import RulePolicy as RulePolicy
    from suffice.policies.unfitted import FixedPolicy as FixedPolicy
    from suffice.replay.choose.procedure import choose as choose
    from suffice.replay.choose.search import search as search
    from suffice.replay.diagnose.diagnosis import diagnosis as diagnosis
    from suffice.replay.run.compare import compare as compare
    from suffice.replay.run.macro import macro_means as macro_means
    from suffice.replay.settings import ChoiceSettings as ChoiceSettings
    from suffice.replay.settings import ComparisonSettings as ComparisonSettings
    from suffice.replay.settings import DiagnosisSettings as DiagnosisSettings
    from suffice.replay.settings import SearchSettings as SearchSettings
    from suffice.signals.known_signals import signal as signal
    from suffice.trace.export import export_traces as export_traces
    from suffice.trace.plan_traces import PlanTask as PlanTask
    from suffice.trace.plan_traces import read_plans as read_plans
    from suffice.trace.rounds.derive import TraceFilter as TraceFilter
    from suffice.trace.rounds.derive import filter_traces as filter_traces
    from suffice.trace.rounds.derive import merge_traces as merge_traces
    from suffice.trace.rounds.derive import split_traces as split_traces
    from suffice.trace.rounds.labels import Label as Label
    from suffice.trace.rounds.reader import example_record as example_record
    from suffice.trace.rounds.reader import pool_traces as pool_traces
    from suffice.trace.rounds.reader import read_traces as read_traces
    from suffice.trace.rounds.records import Draft as Draft
    from suffice.trace.rounds.records import Gold as Gold
    from suffice.trace.rounds.records import Passage as Passage
    from suffice.trace.rounds.records import Question as Question
    from suffice.trace.rounds.records import QuestionRecord as QuestionRecord
    from suffice.trace.rounds.records import Round as Round
    from suffice.trace.rounds.records import Token as Token
    from suffice.trace.rounds.records import TopToken as TopToken
    from suffice.trace.rounds.records import Usage as Usage
    from suffice.trace.rounds.trace_set import TraceSet as TraceSet
    from suffice.trace.rounds.writer import write_traces as write_traces

# Names are imported when first used, so that `import suffice` costs next to nothing.
_HOMES = {
    name: home
    for home, names in {
        "contracts": "Action AnswerSet Decision",
        "costs.prices": "prices_of",
        "costs.usage": "CostModel",
        "datasets.recordings": "import_traces label_traces",
        "errors": "BackendError DataError StorageError SufficeError SufficeWarning UsageError",
        "live.answering": "Answered AskSettings ask",
        "live.controller": "Controller",
        "live.loop": "Loop",
        "live.privacy": "redact_traces",
        "live.watch": "Watch",
        "live.watching": "Budgets",
        "loops.calls": "AnswerSettings answer_probe",
        "loops.planning.agent": "PlanningAgent",
        "loops.record.probe": "ProbeSettings probe_traces",
        "measures.contents": "traces_info",
        "monitor.alarms": "CoverageMonitor ExchangeabilityMonitor",
        "policies.ab_rag.policy": "ABRagPolicy",
        "policies.fitting": "fit_rule",
        "policies.gate.gate": "Gate",
        "policies.gate.gate_settings": "GateCosts GateSettings PlanAction",
        "policies.gate.policy": "GatePolicy",
        "policies.micp.policy": "MiCPPolicy",
        "policies.policy_file": "load_policy save_policy",
        "policies.registry": "fit_method",
        "policies.rules.policy": "RulePolicy",
        "policies.unfitted": "FixedPolicy",
        "replay.choose.procedure": "choose",
        "replay.choose.search": "search",
        "replay.diagnose.diagnosis": "diagnosis",
        "replay.run.compare": "compare",
        "replay.run.macro": "macro_means",
        "replay.settings": "ChoiceSettings ComparisonSettings DiagnosisSettings SearchSettings",
        "signals.known_signals": "signal",
        "trace.export": "export_traces",
        "trace.plan_traces": "PlanTask read_plans",
        "trace.rounds.derive": "TraceFilter filter_traces merge_traces split_traces",
        "trace.rounds.labels": "Label",
        "trace.rounds.reader": "example_record pool_traces read_traces",
        "trace.rounds.records": "Draft Gold Passage Question QuestionRecord Round Token TopToken Usage",
        "trace.rounds.trace_set": "TraceSet",
        "trace.rounds.writer": "write_traces",
    }.items()
    for name in names.split()
}


def __getattr__(name: str) -> object:
    if name == "__version__":
        from suffice._version import VERSION

        return VERSION
    if name not in _HOMES:
        from suffice.errors import did_you_mean

        near = "" if name.startswith("_") else did_you_mean(name, _HOMES)
        raise AttributeError(f"module 'suffice' has no attribute {name!r}{near}")
    return getattr(importlib.import_module(f"suffice.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*_HOMES, "__version__"])
