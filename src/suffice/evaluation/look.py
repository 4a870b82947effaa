"""A first look at logs: what runs cost, how they ended, what they repeated, what a cap would have saved.

Nothing here proves anything or keeps a text: a run leaves a few numbers, some 60 bytes.
"""

from __future__ import annotations

import glob
import json
import math
import re
import shlex
import warnings
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import wrap
from typing import Any

import numpy as np

from suffice.errors import DataError, SufficeWarning, counted, struck
from suffice.results.formats import amount
from suffice.results.markup import shorten, visible
from suffice.results.table import WIDTH, Column, Table, table_of
from suffice.results.tabular import Tabular
from suffice.scoring import normalize_answer
from suffice.trace.rounds.records import QuestionRecord

_MEASURES = ("rounds", "prompt_tokens", "completion_tokens", "tokens", "usd")
_ENDS = {
    "answer": "with an answer",
    "budget": "at a limit",
    "policy": "stopped by a policy",
    "gold": "stopped as right",
    "user": "ended by the user",
    "error": "by an error",
    "unknown": "without an answer",
}
_LONGEST = 0.1
_TOUCHED = (0.1, 0.25)  # shares of runs that the shown caps come closest to touching
_FEWEST_AT_LIMIT = 3
_FEW_ROUNDS = 10  # up to so many, any number may be a cap
_ENOUGH_LABELS = 150
_MOST_LINES = 24
_MOST_TEXT, _MOST_CALLS, _MOST_TOOLS = 300, 5, 4
_CALL = re.compile(r"\s*([A-Za-z_][\w.:/-]{0,99})[ \t]+(?=[{\[])")
_THOUGHT = re.compile(r"^\s*(thought|action)\b", re.IGNORECASE | re.MULTILINE)
_DECODER = json.JSONDecoder()
Entry = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Look(Tabular):
    """Hold what logs show without labels; shares are in [0, 1].

    ``costs``: each quantity over the ``runs`` that tell it in every round, with the mean of the longest
    tenth of these runs, by rounds, and its share. ``cost``: the quantity behind the other shares: tokens,
    else dollars, else rounds. ``repeats.share`` came from the first repeated call on. A cap touches
    runs with more rounds. ``limit``: the rounds at which runs were cut, if that is one number.
    """

    formats: tuple[Entry, ...]
    runs: int
    rounds: int
    tools: Mapping[str, int]
    cost: str
    costs: tuple[Entry, ...]
    ended: Mapping[str, int]
    limit: int | None
    repeats: Entry | None
    caps: tuple[Entry, ...]
    labeled: int
    notes: tuple[str, ...]
    missing: str
    next: tuple[Entry, ...]
    texts: tuple[Entry, ...] | None = field(default=None, metadata={"json_none": False})

    def text(self, width: int | None = WIDTH) -> str:
        """Return the look in at most 24 lines; lines to type are not broken."""
        room = width or 10 * WIDTH

        def lines(*said: str) -> list[str]:
            return [
                part for one in said for part in wrap(visible(one), room, break_on_hyphens=False)
            ]

        first = [*lines(self._head()), *_aligned(self._spread(), room), *lines(*self._sentences())]
        last = lines(self.missing)
        for one in self.next:  # a line to type is never broken
            fits = len(one["line"]) + len(one["what"]) + 5 <= room
            told = f"{one['line']}   {one['what']}" if fits else one["line"]
            last += [f"  {told}", *([] if fits else [f"      {one['what']}"])]
        notes = lines(" ".join(self.notes))[: max(2, _MOST_LINES - len(first) - len(last))]
        calls = [f"{one['repeats']:>7,} x {one['call']}" for one in self.texts or ()]
        return "\n".join([*first, *notes, *last, *calls])

    def _head(self) -> str:
        kinds = ", ".join(one["called"] for one in self.formats)
        files = counted(sum(one["files"] for one in self.formats), "file")
        names = [shorten(visible(name), 30, "...") for name in [*self.tools][:_MOST_TOOLS]]
        names += [f"{len(self.tools) - _MOST_TOOLS:,} more"] * (len(self.tools) > _MOST_TOOLS)
        tools = f", {counted(len(self.tools), 'tool')}: {', '.join(names)}" * bool(names)
        told = f"{counted(self.runs, 'run')} ({shorten(kinds, WIDTH // 2, '...')}; {files})"
        return f"{told}, {counted(self.rounds, 'round')}{tools}."

    def _spread(self) -> Iterator[list[str]]:
        yield ["", "median", "mean", "longest 10%", "all", ""]
        for one in self.costs:
            if (name := one["cost"]) != "tokens":
                sums = (one[key] for key in ("median", "mean", "longest_mean", "total"))
                cells = [f"${amount(x)}" if name == "usd" else number_in_words(x) for x in sums]
                if name == "rounds":
                    cells[-1] = f"{one['total']:,.0f}"
                tail = f"({share_in_words(one['longest_share'])} in the longest 10%)"
                yield [_words(name), *cells, tail * (name in (self.cost, "prompt_tokens"))]

    def _sentences(self) -> Iterator[str]:
        what = _words(self.cost)
        if self.cost == "rounds":
            none = len(self.costs) == 1
            yield f"{'No tokens or dollars are' if none else 'No cost is'} told; rounds stand for costs."
        shown = [one for one in self.costs if one["cost"] != "tokens" and one["runs"] < self.runs]
        untold = [f"{_words(one['cost'])} of {self.runs - one['runs']:,}" for one in shown]
        if untold:
            untold[-1] += " runs"
            yield f"Not told: {', '.join(untold)}; sums and shares are over the others."
        at = "" if self.limit is None else f" of {self.limit:,}"
        ends = [f"{n:,} {_ENDS[name]}{at * (name == 'budget')}" for name, n in self.ended.items()]
        yield f"How runs ended: {', '.join(ends)}."
        if self.repeats is None:
            yield "Repeats: unknown, as no round tells its call."
        else:
            runs = counted(self.repeats["runs"], "run") if self.repeats["runs"] else "no run"
            known = self.repeats["share"] > 0  # else no run that repeats tells its cost
            share = f"; {share_in_words(self.repeats['share'])} of all {what} came after the first repeat"
            yield f"Repeats: {runs} asked the same again{share * known}."
        for cap in self.caps:
            hit = f" ({cap['at_limit']:,} of those at the limit)" * bool(cap["at_limit"])
            told = f"touched {counted(cap['touched'], 'run')}{hit}"
            saved = f"saved {share_in_words(cap['saved'])} of the {what}"
            other = cap["other_answers"]
            answers = "" if other is None else f"; {counted(other, 'answer')} would differ"
            yield f"A cap of {cap['rounds']:,} would have {told} and {saved}{answers}."

    def tables(self) -> Sequence[Table]:
        costs = [*map(_column, ("cost", "runs", "median", "mean", "longest_mean", "total"))]
        caps = map(_column, ("rounds", "touched", "at_limit", "saved", "other_answers"))
        said = (*self._sentences(), *self.notes)
        steps = [*map(_column, ("line", "what"))]
        return (
            table_of("costs", self.costs, [*costs, _column("longest_share")], self._head(), said),
            table_of("caps", self.caps, [*caps], f"Caps: {_words(self.cost)} saved"),
            table_of("next", self.next, steps, self.missing),
            table_of("texts", self.texts or (), [*map(_column, ("repeats", "call"))]),
        )


