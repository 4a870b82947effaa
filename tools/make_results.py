"""Write the tables of studies/results: run each command on recorded traces and keep what it printed.

    python tools/make_results.py FOLDER RECORD [RECORD]

FOLDER holds the records, as studies/results/tasr.md says where from. Two are compared with each other, too.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from suffice.policies.defaults import TEMPLATE
from suffice.trace.rounds.reader import read_traces

ROOT = Path(__file__).parents[1]
PAPER = "--baseline fixed-3"
"""What the papers compare with."""
OUT = ROOT / "studies" / "results" / "tables.md"
SIGNALS = (
    "answer_stable",
    "calibrated(answer_token_margin)",
    "overlap",
    "token_probability",
    "answer_in_evidence",
    "retrieval_z_robust",
)
CANDIDATES = "retrieval_z_robust"
"""Needs the scores of passages that were not shown, which not every record holds."""
METHODS = (
    "tasr",
    "tasr-corrected",
    "margin-alone",
    "overlap-alone",
    "stable-base-rate",
    "early-stop",
)
LOOP_POLICIES = ("fixed-1", "fixed-2", "fixed-3", "fixed-5", *METHODS, "oracle-em", "oracle-f1")
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


def sections(
    sources: Sequence[str], closed_book: Collection[str], candidates: Collection[str]
) -> list[tuple[str, list[str]]]:
    """Headings, each with its commands.

    ``closed_book`` are the records that hold answers without passages, ``candidates`` those with the scores
    of passages that were not shown.
    """

    def known(texts: Sequence[str], source: str) -> tuple[str, ...]:
        return tuple(text for text in texts if CANDIDATES not in text or source in candidates)

    sections = [
        (
            f"Policies side by side: {source}",
            [
                f"suffice replay {source} {PAPER} "
                + _policies(("closed-book",) * (source in closed_book) + LOOP_POLICIES)
            ],
        )
        for source in sources
    ]
    pairs = [tuple(sources), tuple(reversed(sources))] if len(sources) == 2 else []
    sections += [
        (
            "Means over both sets",
            [f"python -m studies.tasr {first} {second} {PAPER} {_policies(LOOP_POLICIES)}"],
        )
        for first, second in pairs[:1]
    ]
    sections += [
        (
            f"Signals, calibrators, question types: {source}",
            [f"suffice diagnose {source} --policy tasr-corrected --policy fixed-5"],
        )
        for source in sources
    ]
    sections += [
        (
            f"The floor of TASR: {source}",
            [f"suffice choose {source} --rule '{TEMPLATE}' --out chosen"],
        )
        for source in sources
    ]
    sections += [
        (
            f"Variants of the rule: {source}",
            [f"suffice replay {source} {PAPER} {_rules(known(VARIANTS, source))}"],
        )
        for source in sources
    ]
    sections += [
        (
            f"Search: {source}",
            [
                f"suffice search {source} --signals '{','.join(known(SIGNALS, source))}' "
                f"--form {form} --max-calls 3 {PAPER} "
                "--report-naive --top 8"
                for form in ("dnf", "or")
            ],
        )
        for source in sources
    ]
    sections += [
        (
            f"Calibration carried over to {here}",
            [
                f"suffice replay {here} --fit-on {there} {PAPER} --policy tasr-corrected "
                "--stop-when 'answer_stable and calibrated(answer_token_margin) > 0.25'",
                f"suffice replay {here} {PAPER} --policy tasr-corrected "
                "--stop-when 'answer_stable and calibrated(answer_token_margin) > 0.25'",
            ],
        )
        for here, there in pairs
    ]
    sections += [
        (
            f"Certified choice: {source}",
            [
                f"suffice choose {source} --family {family} --max-loss {loss} --out chosen"
                for family, loss in (("rule", 0.02), ("rule", 0.1), ("fixed", 0.1))
            ],
        )
        for source in sources
    ]
    sections += [
        (
            f"Other costs: {source}",
            [
                f"suffice replay {source} {PAPER} "
                f"{_policies(('tasr-corrected', 'fixed-2', 'fixed-5'))} --cost {cost}"
            ],
        )
        for source in sources
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
        env={**os.environ, "PYTHONPATH": str(ROOT)},  # where the studies are
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{command}: {done.stderr}")
    said = [line for line in done.stderr.splitlines() if not line.endswith((" s so far", " ..."))]
    return "\n".join([done.stdout.rstrip(), *said]).rstrip()


def main(folder: Path, sources: Sequence[str]) -> None:
    """Run everything and write the page."""
    records = {source: read_traces(folder / source) for source in sources}
    closed_book = [name for name, record in records.items() if record.closed_book.num_rows]
    candidates = [name for name, record in records.items() if record.has("candidate_scores")]
    parts = [
        "# Result tables",
        "",
        "Every command with what it printed, on the recordings of [this page](tasr.md). Written by",
        f"`python tools/make_results.py FOLDER {' '.join(sources)}`.",
        "",
        "Those of two records that are no longer at hand, charged as published:",
        "[tables-as-published.md](tables-as-published.md).",
    ]
    with TemporaryDirectory() as place:  # commands write where they run
        for source in sources:
            (Path(place) / source).symlink_to(folder / source)
        for heading, commands in sections(sources, closed_book, candidates):
            parts += ["", f"## {heading}"]
            for command in commands:
                print(command, file=sys.stderr)
                parts += ["", "```text", f"$ {command}", run(command, Path(place)), "```"]
    OUT.parent.mkdir(parents=True, exist_ok=True)
    OUT.write_text("\n".join(parts) + "\n", encoding="utf-8")
    print(f"wrote {OUT}")


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), sys.argv[2:])
