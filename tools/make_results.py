"""Write the tables of docs/results: run each command on recorded traces and keep what it printed.

    python tools/make_results.py FOLDER

FOLDER holds the trace sets named in SETS, recorded with the commands that docs/results/README.md lists.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
OUT = ROOT / "docs" / "results" / "tables.md"
SETS = ("hotpotqa.parquet", "2wiki.parquet")
SIGNALS = (
    "answer_stable,calibrated(answer_token_margin),overlap,token_probability,"
    "answer_in_evidence,retrieval_z_robust"
)
METHODS = (
    "tasr",
    "tasr-corrected",
    "margin-alone",
    "overlap-alone",
    "stable-base-rate",
    "early-stop",
)
LOOP_POLICIES = ("fixed-1", "fixed-2", "fixed-3", "fixed-5", *METHODS, "oracle-em", "oracle-f1")
POLICIES = ("closed-book", *LOOP_POLICIES)
VARIANTS = (
    "answer_stable",
    *(
        f"answer_stable and calibrated({margin}) > 0.25"
        for margin in (
            "answer_token_margin",
            "margin_min",
            "margin_p10",
            "margin_mean",
            "margin_median",
            "token_probability",
            "verbalized_confidence",
        )
    ),
    "answer_similarity_f1 > 0.8 and calibrated(answer_token_margin) > 0.25",
    "answer_similarity_seq > 0.8 and calibrated(answer_token_margin) > 0.25",
    "answer_stable and calibrated(answer_token_margin) > 0.25 or retrieval_z_robust > 3",
    "answer_stable and answer_in_evidence",
)


def _rules(rules: tuple[str, ...]) -> str:
    return " ".join(f"--stop-when '{rule}'" for rule in rules)


def _policies(names: tuple[str, ...]) -> str:
    return " ".join(f"--policy {name}" for name in names)


def sections() -> list[tuple[str, list[str]]]:
    """Headings, each with its commands."""
    sections = [
        (
            f"Policies side by side: {source}",
            [f"suffice replay {source} {_policies(POLICIES)}"],
        )
        for source in SETS
    ]
    first, second = SETS
    sections.append(
        (
            "Means over both sets",
            [f"suffice replay {first} --macro {second} {_policies(LOOP_POLICIES)}"],
        )
    )
    sections += [
        (
            f"Signals, calibrators, question types: {source}",
            [f"suffice diagnose {source} --policy tasr-corrected --policy fixed-5"],
        )
        for source in SETS
    ]
    sections += [(f"The floor of TASR: {source}", [f"suffice sweep {source}"]) for source in SETS]
    sections += [
        (
            f"Variants of the rule: {source}",
            [f"suffice replay {source} --baseline fixed-3 {_rules(VARIANTS)}"],
        )
        for source in SETS
    ]
    sections += [
        (
            f"Search: {source}",
            [
                f"suffice search {source} --signals '{SIGNALS}' --form {form} --max-calls 3 "
                "--report-naive --top 8"
                for form in ("dnf", "or")
            ],
        )
        for source in SETS
    ]
    sections += [
        (
            f"Calibration carried over to {here}",
            [
                f"suffice replay {here} --fit-on {there} --policy tasr-corrected "
                "--stop-when 'answer_stable and calibrated(answer_token_margin) > 0.25'",
                f"suffice replay {here} --policy tasr-corrected "
                "--stop-when 'answer_stable and calibrated(answer_token_margin) > 0.25'",
            ],
        )
        for here, there in ((first, second), (second, first))
    ]
    sections += [
        (
            f"Certified choice: {source}",
            [
                f"suffice fit certified {source} --family {family} --max-loss {loss} --attempts 3 "
                "--out certified.json"
                for family, loss in (("rule", 0.02), ("rule", 0.1), ("fixed", 0.1))
            ],
        )
        for source in SETS
    ]
    sections += [
        (
            f"Other costs: {source}",
            [
                f"suffice replay {source} {_policies(('tasr-corrected', 'fixed-2', 'fixed-5'))} --cost {cost}"
            ],
        )
        for source in SETS
        for cost in ("joules",)
    ]
    return sections


def run(command: str, folder: Path) -> str:
    """What the command prints, standard error after standard output."""
    words = shlex.split(command)
    done = subprocess.run(  # noqa: S603 - the commands stand above
        [str(Path(sys.executable).parent / words[0]), *words[1:]],
        capture_output=True,
        text=True,
        cwd=folder,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{command}: {done.stderr}")
    printed = done.stdout.rstrip()
    return f"{printed}\n{done.stderr.rstrip()}".rstrip()


def main(folder: Path) -> None:
    """Run everything and write the page."""
    parts = [
        "# Result tables",
        "",
        "Every command with what it printed, on the recordings of [this page](README.md). Written by",
        "`python tools/make_results.py FOLDER`.",
    ]
    for heading, commands in sections():
        parts += ["", f"## {heading}"]
        for command in commands:
            print(command, file=sys.stderr)
            parts += ["", "```text", f"$ {command}", run(command, folder), "```"]
    OUT.parent.mkdir(parents=True, exist_ok=True)
    OUT.write_text("\n".join(parts) + "\n", encoding="utf-8")
    print(f"wrote {OUT}")


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