def _column(name: str) -> tuple[str, Column]:
    share = name in ("saved", "longest_share")
    text = name in ("cost", "line", "what", "call")
    kind: Any = "percent" if share else "text" if text else "number"
    return name, Column(name=name, kind=kind, head=_words(name) + " %" * share)


def _aligned(rows: Iterable[Sequence[str]], room: int) -> Iterator[str]:
    held = [*rows]
    widths = [max(map(len, column)) for column in zip(*held, strict=True)]
    for name, *cells, tail in held:
        numbers = [cell.rjust(wide) for cell, wide in zip(cells, widths[1:], strict=False)]
        line = "   ".join([f"{name:<{widths[0]}}", *numbers, tail]).rstrip()
        yield line if len(line) <= room else line.replace("in the longest 10%", "there")


def _words(name: str) -> str:
    return "dollars" if name == "usd" else name.replace("_", " ")


def number_in_words(value: float) -> str:
    """Format a number: three digits of large ones, one decimal of small ones.

    >>> number_in_words(5.0), number_in_words(7.2), number_in_words(16312.0), number_in_words(6.74e6)
    ('5', '7.2', '16,300', '6.7M')
    """
    for size, mark in ((1e12, "T"), (1e9, "B"), (1e6, "M")):
        if value >= 0.9995 * size:
            return f"{value / size:,.{int(value < 99.95 * size)}f}{mark}"
    if value >= 100:
        scale = 10 ** (math.floor(math.log10(value)) - 2)
        return f"{round(value / scale) * scale:,}"
    return f"{value:.1f}".removesuffix(".0")


