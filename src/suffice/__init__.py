"""Suffice decides when an iterative retrieval loop has seen enough.

Record a loop once, replay every stopping policy on the record, choose with honest statistics, run the
chosen policy live in your own loop::

    choice = suffice.choose("example", max_loss=0.05)
    choice.save("policy.json")

    watch = suffice.Watch("policy.json", record="live.db", mode="live")
    with watch.question("Where was Ibsen born?") as loop:
        while not loop.done:
            loop.observe(passages=[...], answer="...")

====================  ======================================================================
read                  a record: questions and their rounds
write                 the same to a file
replay                every policy on a record, compared with paired intervals
choose                one policy for a record, with what it saves and a proven bound
search                every rule of a form
diagnose              what each signal is worth
fit                   TASR, AB-RAG, Stop-RAG, MiCP, the gate, or a rule
Rule                  a policy of one line: ``Rule("answer_repeats and not abstained")``
Watch                 a policy beside your own loop: it records, then stops
Controller            the same, a decision at a time
ask                   answers a question over your own files, stopping by a policy
====================  ======================================================================

``suffice.traces`` splits, merges, labels, imports and exports records. ``suffice.planning`` holds the
planning agent and its gate, ``suffice.contracts`` what your own retriever, model or policy implements.
"""

from __future__ import annotations

import importlib
import warnings
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from suffice import contracts as contracts
    from suffice import monitor as monitor
    from suffice import planning as planning
    from suffice import policies as policies
    from suffice import traces as traces
    from suffice.contracts import AnswerSet as AnswerSet
    from suffice.contracts import Decision as Decision
    from suffice.costs.usage import CostModel as CostModel
    from suffice.errors import BackendError as BackendError
    from suffice.errors import DataError as DataError
    from suffice.errors import StorageError as StorageError
    from suffice.errors import SufficeError as SufficeError
    from suffice.errors import SufficeWarning as SufficeWarning
    from suffice.errors import UsageError as UsageError
    from suffice.interface import ask as ask
    from suffice.interface import choose as choose
    from suffice.interface import diagnose as diagnose
    from suffice.interface import fit as fit
    from suffice.interface import read as read
    from suffice.interface import replay as replay
    from suffice.interface import search as search
    from suffice.interface import write as write
    from suffice.live.controller import Controller as Controller
    from suffice.live.loop import Loop as Loop
    from suffice.live.watch import Watch as Watch
    from suffice.live.watching import Budgets as Budgets
    from suffice.loops.calls import answer_probe as answer_probe
    from suffice.policies.policy_file import load_policy as load_policy
    from suffice.policies.policy_file import save_policy as save_policy
    from suffice.policies.rules.policy import Rule as Rule
    from suffice.signals.known_signals import signal as signal
    from suffice.trace.rounds.labels import Label as Label
    from suffice.trace.rounds.reader import example_record as example_record
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

# Names are imported when first used, so that `import suffice` costs next to nothing.
_NAMES = {
    "contracts": "AnswerSet Decision",
    "costs.usage": "CostModel",
    "errors": "BackendError DataError StorageError SufficeError SufficeWarning UsageError",
    "interface": "ask choose diagnose fit read replay search write",
    "live.controller": "Controller",
    "live.loop": "Loop",
    "live.watch": "Watch",
    "live.watching": "Budgets",
    "loops.calls": "answer_probe",
    "policies.policy_file": "load_policy save_policy",
    "policies.rules.policy": "Rule",
    "signals.known_signals": "signal",
    "trace.rounds.labels": "Label",
    "trace.rounds.reader": "example_record",
    "trace.rounds.records": "Draft Gold Passage Question QuestionRecord Round Token TopToken Usage",
    "trace.rounds.trace_set": "TraceSet",
}
_HOMES = {name: home for home, names in _NAMES.items() for name in names.split()}
_MODULES = ("contracts", "monitor", "planning", "policies", "traces")

