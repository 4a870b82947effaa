"""Import of recordings made elsewhere, and of labels that arrive later."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from dataclasses import replace as replaced
from itertools import chain, count
from pathlib import Path
from typing import Any, Literal

from suffice.datasets.columns import (
    ROLES,
    SIGNAL,
    TASR,
    Layout,
    cell,
    number,
    read_columns,
    read_table,
    scaled,
    texts,
)
from suffice.datasets.conversations import (
    LISTS,
    Reader,
    atif,
    chat,
    claude_code,
    codex,
    conversations,
    promptfoo,
    swe_agent,
)
from suffice.datasets.files import (
    FileTable,
    Row,
    check_roles,
    json_documents,
    json_lines,
    no_column,
    open_table,
    text_id,
)
from suffice.datasets.inspect_ai import read_inspect
from suffice.datasets.otlp import read_otlp
from suffice.datasets.runs import child, children, passage_of
from suffice.datasets.samples import sample
from suffice.errors import DataError, UsageError, counted, did_you_mean
from suffice.trace.durable import check_free, sha256_of
from suffice.trace.lazy import in_memory
from suffice.trace.recording import live_store
from suffice.trace.rounds.derive import Written, read_source, write_copy
from suffice.trace.rounds.labels import LABEL_COLUMNS, Label, Labels
from suffice.trace.rounds.records import QuestionRecord
from suffice.trace.rounds.schema import SCHEMA
from suffice.trace.rounds.trace_set import TraceSet
from suffice.trace.rounds.writer import write_new

_ELSE = "for a table with one row per round type --format columns"


def _seen(names: Mapping[str, Any]) -> str:
    return ", ".join(map(repr, [*names][:12])) or "nothing"


# --- FlashRAG ---------------------------------------------------------------------------------------
def _iterations(row: Row) -> Iterator[Row]:
    """Return the rounds of a question in ``intermediate_data.json``; iteration 0 is round 1.

    Each query is what the pipeline sends: the question, later with the last answer.
    """
    output = row.inside("output", row.values.get("output"))
    total = next(n for n in count() if f"pred_iter_{n}" not in output.values)
    if not total or total < sum(name.startswith("pred_iter_") for name in output.values):
        raise row.error(
            f"has no 'pred_iter_{total}', so no answer of each iteration; it has "
            f"{_seen(output.values or row.values)}. FlashRAG's iterative pipeline (ITERRETGENPipeline) keeps "
            f"them; with another, save an answer of every round: {_ELSE}",
            "output",
        )
    question = row.required("question")
    query, found = question, set[str]()
    for iteration in range(total):
        answer = output.text(f"pred_iter_{iteration}")
        passages = _documents(output, f"retrieval_result_iter_{iteration}")
        values = {
            "question_id": str(row.values.get("id") or text_id(question)),
            "question": question,
            "gold_answers": texts(row, row.values.get("golden_answers"), "golden_answers"),
            "round": iteration + 1,
            "answer": answer.strip(),
            "response": answer,
            "query": query,
            "passages": [p for own, p in passages.items() if own not in found],
            "refound": [p for own, p in passages.items() if own in found],
            "llm_calls": 1,
            "answer_calls": 0,
            "retrievals": 1,
        }
        yield Row(row.file, row.number, values)
        query, found = f"{question} {answer}", found | passages.keys()


def _documents(output: Row, name: str) -> dict[str, dict[str, Any]]:
    passages: dict[str, dict[str, Any]] = {}
    for document in output.objects(name):
        contents = document.get("contents")
        if isinstance(contents, str):
            first, line_feed, text = contents.partition("\n")
            title = document.get("title") or (first.strip().strip('"') if line_feed else "")
            document |= {"title": title, "text": text if line_feed else contents}
        passage = passage_of(document)
        passages.setdefault(passage.id, asdict(passage))
    return passages


# --- LoopGain ---------------------------------------------------------------------------------------
def _trials(path: Path) -> Iterator[Row]:
    """Return the rounds of loopgain-bench trials under the largest fixed budget (B20), which nothing stopped.

    Only the last round has an answer. Signal ``error`` is the loop's own. The score is 1 - error if the
    file's errors lie in [0, 1]; else it is 1 once the cell's target is reached, and 0 before.
    """
    rows = list(json_lines(path))
    header = next((row.values for row in rows if row.values.get("_header")), {})
    trials = [(row, *_budget(row)) for row in rows if not row.values.get("_header")]
    if not trials:
        raise DataError("holds no trial", file=str(path))
    shares = all(error <= 1.0 for *_, errors in trials for error in errors)
    stated = header.get("cell")
    target = stated.get("target_error") if isinstance(stated, dict) else None
    reached = float(target) if isinstance(target, int | float) else 0.0
    for row, output, errors in trials:
        for at, error in enumerate(errors, start=1):
            values = {
                "question_id": row.required("trial_id"),
                "question": row.text("prompt", default=""),
                "question_type": row.text("loop_type", default="") or None,
                "round": at,
                "answer": None if output is None or at < len(errors) else str(output),
                "llm_calls": 1,
                "signals": {"error": error},
                "score": 1.0 - error if shares else float(error <= reached),
            }
            yield Row(row.file, row.number, values)


def _budget(row: Row) -> tuple[Any, list[float]]:
    conditions = row.inside("conditions", row.values.get("conditions"))
    budgets = [name for name in conditions.values if re.fullmatch(r"B\d{1,4}", name)]
    if not budgets:
        raise row.error(
            "is no trial of LoopGain's benchmark: no condition of a fixed budget (B5, B10, B20); it has "
            f"{_seen(conditions.values or row.values)}; {_ELSE}",
            "conditions",
        )
    largest = max(budgets, key=lambda name: int(name[1:]))
    budget = conditions.inside(largest, conditions.values[largest])
    errors = [number(budget, error, "error_history") for error in budget.rows("error_history")]
    if not errors or not all(error >= 0 for error in errors):
        raise budget.error("must be numbers of at least 0", "error_history")
    return budget.values.get("final_output"), errors


_RUN = (
    "a round is a search or another use of a tool with the calls that led to it; the agent's last message "
    "is the answer of the last round"
)


_ROLLOUT = ("session_meta", "response_item", "event_msg", "turn_context")


def _of_spans(row: Mapping[str, Any]) -> bool:
    spans = (row, *children(row, "spans")[:1], *children(child(row, "data"), "spans")[:1])
    own = any("attributes" in one and {"span_id", "context"} & {*one} for one in spans)
    return own or any(name in row for name in ("resourceSpans", "resource_spans"))


def _said(message: Mapping[str, Any]) -> bool:
    return "role" in message or {"from", "value"} <= {*message} or "type" in message


Looks = Callable[[Mapping[str, Any]], bool]


@dataclass(frozen=True, slots=True)
class Format:
    """A format of recordings: its name in a sentence, its file type, its reader, and its notes.

    ``looks`` says of a first object of a file whether it is in this format. ``rows``: it is a table of
    rounds, which the options of tables are for.
    """

    called: str
    meaning: str
    looks: Looks
    read: Callable[[Path, Layout], Iterable[QuestionRecord]]
    note: str = ""
    rows: bool = False


def _rows_of(
    called: str, meaning: str, looks: Looks, read: Callable[[Path], Iterable[Row]]
) -> Format:
    def table(path: Path, layout: Layout) -> Iterable[QuestionRecord]:
        return read_table(FileTable.of(path, read(path)), layout)

    return Format(called, meaning, looks, table, rows=True)


def _spans_of(called: str, meaning: str, looks: Looks, note: str = "") -> Format:
    return Format(called, meaning, looks, lambda path, _: read_otlp(path), _RUN + note)


def _talks_of(called: str, meaning: str, looks: Looks, read: Reader, note: str = "") -> Format:
    return Format(called, meaning, looks, lambda path, _: conversations(path, read), _RUN + note)


FORMATS: Mapping[str, Format] = {
    "columns": Format(
        "a table",
        "JSON lines, JSON, CSV or Parquet with one row per question and round, by --columns",
        lambda row: "question_id" in row or {"question", "answer"} <= {*row},
        read_columns,
        rows=True,
    ),
    "flashrag": _rows_of(
        "FlashRAG",
        "intermediate_data.json of an iterative pipeline",
        lambda row: "pred_iter_0" in child(row, "output"),
        lambda path: chain.from_iterable(map(_iterations, json_documents(path))),
    ),
    "loopgain": replaced(
        _rows_of(
            "LoopGain",
            "JSON lines of loopgain-bench",
            lambda row: "_header" in row or "trial_id" in row,
            _trials,
        ),
        note="score: 1 - error where a file's errors lie in 0 to 1, else whether the target was reached; "
        "where the loop computed its error from a label, no live loop has the signal",
    ),
    "tasr": Format(
        "TASR",
        "Parquet files of TASR's experiments",
        lambda row: {"qid", "current_answer"} <= {*row},
        lambda path, layout: read_columns(path, replaced(layout, columns=TASR)),
        "score is current_f1; the margin, overlap and gap are the recorded ones",
        rows=True,
    ),
    "atif": _talks_of(
        "ATIF",
        "trajectories of agents in the Agent Trajectory Interchange Format, up to 1.8",
        lambda row: str(row.get("schema_version")).startswith("ATIF"),
        atif,
    ),
    "otlp": _spans_of(
        "spans",
        "OTLP JSON of an agent's spans, by OpenTelemetry's GenAI conventions or OpenInference's",
        _of_spans,
        "; spans tell no log-probabilities, and texts only where their recording was switched on "
        "(OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=true)",
    ),
    "langfuse": _spans_of(
        "traces or observations of Langfuse",
        "traces or observations of Langfuse in JSON, whole or one a line",
        lambda row: (
            "observations" in row or ("type" in row and bool({"traceId", "trace_id"} & {*row}))
        ),
    ),
    "langsmith": _spans_of(
        "runs of LangSmith",
        "runs of LangSmith in JSON, whole or one a line",
        lambda row: "run_type" in row,
    ),
    "inspect": Format(
        "inspect_ai",
        "logs of inspect_ai, .eval or .json",
        lambda row: "header.json" in row or "samples" in row or {"eval", "plan"} <= {*row},
        lambda path, _: read_inspect(path),
        f"{_RUN}; scores given while a sample ran are those of their round",
    ),
    "claude-code": _talks_of(
        "Claude Code session",
        "sessions of Claude Code, JSON lines; without subagents",
        lambda row: "sessionId" in row and not {"role", "messages"} & {*row},
        claude_code,
    ),
    "codex": _talks_of(
        "Codex rollout",
        "rollouts of the Codex CLI, JSON lines",
        lambda row: "record_type" in row or (row.get("type") in _ROLLOUT and "payload" in row),
        codex,
    ),
    "swe-agent": _talks_of(
        "SWE-agent trajectory",
        "trajectories of SWE-agent and mini-swe-agent, .traj or .traj.json",
        lambda row: (
            bool({"exit_status", "model_stats"} & {*child(row, "info")})
            or str(row.get("trajectory_format")).startswith("mini-swe-agent")
            or {"action", "observation"} <= {*next(iter(children(row, "trajectory")), {})}
        ),
        swe_agent,
        "; the submission is the answer, and sums of tokens over a whole run are not read",
    ),
    "promptfoo": _rows_of(
        "promptfoo results",
        "results of promptfoo, JSON or JSON lines; repeats of a test are rounds",
        lambda row: (
            "evalId" in row or {"prompts", "results"} <= {*row} or {"testIdx", "vars"} <= {*row}
        ),
        lambda path: promptfoo(json_documents(path)),
    ),
    "chat": _talks_of(
        "OpenAI chat messages",
        "chat messages of OpenAI, Anthropic or ShareGPT, JSON or JSON lines, with uses of tools",
        lambda row: (
            "role" in row
            or row.get("type") in ("message", "function_call")
            or any(_said(one) for name in LISTS for one in children(row, name)[:2])
        ),
        chat,
    ),
}


def recognized(path: str | Path) -> str:
    """Return the name in :data:`FORMATS` of a file's format, from its first objects.

    Reads at most 256 KiB. Raises ``DataError`` if no format fits, or several do.
    """
    rows = sample(Path(path))
    fit = [name for name, kind in FORMATS.items() if any(map(kind.looks, rows))]
    fit = [name for name in fit if name not in ("columns", "chat")] or fit
    if len(fit) == 1:
        return fit[0]
    found = (
        f"could be {' or '.join(fit)}"
        if fit
        else f"is in no known format: it has {_seen(rows[0] if rows else {})}"
    )
    raise DataError(f"{found}; say which: --format {'|'.join(fit or FORMATS)}", file=str(path))


def import_traces(
    files: str | Path | Sequence[str | Path],
    out: str | Path,
    *,
    format: str | None = None,  # noqa: A002
    columns: Mapping[str, str] | None = None,
    rounds_from: Literal[0, 1] | None = None,
    duplicates: Literal["refuse", "first", "last"] = "refuse",
    answers_in_every_round: bool = False,
    separator: str = "",
    score_range: Sequence[float] = (),
    skip_invalid: bool = False,
) -> Written:
    """Read recordings made elsewhere and write them as a trace set: all of them, or nothing.

    ``files`` are one or several of a ``format`` (a name of :data:`FORMATS`; ``None``: what each file looks
    like, said in a note), or folders of them; all rounds of a question are in one of them.
    ``out`` is a new ``.parquet`` file or directory. The returned notes say what the recording
    lacks and what to do. The other arguments are for tables, not for agent runs.

    ``columns`` maps roles to the file's columns: names of the schema, ``passage_ids``, ``passage_titles``,
    ``passage_texts``, ``passage_scores`` and ``signals.NAME``. A field inside a column is ``usage.in``; of
    each item of a list it is ``hits[].doc``. Seconds may be in smaller units: then the role or the column
    ends in the unit, as ``latency_ms``. Every other column with a name of the schema is read too, unless the
    map has ``NAME=-``; the notes list what is not read.
    ``rounds_from`` is the number of a question's first round; 1: a round 0 is the closed-book answer;
    ``None``: 1, and an error if most questions have a round 0, or one retrieved something. ``duplicates``
    chooses among several rows of one round. ``answers_in_every_round``: the loop answers in each round
    anyway, so that ``answer_calls`` is 0 where the table does not say it. ``separator`` parts several texts
    in a cell. ``score_range`` is what the worst and the best score are; they become 0 and 1.
    ``skip_invalid`` drops questions that lack a round or have an invalid cell, with a note.
    """
    if format is not None and format not in FORMATS:
        raise UsageError(
            f"no format {format!r}; allowed: {', '.join(FORMATS)}{did_you_mean(format, FORMATS)}"
        )
    stated = "columns" if columns and format is None else format
    if columns and stated != "columns":
        raise UsageError(f"the columns of {format} are known; --columns goes with --format columns")
    check_roles(columns or {}, ROLES, free=SIGNAL)
    if rounds_from not in (None, 0, 1) or duplicates not in ("refuse", "first", "last"):
        raise UsageError(
            "rounds_from is 0 or 1, duplicates 'refuse', 'first' or 'last'; "
            f"found {rounds_from!r:.40}, {duplicates!r:.40}"
        )
    layout = Layout(
        columns=columns or {},
        rounds_from=rounds_from,
        duplicates=duplicates,
        answers_in_every_round=answers_in_every_round,
        separator=separator,
        score_range=score_range,
        skip_invalid=skip_invalid,
    )
    given = [Path(file) for file in ([files] if isinstance(files, str | Path) else files)]
    named, foreign = _named(given, stated)
    runs = [name for name in named.values() if not FORMATS[name].rows]
    if runs and layout != Layout(columns=layout.columns):
        raise UsageError(
            f"the rounds of {runs[0]} are known; --rounds-from, --duplicates, --answers-in-every-round, "
            "--separator, --score-range and --skip-invalid go with --format columns"
        )
    check_free(Path(out))
    records: dict[str, QuestionRecord] = {}
    sources: dict[str, Path] = {}
    for path, kind in named.items():
        for record in _read(path, FORMATS[kind], layout):
            name = record.question.id
            if name in records:
                raise DataError(
                    f"holds question {name!r}, as {sources[name]} does; a question is recorded once: import "
                    "different runs of it to records of their own",
                    file=str(path),
                )
            records[name] = record
            sources[name] = path
    empty = named.keys() - sources.values()
    if missed := [path for path in named if path in empty and (path in given or not records)]:
        raise DataError("holds no step of an agent", file=str(missed[0]))
    named = {path: name for path, name in named.items() if path not in empty}
    foreign += sorted(empty)
    came_from = {
        "format": ", ".join(dict.fromkeys(named.values())),
        "files": [
            {"file": path.name, **({} if path.is_dir() else {"sha256": sha256_of(path)})}
            for path in named
        ],
        **({"columns": dict(columns)} if columns else {}),
        **({} if rounds_from is None else {"rounds_from": rounds_from}),
        **({"score_range": [*score_range]} if score_range else {}),
        **({"answers_in_every_round": True} if answers_in_every_round else {}),
    }
    write_new(records.values(), Path(out), {"imported": came_from})
    splits = Counter(r.question.split for r in records.values() if r.question.split is not None)
    kinds = dict.fromkeys(named.values())
    notes = [] if stated else [_believed(named, name) for name in kinds]
    if foreign:
        notes.append(
            f"left out {counted(len(foreign), 'file')} of no known format or without a step of an agent, "
            f"the first: {foreign[0]}"
        )
    notes += dict.fromkeys(FORMATS[name].note for name in kinds if FORMATS[name].note)
    return Written(
        out=str(out),
        questions=len(records),
        rounds=sum(len(record.rounds) for record in records.values()),
        splits=dict(sorted(splits.items())),
        notes=(*notes, *dict.fromkeys(layout.notes), *_lacking([*records.values()], out)),
    )


def _named(given: Iterable[Path], stated: str | None) -> tuple[dict[Path, str], list[Path]]:
    """Return the formats of files, and the files in folders that are in none."""
    named: dict[Path, str] = {}
    foreign: dict[Path, DataError] = {}
    for path in given:
        for one in inside(path) if stated is None and path.is_dir() else [path]:
            try:
                named[one] = stated or recognized(one)
            except DataError as error:
                if one == path:
                    raise
                foreign[one] = error
    if foreign and not named:
        raise next(iter(foreign.values()))
    if not named:
        raise UsageError("no file to import; name at least one")
    return named, [*foreign]


def inside(folder: Path, unread: Callable[[OSError], object] | None = None) -> Iterator[Path]:
    """Yield the files in a folder and its folders, without hidden ones and links to folders."""
    for root, folders, files in os.walk(folder, onerror=unread):
        folders[:] = sorted(one for one in folders if not one.startswith("."))
        paths = (Path(root, name) for name in sorted(files) if not name.startswith("."))
        yield from (path for path in paths if path.is_file())  # no pipe, no device


def _believed(named: Mapping[Path, str], name: str) -> str:
    mine = [path for path, one in named.items() if one == name]
    more = f" and {counted(len(mine) - 1, 'file')} more" if len(mine) > 1 else ""
    return f"{mine[0]}{more}: {FORMATS[name].called} (--format {name})"


def _read(path: Path, kind: Format, layout: Layout) -> Iterator[QuestionRecord]:
    try:
        yield from kind.read(path, layout)
    except DataError as error:
        whole = error.row is None and error.column is None
        raise DataError(
            f"{error.message}; read as {kind.meaning}" if whole else error.message,
            file=error.file or str(path),
            row=error.row,
            column=error.column,
        ) from error


def _lacking(records: Sequence[QuestionRecord], out: str | Path) -> Iterator[str]:
    rounds = [round_ for record in records for round_ in record.rounds]
    passages = [passage for round_ in rounds for passage in round_.passages or ()]
    tokens = [token for round_ in rounds for token in round_.tokens or ()]
    longest = max(len(record.rounds) for record in records)
    if untold := sum(not record.question.text.strip() for record in records):
        yield (
            f"no text of {untold:,} of {counted(len(records), 'question')}: no model can be asked for their "
            "answers; record what was asked"
        )
    if unanswered := sum(round_.answer is None for round_ in rounds):
        few = " --missing-only" if 2 * unanswered < len(rounds) else ""
        yield (
            f"no answer in {unanswered:,} of {counted(len(rounds), 'round')}: what stopping there would "
            "score is not known, unless the record has scores; record an answer per round, or ask for it on "
            f"the recorded evidence: suffice probe {out} --llm URL --out NEW{few}"
        )
    if not any(record.gold.answers for record in records):
        yield (
            "no question has gold answers: policies are compared by the record's scores, or else by "
            f"agreement with the full budget's answer; label some: suffice traces label {out} LABELS"
        )
    yield from _parting(record.gold.answers for record in records)
    if not any(passage.text for passage in passages):
        kind = "passages without text" if passages else "no passages"
        yield f"{kind}: signals that read them are undefined; record passages with id and text"
    if not any(token.top for token in tokens):
        kind = (
            "log-probabilities without alternatives" if tokens else "no log-probabilities of tokens"
        )
        yield f"{kind}: margins are undefined unless given as signals; ask the model for top_logprobs"
    if all(round_.usage.prompt_tokens is None for round_ in rounds):
        yield (
            "no token counts of whole rounds, which one call without them makes unknown: costs are rounds "
            "and calls; record prompt_tokens and completion_tokens of every call"
        )
    elif untold := sum(bool(r.usage.llm_calls) and r.usage.prompt_tokens is None for r in rounds):
        yield (
            f"{counted(untold, 'round')} of {len(rounds):,} with a model call that tells no prompt tokens: "
            "their sums are unknown, and so are costs in tokens; have every call report its usage"
        )
    told = [r.usage.prompt_tokens is None or r.usage.answer_calls is not None for r in rounds]
    if not any(told) and not unanswered and longest > 1:
        yield (
            "a round's usage counts as its answer's: a policy that reads no answers pays for one round; if "
            "your loop answers in every round anyway, add --answers-in-every-round (answer_calls = 0)"
        )
    short = (record for record in records if len(record.rounds) < longest)
    if unstated := sum(record.stopped_by is None for record in short):
        yield (
            f"{counted(unstated, 'question')} of fewer than {counted(longest, 'round')} without a reason "
            "(stopped_by: policy, budget, end, error, gold or user); each reads as run to a full budget of "
            "its own"
        )
    if any(record.closed_book is not None for record in records):
        yield "round 0 was taken for the closed-book answer, at which no policy stops"


def _parting(golds: Iterable[Iterable[str]]) -> Iterator[str]:
    texts = [*chain.from_iterable(golds)]
    for mark in [mark for mark in "|;" if 2 * sum(mark in one for one in texts) > len(texts)][:1]:
        yield f"most gold answers hold {mark!r}; if it parts several of them, add --separator {mark!r}"


LABEL_ROLES = ("question_id", "question", *LABEL_COLUMNS, "round")
"""What a column of a file of labels may hold."""


def label_traces(
    source: str | Path,
    labels: str | Path | Iterable[Label],
    out: str | Path | None = None,
    *,
    columns: Mapping[str, str] | None = None,
    separator: str = "",
    score_range: Sequence[float] = (),
    replace: bool = False,
    skip_unknown: bool = False,
    skip_invalid: bool = False,
) -> Written:
    """Add gold answers, types, groups or scores later: to a store, or to a copy of the record.

    ``source`` is a Parquet file or a directory of them, which stays unchanged, or a store. ``out`` is a new
    ``.parquet`` file or directory, or ``None``: into the store. ``labels`` are labels, or a file of JSON
    lines, JSON, CSV or Parquet with one label per row. ``columns`` maps :data:`LABEL_ROLES` to its columns:
    ``question_id`` (or ``question``, for every question with that text) and others; default: columns of the
    same name. ``separator`` and ``score_range`` as in :func:`suffice.traces.import_`. ``replace``: the label
    overrides the record. ``skip_unknown`` drops labels of unrecorded
    questions, with a note.
    """
    store = live_store(source)
    if out is not None:
        check_free(Path(out))
    elif store is None or replace:
        raise UsageError("only a store can be labeled in place; write a copy: --out NEW")
    read = read_source(source, skip_invalid=skip_invalid)
    name = read.origin.source
    notes: list[str] = []
    if isinstance(labels, str | Path):
        place = str(labels)
        layout = Layout(separator=separator, score_range=score_range, notes=notes)
        given = _read_labels(Path(labels), columns or {}, layout, read)
        notes += _parting(label.gold_answers for label in given)
    else:
        place = "the labels given"
        given = list(labels)
        if columns:
            raise UsageError("columns goes with a file of labels; these are labels already")
    try:
        merged = Labels.of(given)
        known = frozenset(read.question_ids)
        import pyarrow as pa

        held = {"question_id", "round", *LABEL_COLUMNS} & {*read.table.column_names}
        rows = pa.concat_tables(one.select(sorted(held)) for one in (read.table, read.closed_book))
        fitted = merged.only(known).fitted_to(rows)
    except DataError as error:
        raise DataError(
            error.message, file=error.file or place, row=error.row, column=error.column
        ) from error
    if unknown := merged.unknown(known):
        named = ", ".join(map(repr, unknown[:10]))
        more = f" and {len(unknown) - 10:,} more" * (len(unknown) > 10)
        of = f"{len(unknown):,} of {len(merged.questions):,} labeled questions"
        said = f"{of} are not in {name}: {named}{more}"
        if not skip_unknown:
            near = did_you_mean(unknown[0], read.question_ids)
            raise DataError(
                f"{said}{near}; leave them out with --skip-unknown",
                column="question_id",
                file=place,
            )
        notes.append(f"{said}; they were left out")
    if not fitted:
        raise DataError(
            "labels no question of the record: every row is empty, or names an unrecorded question",
            file=place,
        )
    conflicts = [] if replace else [error for _, error in fitted.conflicts(rows, name)]
    if conflicts:
        more = f" ({len(conflicts) - 1:,} more)" if len(conflicts) > 1 else ""
        raise DataError(conflicts[0].message + more, file=place, column=conflicts[0].column)
    labelled = len(fitted.questions)
    notes.insert(0, f"labeled {labelled:,} of {counted(len(known), 'question')}")
    if out is None and store is not None:
        for label in given:
            if label.question_id in fitted.questions and any(label.parts()):
                store.label(label)
        return Written.of(read, name, notes=tuple(notes))
    step = {"by": "label", "from": Path(name).name, "labels": place, "questions": labelled}
    table, closed_book = (fitted.onto(in_memory(one)) for one in (read.table, read.closed_book))
    filled = TraceSet(table=table, closed_book=closed_book, origin=read.origin)
    return write_copy([filled], str(out), step=step, notes=notes)


def _read_labels(
    path: Path, columns: Mapping[str, str], layout: Layout, read: TraceSet
) -> list[Label]:
    table = open_table(path)
    command = f"suffice traces label {read.origin.source} {path}"
    check_roles(columns, LABEL_ROLES)
    for role, column in columns.items():
        if column not in table.names:
            raise no_column(table, role, column, command)
    free = {*table.names} - {*columns.values()}
    held = {**{role: role for role in LABEL_ROLES if role in free}, **columns}
    by_text = "question_id" not in held
    if by_text and "question" not in held:
        raise no_column(table, "question_id", "question_id", command)
    if not {*LABEL_COLUMNS} & {*held}:
        raise no_column(table, "gold_answers", "gold_answers", command)
    ids: dict[str, list[str]] = {}
    for question in read.questions if by_text else ():
        ids.setdefault(question.text.strip(), []).append(question.id)
    labels: list[Label] = []
    blank = 0
    for row in table.rows(tuple(dict.fromkeys(held.values()))):
        found = _labels(row, held, ids if by_text else None, layout)
        blank += not found
        labels += found
    if blank:
        layout.notes.append(f"{counted(blank, 'row')} of {path} without a label")
    return labels


def _labels(
    row: Row, held: Mapping[str, str], ids: Mapping[str, Collection[str]] | None, layout: Layout
) -> list[Label]:
    row, values = replaced(row, separator=layout.separator), dict[str, Any]()
    for role, column in held.items():
        value = row.get(column)
        if value is None or (isinstance(value, str) and not value.strip()):
            continue
        value = cell(row, value, column, SCHEMA.field(role).type)
        if isinstance(value, list):
            values[role] = tuple(text.strip() for text in value)
        elif role == "score" and value is not None and layout.score_range:
            values[role] = scaled(row, value, column, layout.score_range)
        elif value is not None:
            values[role] = value.strip() if isinstance(value, str) else value
    key = values.pop("question" if ids is not None else "question_id", None)
    values.pop("question", None)
    if not {*LABEL_COLUMNS} & {*values}:
        return []
    if key is None:
        raise row.error("is empty; each question needs one", held.get("question_id", "question"))
    place = f"{row.file}, row {row.number}"
    try:
        return [
            Label(question_id=name, **values, place=place)
            for name in ([key] if ids is None else ids.get(key, [key]))
        ]
    except DataError as error:
        raise row.error(error.message, held.get(error.column or "", error.column)) from error