def share_in_words(share: float) -> str:
    """Format a share in whole percent; 0% and 100% are exact.

    >>> share_in_words(0.3149), share_in_words(0.001), share_in_words(0.999), share_in_words(1.0)
    ('31%', 'under 1%', 'over 99%', '100%')
    """
    if 0 < share < 0.005:
        return "under 1%"
    return "over 99%" if 0.995 <= share < 1 else f"{100 * share:.0f}%"


# --- one run --------------------------------------------------------------------------------------
def calls_of(action: str | None, query: str | None) -> list[tuple[str | None, str]]:
    """Return the calls of a round: the tool, where it is told, and a text that equal calls share.

    An action is calls as ``tool {"JSON": "arguments"}``, in which order of keys and blanks do not count, or
    another text. Of a model's thoughts, or a hash of them, the query tells calls apart.
    """
    found: list[tuple[str | None, str]] = []
    at, text = 0, (action or "").strip()
    while at < len(text) and (head := _CALL.match(text, at)):
        try:
            arguments, at = _DECODER.raw_decode(text, head.end())
        except (ValueError, RecursionError):
            break
        told = json.dumps(arguments, sort_keys=True, ensure_ascii=False)
        found.append((head[1], f"{head[1]} {told}"))
    if found and at == len(text):
        return found
    words = " ".join(text.split())
    if query and (" " not in words or _THOUGHT.search(text)):
        words = " ".join(query.split())
    return [(None, words)] if words else []


def _costs_of(run: QuestionRecord) -> dict[str, list[float]]:
    costs: dict[str, list[float]] = {"rounds": [1.0] * len(run.rounds)}
    for name in ("prompt_tokens", "completion_tokens", "usd"):
        told = [(getattr(one.usage, name), one.usage.llm_calls) for one in run.rounds]
        held = [0 if cost is None and calls == 0 else cost for cost, calls in told]
        if None not in held:
            costs[name] = held
    if "prompt_tokens" in costs and "completion_tokens" in costs:
        pairs = zip(costs["prompt_tokens"], costs["completion_tokens"], strict=True)
        costs["tokens"] = [sum(pair) for pair in pairs]
    return costs


class _Tally:
    def __init__(self, *, texts: bool) -> None:
        self.texts = texts
        self.lengths = array("q")
        self.amounts = {name: array("d") for name in _MEASURES}
        self.by_round: dict[str, Counter[int]] = defaultdict(Counter)
        self.after, self.counts, self.tools, self.again = (Counter[str]() for _ in range(4))
        self.ended: dict[str, Counter[int]] = {name: Counter() for name in _ENDS}  # by rounds
        self.unlike = Counter[int]()  # answers that differ from the last one, by round

    def add(self, run: QuestionRecord) -> None:
        answers = [one.answer for one in run.rounds]
        if not answers:
            self.counts["empty"] += 1
            return
        self.lengths.append(len(answers))
        self.counts["labeled"] += bool(run.gold.answers or run.scores)
        costs, first = _costs_of(run), self._repeat(run)
        for name, held in self.amounts.items():
            held.append(sum(costs[name]) if name in costs else math.nan)
            self.by_round[name].update(dict(enumerate(costs.get(name, ()))))
        if first is not None:
            self.counts["repeating"] += 1
            self.after.update({name: sum(costs[name][first:]) for name in costs})
        last, end = answers[-1], str(run.stopped_by or "end")
        if end == "end":
            end = "answer" if last and last.strip() else "unknown"
        self.ended[end][len(answers)] += 1
        self.counts["unanswered"] += None in answers
        if not self.counts["unanswered"]:
            final = normalize_answer(last or "")
            for number, answer in enumerate(answers):
                self.unlike[number] += answer != last and normalize_answer(answer or "") != final

    def _repeat(self, run: QuestionRecord) -> int | None:
        """Return the index of the first round with a call of an earlier one."""
        first, seen = None, set[str]()
        for number, one in enumerate(run.rounds):
            calls = calls_of(one.action, one.query)
            self.tools.update(tool for tool, _ in calls if tool is not None)
            again = [call for _, call in calls if call in seen]
            self.counts.update(calls=len(calls), repeats=len(again))
            if self.texts:
                self.again.update(struck(call[:_MOST_TEXT]) for call in again)
            first = number if again and first is None else first
            seen.update(call for _, call in calls)
        return first


