"""A file in TriviaQA's own form, made of generated questions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from suffice.datasets.generated import generate


def written_triviaqa(path: Path, *, count: int = 20) -> Path:
    """The authors' JSON with a search result a paragraph; half of the texts stand in their own files."""
    rows: list[dict[str, Any]] = []
    for number, example in enumerate(generate(count, seed=7)):
        found = []
        for at, passage in enumerate(example.passages):
            name = f"{number}/{at}.txt"
            result: dict[str, Any] = {"Title": passage.title, "Rank": at, "Filename": name}
            if at % 2:
                result["Description"] = passage.text
            else:
                file = path.parent / "evidence" / "web" / name
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(passage.text or "", encoding="utf-8")
            found.append(result)
        rows.append(
            {
                "Question": example.question.text,
                "QuestionId": f"tc_{number}",
                "Answer": {"Value": example.gold.answers[0], "Aliases": [*example.gold.answers]},
                "EntityPages": [],
                "SearchResults": found,
            }
        )
    document = {"Data": rows, "Domain": "unfiltered-web", "Version": 1.0}
    path.write_text(json.dumps(document), encoding="utf-8")
    return path
