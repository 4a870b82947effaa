"""``suffice choose``: from a record to one policy, with a promise."""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from suffice.cli.options import add_traces, keep_policy, open_measures, out_path, tell_policy
from suffice.cli.output import add_format, print_result, put, say, waiting
from suffice.cli.settings_options import add_settings, read_settings
from suffice.replay.settings import ChoiceSettings

if TYPE_CHECKING:
    from suffice.replay.choose.choice import Choice

_FILES = (
    *("policy.json", "policy.safetensors", "guess.json", "guess.safetensors"),
    *("choice.json", "index.html"),
)
_GUESS = "a guess: likely at 80% confidence, not proven"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare what the command takes."""
    parser.description = (
        "Chooses one policy for a record. Policies along fixed paths are proven on all labeled questions; "
        "methods, rules and learned values are fitted on a part and proven on another. Prints what you can "
        "save for what you allow to lose. Writes policy.json, choice.json and index.html, all of one run or "
        "none; where nothing is proven also guess.json, a policy that is likely to keep the promise."
    )
    add_traces(
        parser, several="several records of one loop are pooled", sampled=True, measured=True
    )
    add_settings(parser, ChoiceSettings)
    parser.add_argument(
        "--out",
        default="chosen",
        type=out_path(folder=True),
        metavar="DIR",
        help="gets policy.json, choice.json and index.html, and guess.json where nothing is proven "
        "(default: chosen)",
    )
    add_format(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Choose, write and print."""
    from suffice.replay.choose.procedure import choose
    from suffice.results.formats import counted
    from suffice.trace.durable import replaced_together

    measures = open_measures(arguments, say)
    settings = read_settings(arguments, ChoiceSettings)
    out = Path(arguments.out)
    with waiting("choosing"):
        choice = choose(measures, settings)
    guessed = None if choice.guess is None else choice.guess.policy.policy
    with waiting("writing the page"), replaced_together(out, _FILES) as aside:
        keep_policy(aside, choice.policy, measures.traces)
        if guessed is not None:
            keep_policy(aside / "guess.json", guessed, measures.traces, _GUESS)
        write_choice(choice, aside)
    page, guess = out / "index.html", out / "guess.json"
    if arguments.format == "text":
        put("\n".join(choice.screen()))
        put(f"Page: {page}    Policy: {out / 'policy.json'}")
        for what, command in [*choice.live(str(out / "policy.json"), str(guess))][:1]:
            put(f"Try it {what}:\n  {command}")
        more = len(choice.notes) + len(choice.left_out) + len(choice.warned)
        if more:
            say(f"{counted(more, 'note')} stand in the page and in {out / 'choice.json'}")
        return 0
    written = tell_policy(out / "policy.json", choice.policy, measures.traces)
    if guessed is not None:
        tell_policy(guess, guessed, measures.traces, _GUESS)

    def document() -> Any:
        return {**choice.to_json(), **written, "page": str(page)}

    print_result(arguments, choice.tables(), document, choice.notes)
    return 0


def write_choice(choice: Choice, folder: Path) -> None:
    """Write ``choice.json`` and ``index.html`` into the folder."""
    from suffice.replay.diagnose.question_histories import report_data
    from suffice.replay.diagnose.report_parts import PartsSettings, report_parts
    from suffice.report.page.report import render_report

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
    document = json.dumps(choice.to_json(), ensure_ascii=False, indent=1, allow_nan=False)
    (folder / "choice.json").write_bytes(document.encode())
    (folder / "index.html").write_bytes(render_report(data).encode())
