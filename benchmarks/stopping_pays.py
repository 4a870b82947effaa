"""Where stopping pays: one row a record, behind studies/results/stopping-pays.md.

``python -m benchmarks.stopping_pays RECORD ...`` prints three Markdown tables over all questions of each
record: what its rounds bring, and what fixed budgets, a proven policy and an oracle make of it; the chosen
policy against the best fixed number of rounds at equal cost; whether a signal tells when going on pays.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np

import suffice
from suffice.evaluation.diagnose.gains import shown
from suffice.measures.measures import Measures

COSTS = ("evaluated_tokens", "rounds")
LOSSES = (0.02, 0.05)


def oracle(traces: suffice.TraceSet) -> tuple[float, float]:
    """The mean of each question's best score, and the mean round that first has it."""
    name = "oracle-f1" if Measures.of(traces).usual() == "f1" else "oracle-score"
    replayed = suffice.replay(traces, [name], split="all")
    best = next(one for one in replayed.policies if one.name == name)
    return float(best.score or 0.0), best.mean_rounds


def rows_of(record: str) -> tuple[str, str, str]:
    """One row of each table."""
    traces, name = suffice.read(record), Path(record).stem
    choice = _chosen(traces)
    costs, scores = choice["replay"]["frontier"]["costs"], _scores(choice)
    full = choice["replay"]["full_costs"]
    cost = choice["replay"]["cost"]
    proven = {
        row["max_loss"]: f"{100 * row['saved']:.1f}% `{row['rule'] or row['title']}`"
        if row["proven"]
        else f"not ({row['questions_needed'] or '-'})"
        for row in choice["table"]
    }
    best, best_round = oracle(traces)
    first = _policy(choice, "fixed-1")["delta_full"]
    peak = int(np.argmax(scores))
    what = [
        name,
        f"{choice['questions']['all']:,}",
        f"{full['rounds']:.2f}",
        f"{100 * scores[0]:.1f}",
        f"{100 * scores[-1]:.1f}",
        _points({end: -first[other] for end, other in _TURNED.items()}),
        f"fixed-{peak + 1}: {100 * scores[peak]:.1f}",
        *(proven.get(loss, "-") for loss in LOSSES),
        f"{100 * best:.1f} at {best_round:.2f}",
    ]
    kind, measured = "proven", choice["measured"]
    if choice["guess"] and not choice["promise"]:
        kind, measured = "likely", choice["guess"]["measured"]
    paid = measured["mean_rounds" if cost == "rounds" else cost]
    best_policy = [
        name,
        cost.replace("_", " "),
        f"`{measured['name']}`, {kind}",
        f"{measured['mean_rounds']:.2f}",
        f"{100 * (1 - paid / costs[-1]):.1f}%",
        _points(measured["delta_full"]),
        " ".join(
            f"{_points(one['gain'])} ({one['fixed']})"
            for one in measured["against_fixed"] or ()
            if one["cost"] == cost
        ),
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = suffice.diagnose(traces).to_json()["gains"]
    told = [name, *["-"] * 5]
    if found:
        strongest = max(found["signals"].items(), key=lambda one: abs(one[1]["z"] or 0.0))
        together = found["signals"]["all signals together"]
        told[1:] = [
            f"{found['questions']:,}",
            f"{100 * found['mean_gain']:+.1f}",
            f"`{strongest[0]}` {_number(strongest[1]['r'])}",
            _number(together["r"]),
            f"{', '.join(shown(found)) or 'none'} ({_smallest(found['smallest'])})",
        ]
    return tuple(f"| {' | '.join(row)} |" for row in (what, best_policy, told))  # type: ignore[return-value]


_TURNED = {"estimate": "estimate", "low": "high", "high": "low"}


def _chosen(traces: suffice.TraceSet) -> dict[str, Any]:
    for cost in COSTS:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return dict(suffice.choose(traces, cost=cost).to_json())
        except (suffice.UsageError, suffice.DataError) as error:
            refused = error
    raise refused


def _policy(choice: dict[str, Any], name: str) -> dict[str, Any]:
    return next(one for one in choice["replay"]["policies"] if one["name"] == name)


def _scores(choice: dict[str, Any]) -> list[float]:
    frontier = choice["replay"]["frontier"]
    return list(next(frontier[name] for name in ("f1", "score") if frontier.get(name) is not None))


def _points(interval: dict[str, float]) -> str:
    return "{:+.1f} [{:.1f}, {:.1f}]".format(
        *(100 * interval[end] for end in ("estimate", "low", "high"))
    )


def _smallest(correlation: float | None) -> str:
    return "-" if correlation is None else f"{correlation:.2f}"


def _number(estimate: dict[str, Any]) -> str:
    if estimate["low"] is None:
        return "-"
    return f"{estimate['estimate']:+.2f} [{estimate['low']:.2f}, {estimate['high']:.2f}]"


HEADS = (
    "record | questions | rounds as run | round 1 | all rounds | all over one | best fixed budget | proven "
    "at 2 points | proven at 5 points | oracle",
    "record | cost | chosen policy | rounds | saved | change to all rounds | over fixed-k at equal cost",
    "record | questions | mean gain | strongest signal | all signals together | shown (smallest to be shown)",
)


def main(records: list[str]) -> None:
    """Print the three tables."""
    rows = []
    for record in records:
        print(record, file=sys.stderr)
        rows.append(rows_of(record))
    for head, table in zip(HEADS, zip(*rows, strict=True), strict=True):
        print(f"| {head} |\n|{'---|' * (head.count(' | ') + 1)}", *table, sep="\n", end="\n\n")


if __name__ == "__main__":
    main(sys.argv[1:])
