"""All methods side by side on records of loops whose queries depend on earlier rounds.

``python -m benchmarks.loops_compared RECORD ...`` prints the tables of studies/results/loops.md: every fixed
budget, method and peers' rule that the record can feed, fitted on split tune and replayed on split eval, with
its score over the best fixed budget (or mix of two) for the same evaluated tokens; how many questions would
tell a true difference of two points from none, as the interval's width has it; and what ``suffice choose``
says for bounds of 2 and 10 points. MiCP is fitted on exact match, which hashes of answers tell as well, so
that redacted records give every row.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import NormalDist
from typing import Any

COST = "evaluated_tokens"
SIGNALS = ("self_consistency", "token_probability")
POLICIES = (
    *(f"fixed-{k}" for k in range(1, 6)),
    *("tasr", "tasr-corrected", "early-stop-corrected", "margin-alone-corrected"),
    *("overlap-alone-corrected", "stable-base-rate-corrected", "gate-corrected"),
    *("ab-rag", "stop-rag"),
    *(f"loopgain:1-{signal}" for signal in SIGNALS),
    *(f"optillm-deep-research:{signal}" for signal in SIGNALS),
    *(f"patience-2:highest:{signal}" for signal in SIGNALS),
)
MICP = "micp.json"
RULES = ("answer_stable", "llm_stop")
BOUNDS = (0.02, 0.1)
Z = 1.96
# of a paired test at 5% that finds a true difference four times in five
REACH = NormalDist().inv_cdf(0.975) + NormalDist().inv_cdf(0.8)


def suffice(*words: str) -> str:
    """What the command prints on standard output."""
    done = subprocess.run(
        [sys.executable, "-m", "suffice", *words], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"suffice {' '.join(words)}: {done.stderr}")
    return done.stdout


def replayed(record: str) -> dict[str, Any]:
    """The document of the replay of every policy."""
    with tempfile.TemporaryDirectory() as folder:
        micp = str(Path(folder) / MICP)
        suffice("fit", "micp", record, *f"--preset corrected --metric em --out {micp}".split())
        asked = [word for name in (*POLICIES, micp) for word in ("--policy", name)]
        asked += [word for rule in RULES for word in ("--stop-when", rule)]
        asked += f"--cost {COST} --baseline fixed-5 --json".split()
        document: dict[str, Any] = json.loads(suffice("replay", record, *asked))
    return document


def table(record: str) -> list[str]:
    """One row a policy, those that cost least first."""
    document = replayed(record)
    questions, metric = document["questions"], document["metric"]
    rows = [
        f"### {Path(record).stem}: {questions} questions of split {document['split']}",
        "",
        f"| policy | {metric.upper()} | rounds | calls | evaluated tokens | to fixed-5 | over fixed-k | "
        "2 points take |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for policy in sorted(document["policies"], key=lambda policy: policy[COST]):
        over = [against for against in policy["against_fixed"] or () if against["cost"] == COST]
        gain = take = ""
        if over and not policy["name"].startswith("fixed-"):
            held = over[0]["held"]
            gain = f"{_points(over[0]['gain'])} ({over[0]['fixed']})"
            spread = (held["high"] - held["low"]) / (2 * Z) * questions**0.5
            take = f"{math.ceil((REACH * spread / 0.02) ** 2):,}"
        to_full = "" if policy["name"] == "fixed-5" else _points(policy[f"delta_{metric}"])
        rows.append(
            f"| `{policy['name']}` | {100 * policy[metric]:.1f} | {policy['mean_rounds']:.2f} | "
            f"{policy['llm_calls']:.1f} | {policy[COST]:,.0f} | {to_full} | {gain} | {take} |"
        )
    left_out = ", ".join(document["left_out"]) or "none"
    return [*rows, "", f"Left out, for what the record lacks: {left_out}.", ""]


def _points(interval: dict[str, float]) -> str:
    estimate, low, high = (100 * interval[end] for end in ("estimate", "low", "high"))
    return f"{estimate:+.1f} [{low:.1f}, {high:.1f}]"


def chosen(record: str) -> list[str]:
    """What ``choose`` says of the record, a row a bound."""
    rows = []
    for bound in BOUNDS:
        with tempfile.TemporaryDirectory() as folder:
            suffice("choose", record, *f"--cost {COST} --max-loss {bound} --out {folder}".split())
            choice = json.loads((Path(folder) / "choice.json").read_text(encoding="utf-8"))
        guess = choice["guess"]["name"] if choice["guess"] else "-"
        rows.append(
            f"| {Path(record).stem} | {100 * bound:g} | {len(choice['candidates'])} | {choice['headline']} | "
            f"{guess} | {choice['answers']['How sure is that?']} |"
        )
    return rows


def main(records: list[str]) -> None:
    """Print everything."""
    for record in records:
        print("\n".join(table(record)))
    print(
        "| record | bound | candidates | what to do | guess | how sure |\n|---|---|---|---|---|---|"
    )
    for record in records:
        print("\n".join(chosen(record)))


if __name__ == "__main__":
    main(sys.argv[1:])
