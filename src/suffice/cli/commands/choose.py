"""``suffice choose``: from a record to one policy, with a promise."""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from suffice.cli.options import add_traces, open_measures, out_path, write_policy
from suffice.cli.output import add_format, print_result, put, say, waiting
from suffice.cli.settings_options import add_settings, read_settings
from suffice.replay.settings import ChoiceSettings

if TYPE_CHECKING:
    from suffice.replay.choose.choice import Choice

_TOP = 15  # candidates printed


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare what the command takes."""
    parser.description = (
        "Compares everything that the record can feed (fixed budgets, every method, rules, values learned "
        "from all signals) and gives one policy: fitted on one part of the questions, ranked on a second, "
        "its promise proven on a third. Writes policy.json, choice.json and index.html, whose first screen "
        "says whether looping pays here, which policy to run, what it costs and saves, and how sure that is; "
        "where nothing is proven also guess.json, a policy that is likely to keep what was asked, if there "
        "is one."
    )
    add_traces(parser, sampled=True, measured=True)
    add_settings(parser, ChoiceSettings)
    parser.add_argument(
        "--out",
        required=True,
        type=out_path(folder=True),
        metavar="DIR",
        help="gets policy.json, choice.json and index.html, and guess.json where nothing is proven",
    )
    add_format(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Choose, write and print."""
    from suffice.policies.kind import weights_beside
    from suffice.replay.choose.procedure import choose
    from suffice.results.formats import counted

    measures = open_measures(arguments, say)
    settings = read_settings(arguments, ChoiceSettings)
    out = Path(arguments.out)
    with waiting("choosing"):
        choice = choose(measures, settings, certificates=out)
    written = write_policy(str(out), choice.policy, measures.traces)
    guess = out / "guess.json"
    for stale in (guess, weights_beside(guess)):
        stale.unlink(missing_ok=True)
    if choice.guess is not None and (guessed := choice.guess.candidate.policy.policy) is not None:
        sure = f"a guess: not proven, likely at {100 * choice.guess_confidence:g}% confidence"
        write_policy(str(guess), guessed, measures.traces, sure)
    with waiting("writing the page"):
        page = write_choice(choice, out)

    def document() -> Any:
        return {**choice.to_json(), **written, "page": str(page)}

    notes = [*(f"note: {note}" for note in choice.notes)]
    if choice.left_out or choice.warned:
        notes.append(
            f"{counted(len(choice.left_out), 'candidate')} left out, "
            f"{counted(len(choice.warned), 'warning')} of fits: {out / 'choice.json'} says which and why"
        )
    tables = choice.tables(top=_TOP if arguments.format == "text" else None)
    print_result(arguments, tables, document, notes)
    if arguments.format == "text":
        put("\n".join(notes))
        put(f"wrote {page}; to run it:")
        for what, command in choice.live(written["out"], str(guess)):
            put(f"  {what}: {command}")
    return 0


def write_choice(choice: Choice, folder: Path) -> Path:
    """Write ``choice.json`` and ``index.html`` into the folder; the page's path."""
    from suffice.replay.diagnose.question_histories import report_data
    from suffice.replay.diagnose.report_parts import PartsSettings, report_parts
    from suffice.report.page.report import render_report
    from suffice.trace.durable import replace_file

    comparison = choice.comparison
    parts = report_parts(
        comparison.measures, comparison, PartsSettings(parts=("guarantees", "costs"))
    )
    contents = {**parts.contents, "choice": choice}
    # that no policy here carries a promise is said on the first screen
    left_out = {**choice.left_out, **parts.left_out}
    left_out.pop("guarantees", None)
    data = report_data(
        comparison.measures,
        comparison.result,
        replace(parts, contents=contents, left_out=left_out),
    )
    folder.mkdir(parents=True, exist_ok=True)
    document = json.dumps(choice.to_json(), ensure_ascii=False, indent=1, allow_nan=False)
    replace_file(folder / "choice.json", document.encode())
    page = folder / "index.html"
    replace_file(page, render_report(data).encode())
    return page
