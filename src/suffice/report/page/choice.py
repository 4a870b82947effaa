"""What a choice writes beside its policy: the page, and the same as JSON."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from suffice.replay.choose.choice import Choice
from suffice.replay.diagnose.question_histories import report_data
from suffice.replay.diagnose.report_parts import PartsSettings, report_parts
from suffice.report.page.report import render_report
from suffice.trace.durable import replace_file


def write_choice(choice: Choice, folder: Path) -> Path:
    """Write ``choice.json`` and ``index.html`` into the folder; the page's path."""
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
