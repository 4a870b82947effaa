"""Run every benchmark and print its figures: python -m benchmarks.run [name ...]."""

from __future__ import annotations

import sys

from benchmarks import (
    choose_regret,
    cut_estimates,
    import_cost,
    live_decision,
    monitoring,
    replay_speed,
    retrieval_speed,
    scale,
    search_speed,
    service_decisions,
    watch,
)

BENCHMARKS = {
    "import_cost": import_cost.main,
    "live_decision": live_decision.main,
    "replay_speed": replay_speed.main,
    "search_speed": search_speed.main,
    "retrieval_speed": retrieval_speed.main,
    "monitoring": monitoring.main,
    "service_decisions": service_decisions.main,
    "watch": watch.main,
    "choose_regret": choose_regret.main,
    "cut_estimates": cut_estimates.main,
    "scale": scale.main,
}


def main(names: list[str]) -> None:
    for name in names or list(BENCHMARKS):
        print(name)
        for figure, value in BENCHMARKS[name]().items():
            print(f"  {value:12.4g}  {figure}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
