"""Search for a rule, choose one with a promise, and say what is known of both, on a recorded trace."""

from __future__ import annotations

from pathlib import Path

import suffice

TRACES = Path(__file__).parent / "traces" / "generated.parquet"


def main() -> None:
    traces = suffice.read(TRACES)
    signals = ("answer_stable", "calibrated(answer_token_margin)", "overlap", "self_consistency")
    found = suffice.search(traces, signals, form="dnf", max_cost=3)
    best = found.rules[0]
    print(f"best on tune of {found.evaluated}: {best.rule}")
    print(
        f"  on eval F1 {best.f1:.3f}, with all rules in mind between {best.interval.low:.3f} and "
        f"{best.interval.high:.3f}; against {found.baseline}: p = {best.p_holm:.2f} (Holm)"
    )
    choice = suffice.choose(traces, family="rule", max_loss=0.1)
    print(f"chosen: {choice.policy}")
    print(f"  {choice.headline}")


if __name__ == "__main__":
    main()
