"""A first look at logs: what runs cost, how they ended, what they repeated, what a cap would have saved.

Nothing here proves anything or keeps a text: a run leaves a few numbers, some 60 bytes.
"""

from __future__ import annotations

import json
import math
import re
import shlex
import warnings
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from textwrap import wrap
from typing import Any

import numpy as np

from suffice.contracts import loaded
from suffice.errors import DataError, SufficeWarning, counted, struck
from suffice.results.formats import amount, percent
from suffice.results.markup import shorten, visible
from suffice.results.table import WIDTH, Column, Table, table_of
from suffice.results.tabular import Tabular
from suffice.trace.rounds.records import QuestionRecord
from suffice.trace.store import SUFFIXES

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
_TOUCHED = (0.1, 0.25)  # shares of runs that the shown caps come closest to touching
_FEWEST_AT_LIMIT, _FEW_ROUNDS, _ENOUGH_LABELS = 3, 10, 150
_MOST_LINES, _MOST_FILES, _MOST_TEXT, _MOST_SHOWN = 24, 20, 300, 4
_NEXT_CALL = re.compile(r"\n(?=[A-Za-z_][\w.:/-]* [{\[])")
Entry = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Look(Tabular):
    """Hold what logs show without labels; shares are in [0, 1].

    ``costs``: each quantity over the ``runs`` that tell it in every round, with the mean of the longest
    tenth of these runs, by rounds, and its share. ``cost``: the quantity behind the other shares, told by
    most runs. ``repeats.share`` came from the first repeated call on. A cap touches runs with more
    rounds. ``limit``: the rounds at which runs were cut, if that is one number.
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
    texts: tuple[Entry, ...]

    def text(self, width: int | None = WIDTH) -> str:
        """Return the look in at most 24 lines, and the texts; lines to type are not broken."""
        room = width or 10 * WIDTH

        def lines(*said: str) -> list[str]:
            return [line for one in said for line in wrap(visible(one), room)]

        first = [*lines(self._head()), *self._spread(room), *lines(*self._sentences())]
        last = lines(self.missing)
        for one in self.next:
            told = f"  {one['line']}   {one['what']}"
            last += [told] if len(told) <= room else [f"  {one['line']}", f"      {one['what']}"]
        notes = lines(" ".join(self.notes))[: max(2, _MOST_LINES - len(first) - len(last))]
        calls = [f"{one['repeats']:>7,} x {one['call']}" for one in self.texts]
        return "\n".join([*first, *notes, *last, *calls])

    def _head(self) -> str:
        kinds = shorten(", ".join(one["called"] for one in self.formats), WIDTH // 2, "...")
        files = counted(sum(one["files"] for one in self.formats), "file")
        names = [shorten(visible(name), 30, "...") for name in [*self.tools][:_MOST_SHOWN]]
        names += ["..."] * (len(self.tools) > _MOST_SHOWN)
        tools = f", {counted(len(self.tools), 'tool')}: {', '.join(names)}" * bool(names)
        return f"{counted(self.runs, 'run')} ({kinds}; {files}), {counted(self.rounds, 'round')}{tools}."

    def _spread(self, room: int) -> Iterator[str]:
        rows = [["", "median", "mean", "longest 10%", "all", ""]]
        for one in (one for one in self.costs if one["cost"] != "tokens"):
            cells = [_short(one[key]) for key in ("median", "mean", "longest_mean", "total")]
            tail = f"({percent(one['longest_share'])}% in the longest 10%)"
            rows.append(
                [_words(one["cost"]), *cells, tail * (one["cost"] in (self.cost, _MEASURES[1]))]
            )
        name, *widths = (max(map(len, column)) for column in zip(*rows, strict=True))
        for row in rows:
            cells = [cell.rjust(wide) for cell, wide in zip(row[1:-1], widths, strict=False)]
            line = "   ".join([row[0].ljust(name), *cells, row[-1]]).rstrip()
            yield line if len(line) <= room else line.replace("in the longest 10%", "in the tail")

    def _sentences(self) -> Iterator[str]:
        what = _words(self.cost)
        if self.cost == "rounds":
            yield "Few tokens or dollars are told; rounds stand for costs."
        shown = [one for one in self.costs if one["cost"] != "tokens" and one["runs"] < self.runs]
        if untold := [f"{_words(one['cost'])} of {self.runs - one['runs']:,}" for one in shown]:
            yield f"Not told: {', '.join(untold)} runs; sums and shares are over the others."
        at = "" if self.limit is None else f" of {self.limit:,}"
        ends = [f"{n:,} {_ENDS[name]}{at * (name == 'budget')}" for name, n in self.ended.items()]
        yield f"How runs ended: {', '.join(ends)}."
        if self.repeats is None:
            yield "Repeats: unknown, as no round tells its call."
        else:
            came = f"; {percent(self.repeats['share'])}% of all {what} came after the first repeat"
            runs = counted(self.repeats["runs"], "run")
            yield f"Repeats: {runs} asked the same again{came * bool(self.repeats['share'])}."
        for cap in self.caps:
            hit = f" ({cap['at_limit']:,} of those at the limit)" * bool(cap["at_limit"])
            saved = f"saved {percent(cap['saved'])}% of the {what}"
            touched = f"touched {counted(cap['touched'], 'run')}{hit}"
            yield f"A cap of {cap['rounds']:,} would have {touched} and {saved}."

    def tables(self) -> Sequence[Table]:
        said = (*self._sentences(), *self.notes)
        return (
            _frame("costs", self.costs, self._head(), said),
            _frame("caps", self.caps, f"Caps: shares of the {_words(self.cost)} saved"),
            _frame("next", self.next, self.missing),
        )


def _frame(name: str, rows: Sequence[Entry], title: str, notes: Sequence[str] = ()) -> Table:
    columns = [
        (key, Column(name=key, kind="text" if isinstance(cell, str) else "number"))
        for key, cell in (rows[0] if rows else {}).items()
    ]
    return table_of(name, rows, columns, title, notes)


def _words(name: str) -> str:
    return "dollars" if name == "usd" else name.replace("_", " ")


def _short(value: float) -> str:
    return f"{value / 1e6:,.1f}M" if value >= 1e6 else amount(value).removesuffix(".00")


def calls_of(action: str | None, query: str | None) -> list[tuple[str | None, str]]:
    """Return the calls of a round: the tool, where it is told, and a text that equal calls share.

    Of a text that is no call, as a thought or a hash, the query tells calls apart.
    """
    found: list[tuple[str | None, str]] = []
    for call in _NEXT_CALL.split((action or "").strip()):
        tool, _, told = call.partition(" ")
        if isinstance(arguments := loaded(told), str):
            words = " ".join((query or action or "").split())
            return [(None, words)] if words else []
        found.append((tool, f"{tool} {json.dumps(arguments, sort_keys=True, ensure_ascii=False)}"))
    return found


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
    def __init__(self) -> None:
        self.lengths = array("q")
        self.amounts = {name: array("d") for name in _MEASURES}
        self.by_round: dict[str, Counter[int]] = defaultdict(Counter)
        self.after, self.counts, self.tools, self.again = (Counter[str]() for _ in range(4))
        self.ended: dict[str, Counter[int]] = {name: Counter() for name in _ENDS}  # by rounds

    def add(self, run: QuestionRecord, *, texts: bool) -> None:
        if not run.rounds:
            self.counts["empty"] += 1
            return
        self.lengths.append(len(run.rounds))
        self.counts["labeled"] += bool(run.gold.answers or run.scores)
        costs, first, seen = _costs_of(run), None, set[str]()
        for number, one in enumerate(run.rounds):
            calls = calls_of(one.action, one.query)
            self.tools.update(tool for tool, _ in calls if tool is not None)
            again = [call for _, call in calls if call in seen]
            self.counts.update(calls=len(calls), repeats=len(again))
            self.again.update(struck(call[:_MOST_TEXT]) for call in again if texts)
            first = number if again and first is None else first
            seen.update(call for _, call in calls)
        for name, held in self.amounts.items():
            held.append(sum(costs[name]) if name in costs else math.nan)
            self.by_round[name].update(dict(enumerate(costs.get(name, ()))))
        if first is not None:
            self.counts["repeating"] += 1
            self.after.update({name: sum(costs[name][first:]) for name in costs})
        end, answer = str(run.stopped_by or "end"), run.rounds[-1].answer
        if end == "end":
            end = "answer" if answer and answer.strip() else "unknown"
        self.ended[end][len(run.rounds)] += 1


def look_at(
    logs: Iterable[Any],
    notes: Sequence[str] = (),
    typed: Sequence[str] = (),
    *,
    texts: bool = False,
) -> Look:
    """Return what logs show: objects with ``path``, ``format``, ``called``, ``runs()`` and ``problems``.

    ``typed``: the words that name exactly these logs for ``traces import``, if there are such.
    """
    tally, ids, whole = _Tally(), dict[int, int](), list[Any]()
    counts, formats, problems = tally.counts, dict[str, dict[str, Any]](), list[str]()
    for number, log in enumerate(logs):
        before, same = len(tally.lengths), counts["same"]
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always", SufficeWarning)
            for run in log.runs():
                counts["same"] += ids.setdefault(hash(run.question.id), number) != number
                tally.add(run, texts=texts)
        whole += [log] * (not log.problems and same == counts["same"])
        problems += [*log.problems, *(str(one.message) for one in warned)]
        told = {"format": log.format, "called": log.called, "files": 0, "runs": 0}
        kind = formats.setdefault(log.format, told)
        kind["files"] += 1
        kind["runs"] += len(tally.lengths) - before
    if not tally.lengths:
        raise DataError("; ".join(["no run with a round in these logs", *problems[:1]]))
    lengths, ended = np.array(tally.lengths), tally.ended
    longest = int(lengths.max())
    if longest > 1 and ended["unknown"][longest] >= _FEWEST_AT_LIMIT:  # a limit that nobody told
        ended["budget"][longest] += ended["unknown"].pop(longest)
    limits = [rounds for rounds, number in ended["budget"].items() if number]
    costs = tuple(one for name in _MEASURES if (one := _spread_of(name, tally, lengths)))
    told_by = Counter({one["cost"]: one["runs"] for one in costs if one["total"]})
    most = max(("tokens", "prompt_tokens", "usd"), key=lambda name: told_by[name])
    cost = most if told_by[most] else "rounds"
    total = next(one["total"] for one in costs if one["cost"] == cost)
    caps = tuple(_caps(tally, lengths, cost, total))
    repeats = {"runs": counts["repeating"], "calls": counts["repeats"]}
    said = {"without a round left out": counts["empty"], "with the id of another": counts["same"]}
    remarks = [f"{counted(number, 'run')} {what}." for what, number in said.items() if number]
    remarks += [*notes, *(f"Of {len(problems):,} problems: {one:.150}" for one in problems[:1])]
    words = typed if not notes and len(whole) == number + 1 else ()
    missing, steps = _next(whole, words, counts["labeled"], len(lengths), caps)
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
        notes=tuple(remarks),
        missing=missing,
        next=steps,
        texts=tuple(
            {"call": shorten(visible(" ".join(call.split())), 66, "..."), "repeats": number}
            for call, number in tally.again.most_common(_MOST_SHOWN)
        ),
    )


def _spread_of(name: str, tally: _Tally, lengths: Any) -> Entry | None:
    amounts = np.array(tally.amounts[name])
    lengths, amounts = lengths[~np.isnan(amounts)], amounts[~np.isnan(amounts)]
    if not len(amounts):
        return None
    size = max(1, round(0.1 * len(amounts)))
    border = np.sort(lengths)[-size]
    above = lengths > border
    # runs as long as the shortest of the tail share its remaining places evenly
    tail = float(amounts[above].sum() + amounts[lengths == border].mean() * (size - above.sum()))
    total = float(amounts.sum())
    spread = {"median": float(np.median(amounts)), "mean": total / len(amounts)}
    spread |= {"longest_mean": tail / size, "total": total}
    return {"cost": name, "runs": len(amounts), **spread, "longest_share": tail / (total or 1.0)}


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
        at_limit = sum(n for rounds, n in tally.ended["budget"].items() if rounds > cap)
        saved = {"at_limit": at_limit, "saved": min(1.0, beyond / total)}
        yield {"rounds": cap, "touched": touched[cap], **saved}


def _next(
    whole: Sequence[Any], typed: Sequence[str], labeled: int, runs: int, caps: Sequence[Entry]
) -> tuple[str, tuple[Entry, ...]]:
    """Return what is missing, and lines to type."""
    watch = f'suffice.Watch("fixed-{caps[0]["rounds"] if caps else 5}", record="live.db")'
    beside = {"line": watch, "what": "beside your agent, stops nothing"}
    if not caps:
        return "Each run has one round: there is nothing to stop. Record every round:", (beside,)
    if not whole:
        return "What a cap loses takes labels, and no log was read whole. Record anew:", (beside,)
    steps = list[Entry]()
    record = next((log.path for log in whole if log.format == "record"), "")
    if not record:
        files = (typed if not whole[0].stated else ()) or [
            shell_word(log.path) for log in whole[:_MOST_FILES]
        ]
        record, most = _free("logs.parquet"), f"the first {_MOST_FILES} "
        what = f"{most * (len(whole) > _MOST_FILES and not typed)}logs as a record"
        line = f"suffice traces import {' '.join(files)}{whole[0].stated} --out {record}"
        steps.append({"line": line, "what": what})
    if labeled >= min(_ENOUGH_LABELS, runs / 2):
        line = f"suffice choose {shell_word(record)}"
        steps.append({"line": line, "what": "what each policy is proven to lose"})
        return f"{counted(labeled, 'run')} have a score or gold answers. What a cap loses:", (
            *steps,
        )
    out = "" if record.endswith(SUFFIXES) else f" --out {_free('labeled.parquet')}"
    line = f"suffice traces label {shell_word(record)} labels.csv{out}"
    steps.append({"line": line, "what": f"gold answers or scores, {_ENOUGH_LABELS} are a start"})
    ways = "Two ways to know what a cap loses:"
    return f"Whether those answers were right is not in these logs. {ways}", (*steps, beside)


def _free(name: str) -> str:
    names = (Path(name).with_stem(f"{Path(name).stem}{n or ''}") for n in count())
    return str(next(one for one in names if not one.exists()))


def shell_word(name: str) -> str:
    """Return a file's name as a shell takes it and a terminal shows it."""
    if name.isprintable():
        return shlex.quote(f"./{name}" if name.startswith("-") else name)
    escaped = name.encode("unicode_escape").decode().replace("'", "\\'")
    return f"$'{escaped}'"
