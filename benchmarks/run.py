"""Run every benchmark and print its figures: python -m benchmarks.run [name ...]."""

from __future__ import annotations

import sys

from benchmarks import (
    choose_regret,
    choose_speed,
    cut_estimates,
    embedded_sampling,
    import_cost,
    live_decision,
    model_server,
    monitoring,
    replay_speed,
    retrieval_speed,
    scale,
    scoring_speed,
    search_speed,
    service_decisions,
    signal_columns,
    stop_rag_network,
    store_size,
    watch,
)

BENCHMARKS = {
    "import_cost": import_cost.main,
    "live_decision": live_decision.main,
    "replay_speed": replay_speed.main,
    "scoring_speed": scoring_speed.main,
    "search_speed": search_speed.main,
    "signal_columns": signal_columns.main,
    "retrieval_speed": retrieval_speed.main,
    "model_server": model_server.main,
    "embedded_sampling": embedded_sampling.main,
    "monitoring": monitoring.main,
    "stop_rag_network": stop_rag_network.main,
    "service_decisions": service_decisions.main,
    "watch": watch.main,
    "store_size": store_size.main,
    "choose_regret": choose_regret.main,
    "choose_speed": choose_speed.main,
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
