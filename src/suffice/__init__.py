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
    from suffice.errors import BackendError, DataError, SufficeError, SufficeWarning, UsageError
    from suffice.pipelines.controller import Controller
    from suffice.policies.file import load_policy, save_policy
    from suffice.policies.fixed import FixedPolicy
    from suffice.policies.methods import fit_method
    from suffice.policies.rule import RulePolicy
    from suffice.protocols import Action, Decision
    from suffice.replay.compare import ComparisonSettings, compare
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
    "Action",
    "BackendError",
    "ComparisonSettings",
    "Controller",
    "DataError",
    "Decision",
    "FixedPolicy",
    "Gold",
    "Passage",
    "Question",
    "QuestionRecord",
    "Round",
    "RulePolicy",
    "SufficeError",
    "SufficeWarning",
    "Token",
    "TopToken",
    "TraceSet",
    "Usage",
    "UsageError",
    "compare",
    "fit_method",
    "load_policy",
    "read_traces",
    "save_policy",
    "write_traces",
]

# Names are imported when first used, so that `import suffice` costs next to nothing.
_HOMES = {
    "Action": "protocols",
    "BackendError": "errors",
    "ComparisonSettings": "replay.compare",
    "Controller": "pipelines.controller",
    "DataError": "errors",
    "Decision": "protocols",
    "FixedPolicy": "policies.fixed",
    "Gold": "trace.records",
    "Passage": "trace.records",
    "Question": "trace.records",
    "QuestionRecord": "trace.records",
    "Round": "trace.records",
    "RulePolicy": "policies.rule",
    "SufficeError": "errors",
    "SufficeWarning": "errors",
    "Token": "trace.records",
    "TopToken": "trace.records",
    "TraceSet": "trace.table",
    "Usage": "trace.records",
    "UsageError": "errors",
    "compare": "replay.compare",
    "fit_method": "policies.methods",
    "load_policy": "policies.file",
    "read_traces": "trace.reader",
    "save_policy": "policies.file",
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