_MOVED = {
    "ABRagPolicy": ("policies.ab_rag.policy", "suffice.policies.ab_rag.policy.ABRagPolicy"),
    "Action": ("contracts", "suffice.contracts.Action"),
    "AnswerSettings": ("loops.calls", "suffice.loops.calls.AnswerSettings"),
    "Answered": ("live.answering", "suffice.live.answering.Answered"),
    "AskSettings": ("live.answering", "keyword arguments of suffice.ask"),
    "ChoiceSettings": ("evaluation.settings", "keyword arguments of suffice.choose"),
    "ComparisonSettings": ("evaluation.settings", "keyword arguments of suffice.replay"),
    "CoverageMonitor": ("monitor.alarms", "suffice.monitor.CoverageMonitor"),
    "DiagnosisSettings": ("evaluation.settings", "keyword arguments of suffice.diagnose"),
    "ExchangeabilityMonitor": ("monitor.alarms", "suffice.monitor.ExchangeabilityMonitor"),
    "FixedPolicy": ("policies.unfitted", "suffice.policies.unfitted.FixedPolicy"),
    "Gate": ("policies.gate.gate", "suffice.planning.Gate"),
    "GateCosts": ("policies.gate.gate_settings", "suffice.planning.GateCosts"),
    "GatePolicy": ("policies.gate.policy", "suffice.planning.GatePolicy"),
    "GateSettings": ("policies.gate.gate_settings", "suffice.planning.GateSettings"),
    "MiCPPolicy": ("policies.micp.policy", "suffice.policies.micp.policy.MiCPPolicy"),
    "PlanAction": ("policies.gate.gate_settings", "suffice.planning.PlanAction"),
    "PlanTask": ("trace.plan_traces", "suffice.planning.PlanTask"),
    "PlanningAgent": ("loops.planning.agent", "suffice.planning.PlanningAgent"),
    "ProbeSettings": ("loops.record.probe", "suffice.loops.record.probe.ProbeSettings"),
    "RulePolicy": ("policies.rules.policy:Rule", "suffice.Rule"),
    "SearchSettings": ("evaluation.settings", "keyword arguments of suffice.search"),
    "TraceFilter": ("trace.rounds.derive", "suffice.traces.TraceFilter"),
    "compare": ("evaluation.replay.compare", "suffice.replay"),
    "diagnosis": ("evaluation.diagnose.diagnosis", "suffice.diagnose"),
    "export_traces": ("trace.export", "suffice.traces.export"),
    "filter_traces": ("trace.rounds.derive", "suffice.traces.filter"),
    "fit_method": ("policies.registry", "suffice.fit"),
    "fit_rule": ("policies.fitting", "suffice.fit('rule', ...)"),
    "import_traces": ("datasets.recordings", "suffice.traces.import_"),
    "label_traces": ("datasets.recordings", "suffice.traces.label"),
    "macro_means": ("evaluation.replay.macro", "suffice.evaluation.replay.macro.macro_means"),
    "merge_traces": ("trace.rounds.derive", "suffice.traces.merge"),
    "pool_traces": ("trace.rounds.reader", "suffice.read"),
    "prices_of": ("costs.prices", "suffice.costs.prices.prices_of"),
    "probe_traces": ("loops.record.probe", "suffice.traces.probe"),
    "read_plans": ("trace.plan_traces", "suffice.planning.read_plans"),
    "read_traces": ("trace.rounds.reader", "suffice.read"),
    "redact_traces": ("live.privacy", "suffice.traces.redact"),
    "split_traces": ("trace.rounds.derive", "suffice.traces.split"),
    "traces_info": ("measures.contents", "suffice.traces.info"),
    "write_traces": ("trace.rounds.writer", "suffice.write"),
}
"""Deprecated names: the home of each, and its replacement. The next version removes them."""

_GONE = {
    "sweep": "suffice.choose(record, rule='overlap > ?')",
    "SweepSettings": "suffice.choose(record, rule='overlap > ?')",
    "fit_certified": "suffice.choose(record, max_loss=0.02)",
    "CertifiedSettings": "suffice.choose(record, max_loss=0.02)",
    "CertifySettings": "suffice.choose(record, max_loss=0.02)",
    "FamilySettings": "suffice.choose(record, family='rule')",
}
"""Names that are gone, and what to type now."""


def __getattr__(name: str) -> object:
    if name == "__version__":
        from suffice._version import VERSION

        return VERSION
    if name in _MODULES:
        return importlib.import_module(f"suffice.{name}")
    if name in _MOVED:
        (home, _, held), now = _MOVED[name][0].partition(":"), _MOVED[name][1]
        said = f"suffice.{name} goes with the next version; use {now}"
        warnings.warn(said, DeprecationWarning, stacklevel=2)
        return getattr(importlib.import_module(f"suffice.{home}"), held or name)
    if name not in _HOMES:
        from suffice.errors import did_you_mean

        near = "" if name.startswith("_") else did_you_mean(name, _HOMES)
        near = f"; type {_GONE[name]}" if name in _GONE else near
        raise AttributeError(f"module 'suffice' has no attribute {name!r}{near}")
    return getattr(importlib.import_module(f"suffice.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*_HOMES, "__version__"])
