"""The commands of ``suffice traces`` as functions: split, merge, filter, label, import, export."""

from suffice.datasets.recordings import import_traces as import_
from suffice.datasets.recordings import label_traces as label
from suffice.live.privacy import redact_traces as redact
from suffice.loops.record.probe import probe_traces as probe
from suffice.measures.contents import traces_info as info
from suffice.trace.export import export_traces as export
from suffice.trace.rounds.derive import TraceFilter
from suffice.trace.rounds.derive import filter_traces as filter  # noqa: A004
from suffice.trace.rounds.derive import merge_traces as merge
from suffice.trace.rounds.derive import split_traces as split

__all__ = [
    "TraceFilter",
    "export",
    "filter",
    "import_",
    "info",
    "label",
    "merge",
    "probe",
    "redact",
    "split",
]