# --- all runs -------------------------------------------------------------------------------------
def look_at(logs: Iterable[Any], *, notes: Sequence[str] = (), texts: bool = False) -> Look:
    """Return what logs show: objects with ``path``, ``format``, ``called``, ``runs()`` and ``problems``."""
    tally, ids, whole = _Tally(texts=texts), dict[int, int](), list[Any]()
    formats: dict[str, dict[str, Any]] = {}
    problems: list[str] = []
    for number, log in enumerate(logs):
        before, same = len(tally.lengths), tally.counts["same"]
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always", SufficeWarning)
            for run in log.runs():
                tally.counts["same"] += ids.setdefault(hash(run.question.id), number) != number
                tally.add(run)
        problems += log.problems
        if not log.problems and same == tally.counts["same"]:
            whole.append(log)
        problems += [str(one.message) for one in warned]
        told = {"format": log.format, "called": log.called, "files": 0, "runs": 0}
        kind = formats.setdefault(log.format, told)
        kind["files"] += 1
        kind["runs"] += len(tally.lengths) - before
    if not tally.lengths:
        raise DataError("; ".join(["no run with a round in these logs", *problems[:1]]))
    counts, lengths = tally.counts, np.array(tally.lengths)
    ended, longest = tally.ended, int(lengths.max())
    if longest > 1 and ended["unknown"][longest] >= _FEWEST_AT_LIMIT:  # a limit that nobody told
        ended["budget"][longest] += ended["unknown"].pop(longest)
    limits = [rounds for rounds, number in ended["budget"].items() if number]
    costs = tuple(one for name in _MEASURES if (one := _spread(name, tally, lengths)))
    told_by = {one["cost"]: one["runs"] for one in costs if one["total"]}
    cost = next((name for name in ("prompt_tokens", "usd") if name in told_by), "rounds")
    if cost == "prompt_tokens" and 2 * told_by.get("tokens", 0) >= told_by[cost]:
        cost = "tokens"
    total = next(one["total"] for one in costs if one["cost"] == cost)
    caps = tuple(_caps(tally, lengths, cost, total))
    missing, steps = _next(whole, counts["labeled"], caps, len(lengths))
    repeats = {"runs": counts["repeating"], "calls": counts["repeats"]}
    said = [
        (counts["empty"], "without a round left out"),
        (counts["same"], "with the id of another"),
    ]
    return Look(
        formats=tuple(kind for kind in formats.values() if kind["runs"]),
        runs=len(lengths),
        rounds=int(lengths.sum()),
        tools=dict(tally.tools.most_common()),
        cost=cost,
        costs=costs,
        ended={name: sum(by.values()) for name, by in ended.items() if sum(by.values())},
        limit=limits[0] if len(limits) == 1 else None,
        repeats={**repeats, "share": tally.after[cost] / total} if counts["calls"] else None,
        caps=caps,
        labeled=counts["labeled"],
        notes=(
            *(f"{counted(number, 'run')} {what}." for number, what in said if number),
            *notes,
            *(f"{counted(len(problems), 'problem')}: {shorten(one, 150)}" for one in problems[:1]),
        ),
        missing=missing,
        next=steps,
        texts=tuple(
            {"call": shorten(visible(" ".join(call.split())), 66, "..."), "repeats": number}
            for call, number in tally.again.most_common(_MOST_CALLS)
        )
        if texts
        else None,
    )


def _spread(name: str, tally: _Tally, lengths: Any) -> Entry | None:
    amounts = np.array(tally.amounts[name])
    lengths, amounts = lengths[~np.isnan(amounts)], amounts[~np.isnan(amounts)]
    if not len(amounts):
        return None
    size = max(1, round(_LONGEST * len(amounts)))
    border = np.sort(lengths)[-size]
    above = lengths > border
    # runs as long as the shortest of the tail share its remaining places evenly
    tail = float(amounts[above].sum() + amounts[lengths == border].mean() * (size - above.sum()))
    total = float(amounts.sum())
    return {
        "cost": name,
        "runs": len(amounts),
        "median": float(np.median(amounts)),
        "mean": total / len(amounts),
        "longest_mean": tail / size,
        "total": total,
        "longest_share": tail / total if total else 0.0,
    }


