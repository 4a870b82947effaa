"""A large record replayed by the workers of a Dask cluster, through Dask's own executor.

    pip install suffice distributed
    python examples/dask_scale.py TRACES [SCHEDULER]

Without a scheduler's address two workers of this machine do it. The workers read the files themselves: they
must see TRACES under the same path, and have suffice installed. A record that is small is measured here.
"""

from __future__ import annotations

import sys
from pathlib import Path

from dask.distributed import Client

import suffice
from suffice.evaluation.replay.results import ReplayResult
from suffice.measures.measures import Measures

RULES = ("answer_stable", "overlap > 0.3")


def main(traces: str, scheduler: str | None = None) -> ReplayResult:
    record = suffice.read(Path(traces).absolute())
    with Client(scheduler) if scheduler else Client(n_workers=2, threads_per_worker=1) as client:
        measures = Measures(record, executor=client.get_executor())
        compared = suffice.replay(measures, rules=RULES)
    print(compared.text())
    return compared


if __name__ == "__main__":
    main(*sys.argv[1:])
