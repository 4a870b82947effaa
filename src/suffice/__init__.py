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
look                  at logs without labels: costs, ends, repeats, what a cap would have saved
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
    from suffice.interface import look as look
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
    "interface": "ask choose diagnose fit look read replay search write",
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


def __getattr__(name: str) -> object:
    if name == "__version__":
        from suffice._version import VERSION

        return VERSION
    if name in _MODULES:
        return importlib.import_module(f"suffice.{name}")
    if name not in _HOMES:
        from suffice.errors import did_you_mean

        near = "" if name.startswith("_") else did_you_mean(name, _HOMES)
        raise AttributeError(f"module 'suffice' has no attribute {name!r}{near}")
    return getattr(importlib.import_module(f"suffice.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*_HOMES, "__version__"])
