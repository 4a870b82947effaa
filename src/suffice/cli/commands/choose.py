"""``suffice choose``: from a record to one policy, with a promise."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from suffice.cli.options import Sampling, SeveralTraces, out_path, tell_policy, write_policy
from suffice.cli.output import Form, print_result, put, say, waiting
from suffice.cli.parser import command
from suffice.options import Option
from suffice.replay.settings import ChoiceSettings

if TYPE_CHECKING:
    from suffice.replay.choose.choice import Choice

_FILES = (
    *("policy.json", "policy.safetensors", "guess.json", "guess.safetensors"),
    *("choice.json", "index.html"),
)
_GUESS = "a guess: likely at 80% confidence, not proven"


@command()
def choose(
    traces: SeveralTraces,
    *,
    reading: Sampling,
    settings: ChoiceSettings,
    out: Annotated[
        str,
        Option(
            metavar="DIR",
            parse=out_path(folder=True),
            help="gets policy.json, choice.json, index.html, perhaps guess.json",
        ),
    ] = "chosen",
    form: Form,
) -> int:
    """Choose one policy for a record, and say what you can save for what you allow to lose.

    Policies along fixed paths are proven on all labeled questions; methods, rules and learned values are
    fitted on a part and proven on another. Writes all files of one run or none.
    """
    from suffice.replay.choose import procedure
    from suffice.results.formats import counted
    from suffice.trace.durable import replaced_together

    measures = reading.drawn_measures(*traces)
    folder = Path(out)
    with waiting("choosing"):
        choice = procedure.choose(measures, settings)
    with waiting("writing the page"), replaced_together(folder, _FILES) as aside:
        write_policy(aside, choice.policy, measures.traces)
        guessed = None if choice.guess is None else choice.guess.policy.policy
        if guessed is not None:
            write_policy(aside / "guess.json", guessed, measures.traces, _GUESS)
        write_choice(choice, aside)
    policy, page, guess = folder / "policy.json", folder / "index.html", folder / "guess.json"
    if form.name == "text":
        put("\n".join(choice.screen()))
        put(f"Page: {page}    Policy: {policy}")
        for what, line in [*choice.live(str(policy), str(guess))][:1]:
            put(f"Try it {what}:\n  {line}")
        more = len(choice.notes) + len(choice.left_out) + len(choice.warned)
        if more:
            say(f"{counted(more, 'note')} stand in the page and in {folder / 'choice.json'}")
        return 0
    written = tell_policy(policy, choice.policy, measures.traces)

    def document() -> Any:
        return {**choice.to_json(), **written, "page": str(page)}

    print_result(form, choice.tables(), document, choice.notes)
    return 0


def write_choice(choice: Choice, folder: Path) -> None:
    """Write ``choice.json`` and ``index.html`` into the folder."""
    from suffice.replay.diagnose.report_data import PartsSettings, report_data, report_parts
    from suffice.report.report import render_report

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