def _caps(tally: _Tally, lengths: Any, cost: str, total: float) -> Iterator[Entry]:
    longest, chosen = int(lengths.max()), set[int]()
    steps: Iterable[int] = range(1, longest)
    if longest > _FEW_ROUNDS:
        steps = (one * 10**zeros for zeros in range(len(str(longest))) for one in (1, 2, 5))
    touched = {cap: int((lengths > cap).sum()) for cap in steps if cap < longest}
    for aim in (share * len(lengths) for share in _TOUCHED):
        if left := [cap for cap in touched if cap < min(chosen, default=longest)]:
            chosen.add(min(left, key=lambda cap: (abs(touched[cap] - aim), -cap)))
    for cap in sorted(chosen, reverse=True):
        beyond = math.fsum(spent for at, spent in tally.by_round[cost].items() if at >= cap)
        yield {
            "rounds": cap,
            "touched": touched[cap],
            "at_limit": sum(n for rounds, n in tally.ended["budget"].items() if rounds > cap),
            "saved": min(1.0, beyond / total),
            "other_answers": None if tally.counts["unanswered"] else tally.unlike[cap - 1],
        }


# --- what is missing, and what to type ------------------------------------------------------------
def _next(
    whole: Sequence[Any], labeled: int, caps: Sequence[Entry], runs: int
) -> tuple[str, tuple[Entry, ...]]:
    watch = f'suffice.Watch("fixed-{caps[0]["rounds"] if caps else 5}", record="live.db")'
    beside = {"line": watch, "what": "beside your agent, stops nothing"}
    if not caps:
        return "Each run has one round: there is nothing to stop. Record every round:", (beside,)
    record, steps = next((log.path for log in whole if log.format == "record"), ""), list[Entry]()
    if whole and not record:
        words = " ".join(_patterns([Path(log.path) for log in whole]))
        stated = f" --format {whole[0].format}" * whole[0].stated
        record = _free("logs.parquet")
        line = f"suffice traces import {words}{stated} --out {record}"
        steps.append({"line": line, "what": "logs as a record"})
    if not record:
        return "What a cap loses takes labels, and no log was read whole. Record anew:", (beside,)
    place = shlex.quote(record)
    if labeled >= min(_ENOUGH_LABELS, runs / 2):
        steps.append(
            {"line": f"suffice choose {place}", "what": "what each policy is proven to lose"}
        )
        return f"{counted(labeled, 'run')} have a score or gold answers. What a cap loses:", (
            *steps,
        )
    out = "" if record.endswith(".db") else f" --out {_free('labeled.parquet')}"
    line = f"suffice traces label {place} labels.csv{out}"
    steps.append({"line": line, "what": f"gold answers or scores, {_ENOUGH_LABELS} are a start"})
    said = (
        "Whether those answers were right is not in these logs. Two ways to know what a cap loses:"
    )
    return said, (*steps, beside)


def _free(name: str) -> str:
    names = (Path(name).with_stem(f"{Path(name).stem}{n or ''}") for n in range(1000))
    return next((str(one) for one in names if not one.exists()), name)


def _patterns(files: Sequence[Path]) -> Iterator[str]:
    """Return words of a shell for exactly these files: patterns where they match no other."""
    for kind in dict.fromkeys((file.suffix, len(file.parts)) for file in files):
        own = [file for file in files if (file.suffix, len(file.parts)) == kind]
        parts = [{*part} for part in zip(*(file.parts for file in own), strict=True)]
        same = [part.pop() if len(part) == 1 else "" for part in parts]
        shown = "/".join(
            [*(shlex.quote(part) if part else "*" for part in same[:-1]), f"*{kind[0]}"]
        )
        inner = "/".join([*(glob.escape(part) or "*" for part in same[:-1]), f"*{kind[0]}"])
        if len(own) > 1 and {Path(one) for one in glob.glob(inner)} == {*own}:  # noqa: PTH207 - as a shell
            yield shown
        else:
            yield from (shlex.quote(str(file)) for file in own)
