"""The question explorer: its data, kept small, and the shell that the page's script fills."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from suffice.errors import counted
from suffice.evaluation.diagnose.report_data import PolicyStop, QuestionStory, ReportData
from suffice.report.section import Marked, Material, Shown, listed, markup, plain, short_name
from suffice.results.markup import element, json_for_script, visible
from suffice.trace.rounds.records import Passage, Round, Usage

# Most characters of a text, most entries of a list, most bytes of the data: a report stays below 5 MB.
_NOT_ASKED = "(not asked for in this round)"
_QUESTION, _ANSWER, _TITLE, _REASON, _GOLD, _PASSAGE = 1_000, 400, 200, 600, 200, 2_000
_PASSAGES, _ROUNDS, _SIGNALS, _GOLDS, _MEMBERS = 20, 50, 60, 10, 20
_MOST_BYTES = 4_000_000

_USAGE_NAMES = {"llm_calls": "model calls", "latency_s": "seconds"}


def explorer(data: ReportData, policies: Sequence[Marked]) -> tuple[dict[str, Any], list[str]]:
    """Return the page's data of the stories, and a sentence on those left out."""
    packer = _Packer(data)
    packed: dict[int, list[Any]] = {}
    for index in sorted(range(len(data.stories)), key=lambda index: data.stories[index].turn):
        if packer.size > _MOST_BYTES:
            break
        packed[index] = packer.question(data.stories[index])
    questions = [packed[index] for index in sorted(packed)]
    metric, names = data.result.metric, [*data.stories[0].scores] if data.stories else []
    document = {
        "scale": data.scale,
        "scores": [metric.head(name) for name in names],
        "compared": names.index(metric.score) if names else 0,
        "policies": [[policy.mark, policy.family, short_name(policy)] for policy in policies],
        "main": next((i for i, one in enumerate(policies) if one.result.name == data.main), 0),
        "baseline": next((i for i, policy in enumerate(policies) if policy.baseline), 0),
        "signals": [visible(name) for name in packer.signals],
        "usage": [visible(_USAGE_NAMES.get(name, name.replace("_", " "))) for name in packer.usage],
        "reasons": list(packer.reasons),
        "passages": [[title, _cut(text, _PASSAGE)] for title, text in packer.passages],
        "questions": questions,
    }
    left_out = data.left_out + len(data.stories) - len(questions)
    said = (
        f"The explorer shows {counted(len(questions), 'question')} of {len(questions) + left_out:,}: of "
        "every type and outcome as many as there is room for, drawn by the seed, so rare ones are more "
        "frequent here than in the record. All are in every figure above."
    )
    return document, [said] if left_out else []


class _Packer:
    """Packs stories into short lists; passages and reasons are stored once, by index."""

    def __init__(self, data: ReportData) -> None:
        self.gold = data.result.metric.gold
        rounds = [one for story in data.stories for one in story.record.rounds]
        names = tuple(dict.fromkeys(name for story in data.stories for name in story.signals))
        self.signals = names[:_SIGNALS]
        self.usage = tuple(
            kind.name
            for kind in fields(Usage)
            if any(getattr(one.usage, kind.name) is not None for one in rounds)
        )
        self.passages: dict[tuple[str, str | None], int] = {}
        self.reasons: dict[str, int] = {}
        self.size = 0  # in bytes, of all that was packed

    def question(self, story: QuestionStory) -> list[Any]:
        """Return [id, text, type, gold answers, rounds, stops]."""
        record = story.record
        gold = record.gold.answers[:_GOLDS] if self.gold else ()
        kind = record.question.type
        packed = [
            _text(record.question.id, _TITLE),
            _text(record.question.text, _QUESTION),
            None if kind is None else _text(kind, _TITLE),
            [_text(answer, _GOLD) for answer in gold],
            [self._round(story, at, one) for at, one in enumerate(record.rounds[:_ROUNDS])],
            [self._stop(stop) for stop in story.stops],
        ]
        self.size += _bytes(packed)
        return packed

    def _round(self, story: QuestionStory, at: int, one: Round) -> list[Any]:
        shown = (one.passages or ())[:_PASSAGES]
        failure = one.parse_failure
        return [
            _text(_NOT_ASKED if one.answer is None else one.answer, _ANSWER),
            [_number(of[at]) for of in story.scores.values()],
            [[self._passage(passage), _number(passage.score)] for passage in shown],
            [_number(story.signals[name][at]) for name in self.signals],
            [_number(getattr(one.usage, name)) for name in self.usage],
            None if failure is None else _text(failure, _REASON),
        ]

    def _stop(self, stop: PolicyStop) -> list[Any]:
        reason = _text(stop.reason, _REASON)
        if reason not in self.reasons:
            self.reasons[reason] = len(self.reasons)
            self.size += _bytes(reason)
        packed: list[Any] = [stop.round, stop.answer_round, self.reasons[reason]]
        if stop.answers is None:
            return packed
        members = [
            [_text(member.answer, _GOLD), _number(member.confidence), member.round]
            for member in stop.answers.answers[:_MEMBERS]
        ]
        return [*packed, members, stop.answers.cannot_answer]

    def _passage(self, passage: Passage) -> int:
        title = _text(passage.title or passage.id, _TITLE)
        text = None if passage.text is None else visible(passage.text)
        if (title, text) not in self.passages:
            self.passages[title, text] = len(self.passages)
            self.size += _bytes([title, _cut(text, _PASSAGE)])
        return self.passages[title, text]


def _text(text: str, most: int) -> str:
    return _cut(visible(text), most) or ""


def _cut(text: str | None, most: int) -> str | None:
    return text if text is None or len(text) <= most else f"{text[:most]}…"


def _number(value: float | None) -> float | int | str | None:
    if value is None or math.isnan(value):
        return None
    if math.isinf(value):
        return "-inf" if value < 0 else "inf"
    short = float(f"{value:.6g}")
    return int(short) if short.is_integer() and abs(short) < 1e15 else short


def _bytes(value: object) -> int:
    return len(json_for_script(value).encode()) + 1


def questions_section(material: Material) -> Shown:
    document, cuts = explorer(material.data, material.policies)
    embedded = json_for_script(document)
    return Shown(
        finding=f"{counted(len(material.data.stories), 'question')}, round by round",
        blocks=[
            plain(
                "Every question, round by round: what was retrieved and answered, and where each policy "
                "stops and why. In the list, the arrow keys move from question to question."
            ),
            markup("explorer.html"),
            listed(cuts, small=True),
            element("script", embedded, type="application/json", id="report-data"),
        ],
    )
