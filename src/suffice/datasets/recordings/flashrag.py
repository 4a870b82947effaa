"""FlashRAG's ``intermediate_data.json``: what its iterative pipelines kept of each iteration."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import Any

from suffice.datasets.files import Row, json_rows, text_id
from suffice.trace.rounds.records import Gold, Passage, Question, QuestionRecord, Round, Usage


def read_flashrag(path: Path) -> tuple[QuestionRecord, ...]:
    """Records of the file; iteration 0 is round 1.

    The query of a round is what the pipeline sends: the question, from round 2 with the last answer behind.
    """
    return tuple(_record(row) for row in json_rows(path))


def _record(row: Row) -> QuestionRecord:
    output = row.values.get("output")
    kept = (
        ", ".join(map(repr, list(output if isinstance(output, dict) else row.values)[:12]))
        or "nothing"
    )
    if not isinstance(output, dict):
        raise row.error(
            f"is no question of FlashRAG's intermediate_data.json: no object 'output'; it has {kept}; a "
            "table with a row per round is read by --format columns",
            "output",
        )
    total = next(n for n in count() if f"pred_iter_{n}" not in output)
    beyond = sorted(name for name in output if name.startswith("pred_iter_"))[total:]
    if not total or beyond:
        raise row.error(
            f"has no 'pred_iter_{total}', so no answer of each iteration; it has {kept}. FlashRAG's "
            "iterative pipeline (ITERRETGENPipeline) keeps them; with another, save an answer of every "
            "round and read that with --format columns",
            "output",
        )
    text = row.required("question")
    return QuestionRecord(
        question=Question(id=str(row.values.get("id") or text_id(text)), text=text),
        gold=Gold(answers=tuple(row.texts(row.values.get("golden_answers"), "golden_answers"))),
        rounds=_rounds(row, text, output, total),
    )


def _rounds(row: Row, text: str, output: Mapping[str, Any], total: int) -> tuple[Round, ...]:
    seen: set[str] = set()
    rounds: list[Round] = []
    for number in range(total):
        answer = output[f"pred_iter_{number}"]
        if not isinstance(answer, str):
            raise row.error(f"must be a text, found {answer!r:.60}", f"output.pred_iter_{number}")
        passages = _passages(row, output, f"retrieval_result_iter_{number}")
        rounds.append(
            Round(
                answer=answer.strip(),
                response=answer,
                query=f"{text} {rounds[-1].response}" if rounds else text,
                passages=tuple(p for p in passages if p.id not in seen),
                refound=tuple(Passage(id=p.id, score=p.score) for p in passages if p.id in seen),
                usage=Usage(llm_calls=1, answer_calls=0, retrievals=1),
            )
        )
        seen |= {passage.id for passage in passages}
    return tuple(rounds)


def _passages(row: Row, output: Mapping[str, Any], name: str) -> tuple[Passage, ...]:
    """Documents found, each once; the first line of ``contents`` is the title."""
    documents = output.get(name) or []
    if not isinstance(documents, list) or not all(isinstance(item, dict) for item in documents):
        raise row.error(f"must be a list of documents, found {documents!r:.60}", f"output.{name}")
    passages: dict[str, Passage] = {}
    for document in documents:
        contents = document.get("contents") or document.get("text") or ""
        title = document.get("title") or ""
        score = document.get("score")
        if not (isinstance(contents, str) and isinstance(title, str)):
            raise row.error(
                f"a document's texts must be texts, found {document!r:.80}", f"output.{name}"
            )
        if "contents" in document and "\n" in contents:
            first, contents = contents.split("\n", 1)
            title = title or first.strip().strip('"')
        if not isinstance(score, int | float | None) or isinstance(score, bool):
            raise row.error(
                f"a document's score must be a number, found {score!r:.60}", f"output.{name}"
            )
        own = (
            str(document["id"])
            if document.get("id") is not None
            else text_id(f"{title}\n{contents}")
        )
        passages.setdefault(own, Passage(id=own, title=title, text=contents, score=score))
    return tuple(passages.values())
