"""Damages stored files in every way that comes to mind, and reads them.

python -m tests.faults.damage traces 10000 says what came of it; so do policies, plans, indexes, caches,
runs and states, and all for as many as the slow test tries. Another seed is a third argument.
"""

from __future__ import annotations

import copy
import hashlib
import json
import math
import os
import random
import shutil
import signal
import sqlite3
import struct
import sys
import tempfile
import time
import traceback
import warnings
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from tests.gates import informative
from tests.plan_records import make_plan

from suffice.errors import SufficeError
from suffice.live.controller import Controller
from suffice.llm.cache import CachedModel
from suffice.measures.contents import traces_info
from suffice.monitor.coverage import Watch, promise_of
from suffice.policies.ab_rag.policy import ABRagPolicy
from suffice.policies.file import load_policy, save_policy
from suffice.policies.fixed import FixedPolicy
from suffice.policies.method import Weighted, weights_beside
from suffice.policies.registry import fit_method
from suffice.policies.rules.policy import RulePolicy
from suffice.policies.stop_rag.policy import StopRAGPolicy
from suffice.policies.stop_rag.signal_network import SignalNetwork, weight_shapes
from suffice.protocols import GenerationRequest, StopPolicy
from suffice.retrieval.dense.index import DenseIndex
from suffice.retrieval.lexical.bm25 import BM25Index
from suffice.testing.encoders import HashingEncoder
from suffice.testing.models import ScriptedModel
from suffice.testing.traces import make_record
from suffice.trace.lazy import in_memory
from suffice.trace.parquet import write_table
from suffice.trace.plans.file import read_plans, write_plans
from suffice.trace.recording import failures_of
from suffice.trace.rounds.journal import read_watch_1
from suffice.trace.rounds.reader import inspect_traces, read_traces
from suffice.trace.rounds.records import Passage, Round, as_document
from suffice.trace.rounds.writer import question_writer, write_traces

EXAMPLE = Path(__file__).parents[2] / "examples/traces/generated.parquet"
MOST_SECONDS = 2.0
MOST_BYTES = 500_000_000
_TOO_LONG_S = 20.0
_MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # where no disk is waited for
_PIECE = 250
TIMES: Mapping[str, int] = {
    "traces": 10_000,
    "policies": 1500,
    "plans": 750,
    "indexes": 1000,
    "caches": 500,
    "runs": 750,
    "states": 750,
}
Case = Callable[[random.Random], None]


# --- damage ---------------------------------------------------------------------------------------
def damaged(content: bytes, draw: random.Random) -> bytes:
    """The bytes, cut, flipped, swapped, overwritten, repeated or lengthened."""
    data = bytearray(content)
    at = draw.randrange(len(data) + 1)
    size = draw.choice([1, 4, 16, 200])
    match draw.randrange(9):
        case 0:
            del data[at:]
        case 1:
            for _ in range(draw.choice([1, 1, 3, 20])):
                if data:
                    data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
        case 2:
            other = draw.randrange(len(data) + 1)
            data[at : at + size], data[other : other + size] = (
                data[other : other + size],
                data[at : at + size],
            )
        case 3:
            del data[at : at + size]
        case 4:
            data[at:at] = draw.randbytes(size)
        case 5:
            data[at : at + size] = bytes(size)
        case 6:
            # giant sizes: 2^31 - 1, -1, 2^63 - 1, and the longest of variable length
            giant = [b"\xff\xff\xff\x7f", b"\xff" * 8, struct.pack("<q", 2**63 - 1)]
            data[at : at + 4] = draw.choice(
                [*giant, b"\xfe\xff\xff\xff\x0f", b"\xff" * 9 + b"\x01"]
            )
        case 7:
            data[at:at] = data[at : at + 1000] * draw.choice([1, 5])
        case _:
            data += draw.randbytes(size)
    return bytes(data)


_DEEP = "\ue000deep"  # stands for what json.dumps could not write
_RAW = {
    f"{_DEEP}{number}": text
    for number, text in enumerate(
        (
            *("[" * 100_000 + "]" * 100_000, '{"a":' * 5000 + "1" + "}" * 5000, "1e999", "NaN"),
            *("9" * 400, "9" * 6000, "-" + "9" * 30, "[" * 900, '"\\ud800"', "1e-400"),
        )
    )
}
_WILD: tuple[Any, ...] = (
    *_RAW,
    *(None, True, -1, 0, 2**31, 2**63, 10**30, 0.5, -0.0, math.inf, math.nan),
    *(
        "",
        "x",
        "x" * 100_000,
        "\x00",
        "-inf",
        "nan",
        "../../etc/passwd",
        [],
        {},
        [[]],
        [None],
        {"": 1},
    ),
    *([1] * 10_000, {"a": {"b": {}}}, "\u202e\x1b[2J"),
)


def damaged_json(document: Any, draw: random.Random) -> bytes:
    """The document with some values replaced, dropped, renamed or repeated, or its text damaged."""
    if draw.random() < 0.3:
        return damaged(json.dumps(document).encode(), draw)
    changed = copy.deepcopy(document)
    for _ in range(draw.choice([1, 1, 1, 2, 4])):
        changed = _changed(changed, draw)
    text = json.dumps(changed)
    for name, raw in _RAW.items():
        text = text.replace(json.dumps(name), raw)
    return text.encode()


def _changed(document: Any, draw: random.Random) -> Any:
    places = list(_places(document))
    if not places or draw.random() < 0.03:
        return copy.deepcopy(draw.choice(_WILD))
    holder, key = draw.choice(places)
    action = draw.randrange(6)
    if action < 3:
        holder[key] = copy.deepcopy(draw.choice(_WILD))
    elif action == 3:
        del holder[key]
    elif action == 4 and isinstance(holder, dict):
        holder[f"{key}_"] = holder.pop(key)
    elif isinstance(holder, list):
        holder.extend(holder[:50])
    else:
        other, there = draw.choice(places)
        holder[key] = copy.deepcopy(other.get(there) if isinstance(other, dict) else other[:1])
    return document


def _places(document: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(document, dict | list):
        keys = list(document) if isinstance(document, dict) else list(range(len(document)))[:30]
        for key in keys:
            yield document, key
            yield from _places(document[key])


def damaged_table(table: pa.Table, draw: random.Random) -> pa.Table:
    """The table with columns of other types, values, names and metadata."""
    for _ in range(draw.choice([1, 1, 2])):
        at = draw.randrange(table.num_columns)
        field, cells = table.schema.field(at), table.column(at)
        match draw.randrange(7):
            case 0:
                table = table.remove_column(at)
                if not table.num_columns:
                    return pa.table({"x": [1]})
            case 1:
                table = table.set_column(at, field.name + draw.choice(["_", "s", "\x00"]), cells)
            case 2:
                table = table.set_column(at, field.name, _other_type(cells, draw))
            case 3:
                table = table.set_column(at, field.name, _other_values(cells, draw))
            case 4:
                table = table.take([draw.randrange(table.num_rows) for _ in range(table.num_rows)])
            case 5:
                table = table.append_column(field.name, cells)
            case _:
                table = table.replace_schema_metadata(_other_metadata(table, draw))
    return table


_TYPES = (
    *(pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.binary_view(), pa.bool_()),
    *(pa.int8(), pa.uint64(), pa.float16(), pa.float64(), pa.decimal128(20, 3), pa.date32()),
    *(pa.timestamp("ns"), pa.timestamp("s", "UTC"), pa.duration("s"), pa.time64("us"), pa.null()),
    *(pa.list_(pa.string()), pa.large_list(pa.int64()), pa.list_view(pa.string())),
    *(
        pa.struct([("id", pa.string())]),
        pa.map_(pa.string(), pa.string()),
        pa.list_(pa.float64(), 3),
    ),
    *(pa.dictionary(pa.int8(), pa.string()), pa.list_(pa.list_(pa.list_(pa.string())))),
)
_VALUES: tuple[Any, ...] = (
    *(0, -1, 2**31 - 1, 2**62, 1.5, math.inf, -math.inf, math.nan, 1e308, True),
    *("x", "", "x" * 200_000, b"\xff", [], ["x"], [None], [["x"]], {"id": "x"}, [{"id": None}]),
    *([("a", math.inf)], [1.0] * 5000, {"id": 1, "text": None}),
)


def _other_type(cells: pa.ChunkedArray, draw: random.Random) -> pa.ChunkedArray:
    kind = draw.choice(_TYPES)
    try:
        return cells.cast(kind, safe=False)
    except (pa.ArrowException, NotImplementedError):
        return pa.chunked_array([_repeated(draw, len(cells), kind)])


def _repeated(draw: random.Random, rows: int, kind: pa.DataType | None = None) -> pa.Array:
    values = [value for value in _VALUES if value != [None]]
    for _ in range(40):
        try:
            array = pa.array([draw.choice(values)], kind)
            return pa.array(array.to_pylist() * rows, array.type)
        except (pa.ArrowException, ValueError, TypeError, OverflowError, NotImplementedError):
            continue
    return pa.nulls(rows, kind or pa.string())


def _other_values(cells: pa.ChunkedArray, draw: random.Random) -> pa.ChunkedArray:
    """Of the column's own type, where some fit."""
    values, kind = cells.to_pylist(), cells.type
    for _ in range(draw.choice([1, 5, len(values)])):
        at = draw.randrange(len(values))
        other = copy.deepcopy(values[at])
        # a null among a map's pairs ends the process within Arrow, before anything is stored
        if isinstance(other, list) and other and not pa.types.is_map(kind) and draw.random() < 0.7:
            inner = draw.randrange(len(other))
            if isinstance(other[inner], dict):
                other[inner][draw.choice(list(other[inner]))] = draw.choice(_VALUES)
            else:
                other[inner] = draw.choice([None, *_VALUES])
        else:
            other = draw.choice([None, *_VALUES])
        if pa.types.is_map(kind) and isinstance(other, list) and None in other:
            continue
        try:
            pa.array([other], kind)
        except (pa.ArrowException, ValueError, TypeError, OverflowError, NotImplementedError):
            continue
        values[at] = other
    return pa.chunked_array([pa.array(values, kind)])


def _other_metadata(table: pa.Table, draw: random.Random) -> Mapping[bytes, bytes]:
    metadata = dict(table.schema.metadata or {})
    name = draw.choice([*metadata, b"suffice.schema", b"suffice.run", b"own"])
    run: Any = {
        "model": "m",
        "derived": [{"by": "x"}],
        "version": "1",
        "watch": {"a": [1, {"b": 2}]},
    }
    wild = [b"", b"0", b"-3", b"9" * 5000, b"\xff\xfe", b"[]", b"1e3", b"x" * 1_000_000]
    metadata[name] = draw.choice([*wild, damaged_json(run, draw), damaged_json(run, draw)])
    return metadata


# --- what is read ---------------------------------------------------------------------------------
def _few_rows() -> pa.Table:
    return pq.read_table(EXAMPLE).slice(0, 24)


def _stored(table: pa.Table, file: Path, draw: random.Random) -> None:
    """The table as it is written here, or with the checksums of nothing or of pages only."""
    if draw.random() < 0.2:
        write_table(table, file)
    else:
        pq.write_table(
            table,
            file,
            compression=draw.choice(["zstd", "none", "snappy"]),
            write_page_checksum=draw.random() < 0.2,
            row_group_size=draw.choice([5, 10_000]),
            use_dictionary=draw.random() < 0.6,
        )


def _damage_parquet(table: pa.Table, file: Path, draw: random.Random) -> None:
    if draw.random() < 0.4:
        with suppress(
            pa.ArrowException, ValueError, NotImplementedError
        ):  # no file can hold the type
            _stored(damaged_table(table, draw), file, draw)
            return
    _stored(table, file, draw)
    content = file.read_bytes()
    if draw.random() < 0.4:  # the footer, which says how large everything is
        length = int.from_bytes(content[-8:-4], "little") + 8
        content = content[:-length] + damaged(content[-length:], draw)
        if draw.random() < 0.5 and content[-4:] == b"PAR1":
            content = content[:-8] + struct.pack("<I", length - 8) + b"PAR1"
    else:
        content = damaged(content, draw)
    file.write_bytes(content)


def _read_all(path: Path, draw: random.Random) -> None:
    skip = draw.random() < 0.3
    match draw.randrange(4):
        case 0:
            for record in read_traces(path, skip_invalid=skip).records():
                assert record.rounds
        case 1:
            traces = read_traces(path, lazily_above=0, skip_invalid=skip)
            for name in traces.table.column_names:
                traces.table.column(name)
            assert in_memory(traces.closed_book) is not None
        case 2:
            inspect_traces(path, keep_unknown=True)
        case _:
            traces_info(path, skip_invalid=skip)


def traces(folder: Path) -> Case:
    table, file = _few_rows(), folder / "t.parquet"

    def case(draw: random.Random) -> None:
        _damage_parquet(table, file, draw)
        _read_all(file, draw)

    return case


def plans(folder: Path) -> Case:
    file = folder / "p.parquet"
    write_plans([make_plan(f"t{number}") for number in range(6)], file)
    table = pq.read_table(file)

    def case(draw: random.Random) -> None:
        _damage_parquet(table, file, draw)
        read_plans(file, skip_invalid=draw.random() < 0.3)

    return case


def _network() -> StopRAGPolicy:
    """A policy with a file of weights, which are drawn at random."""
    names = ("answer_stable", "overlap")
    rng = np.random.default_rng(0)
    tensors = {
        name: np.abs(rng.normal(size=shape)).astype(np.float32)
        for name, shape in weight_shapes(len(names), 4).items()
    }
    model = SignalNetwork(names=names, tensors=tensors)
    return StopRAGPolicy(model=model, threshold=0.1, rounds=5)


@cache
def _policies() -> list[StopPolicy]:
    record = read_traces(EXAMPLE)
    return [
        RulePolicy(
            rule="overlap > 0.3 and not abstained", guarantee={"reason": "x", "max_loss": 0.1}
        ),
        FixedPolicy(3),
        fit_method("tasr", record),
        fit_method("micp", record, split="tune"),
        fit_method("gate", informative(), "published", ""),
        ABRagPolicy(
            weights={"self_consistency": 0.8, "overlap": 0.1},
            levels=(0.2, 0.6, 1.0),
            preset="corrected",
            fitted_on={"source": "x"},
        ),
        _network(),
    ]


def policies(folder: Path) -> Case:
    """Weights are damaged too, and may have the digest that the policy names."""
    kept: list[tuple[dict[str, Any], bytes]] = []
    file = folder / "p.json"
    for policy in _policies():
        document = json.loads(save_policy(policy, file).read_bytes())
        kept.append((document, policy.weights_file() if isinstance(policy, Weighted) else b""))

    def case(draw: random.Random) -> None:
        document, weights = draw.choice(kept)
        as_text = draw.random() < 0.4 if weights else True
        if weights and not as_text:
            weights = _damaged_weights(weights, draw)
            if draw.random() < 0.7:
                digest = hashlib.sha256(weights).hexdigest()
                network = {**document["network"], "weights_sha256": digest}
                document = {**document, "network": network}
        weights_beside(file).write_bytes(weights)
        file.write_bytes(damaged_json(document, draw) if as_text else json.dumps(document).encode())
        policy = load_policy(file).policy
        save_policy(policy, folder / "again.json")

    return case


def _damaged_weights(content: bytes, draw: random.Random) -> bytes:
    """A safetensors file: the length of its header, the header, the numbers."""
    if draw.random() < 0.4:
        return damaged(content, draw)
    length = int.from_bytes(content[:8], "little")
    header = damaged_json(json.loads(content[8 : 8 + length]), draw)
    return len(header).to_bytes(8, "little") + header + content[8 + length :]


def indexes(folder: Path) -> Case:
    """Damaged by accident, and with arrays of their own making, as another program may have written them."""
    passages = tuple(Passage(id=f"p{n}", text=f"Oslo is town {n} of Norway") for n in range(12))
    encoder = HashingEncoder()
    places = {name: folder / name for name in ("bm25", "dense")}
    BM25Index.build(passages).save(places["bm25"])
    DenseIndex.build(passages, encoder).save(places["dense"])
    load: Mapping[str, Callable[[Path], Any]] = {
        "bm25": BM25Index.load,
        "dense": lambda place: DenseIndex.load(place, encoder),
    }

    def case(draw: random.Random) -> None:
        name = draw.choice(list(places))
        place = folder / "damaged"
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(places[name], place)
        file = place / "index.npz"
        if draw.random() < 0.5:
            file.write_bytes(damaged(file.read_bytes(), draw))
        else:
            with zipfile.ZipFile(file) as archive:
                parts = {part: archive.read(part) for part in archive.namelist()}
            part = draw.choice(list(parts))
            parts[part] = damaged(parts[part], draw)
            with zipfile.ZipFile(file, "w") as archive:
                for part, content in parts.items():
                    archive.writestr(part, content)
        load[name](place).retrieve("town of Norway", 3)

    return case


def caches(folder: Path) -> Case:
    request = GenerationRequest(
        prompt="Evidence: Ann, Bob", temperature=0.9, seed=5, n=2, top_logprobs=2
    )
    clean = folder / "clean.sqlite"
    with CachedModel(ScriptedModel(), clean) as model:
        model.generate(request)
    with closing(sqlite3.connect(clean)) as database:
        database.execute("PRAGMA journal_mode=DELETE")
    file = folder / "c.sqlite"

    def case(draw: random.Random) -> None:
        for beside in folder.glob("c.sqlite*"):
            beside.unlink()
        shutil.copy(clean, file)
        if draw.random() < 0.5:
            file.write_bytes(damaged(file.read_bytes(), draw))
        else:
            table, column = draw.choice([("calls", "cost"), ("samples", "completion")])
            with closing(sqlite3.connect(file)) as database, database:
                (text,) = database.execute(f"SELECT {column} FROM {table}").fetchone()
                changed: Any = damaged_json(json.loads(text), draw)
                if draw.random() < 0.8:
                    changed = changed.decode(errors="replace")
                database.execute(f"UPDATE {table} SET {column} = ?", (changed,))
        with CachedModel(ScriptedModel(), file) as model:
            model.generate(request)

    return case


def runs(folder: Path) -> Case:
    """What lies beside the rows of a recording: its run, what failed, labels, and rounds under way."""
    root = folder / "run"
    write_traces([make_record("q1", ["Oslo", "Rome"])], root)
    failures = {"question_id": "q2", "reason": "timed out", "attempts": 2}
    label = {"question_id": "q1", "gold_answers": ["Oslo"], "score": 0.5, "round": 1}
    table = pq.read_table(root / "part-00000.parquet")
    begun: list[dict[str, Any]] = [
        {"run": {"watch": {"policy": None}, "version": "1"}},
        {
            "begin": {"id": "w1", "text": "Who?"},
            "gold": {"answers": ["Ann"]},
            "propensity": None,
            "policy_hash": None,
        },
        {"id": "w1", "round": as_document(Round(answer="Ann", signals={"x": math.inf}))},
        {"id": "w1", "end": "policy"},
    ]

    def case(draw: random.Random) -> None:
        for beside in root.iterdir():
            if beside.suffix != ".parquet":
                beside.unlink()
        match draw.randrange(4):
            case 0:
                (root / "failures.jsonl").write_bytes(damaged_json(failures, draw) + b"\n")
                failures_of(root)
                with question_writer(root, run={}) as writer:
                    writer.fail(("q3",), "x")
            case 1:
                (root / "labels.jsonl").write_bytes(damaged_json(label, draw) + b"\n")
                read_traces(root)
            case 2:
                spoiled = draw.randrange(len(begun))
                lines = [json.dumps(line).encode() for line in begun]
                lines[spoiled] = damaged_json(begun[spoiled], draw)
                old = folder / "old"
                old.mkdir(exist_ok=True)
                (old / "watch-a-00000.jsonl").write_bytes(b"\n".join(lines) + b"\n")
                read_watch_1(old)
            case _:
                other = folder / "other"
                shutil.rmtree(other, ignore_errors=True)
                other.mkdir()
                changed = table.replace_schema_metadata(_other_metadata(table, draw))
                write_table(changed, other / "part-00000.parquet")
                with question_writer(other, run={}) as writer:
                    writer.add([writer.stored(make_record("q9", ["Oslo"]))])

    return case


def states(folder: Path) -> Case:
    """A loop's checkpoint, and what a monitor has seen."""
    controller = Controller(RulePolicy(rule="answer_stable and overlap > 0.9"), max_rounds=5)
    controller.start("Who?")
    for answer in ("Ann", "Bob"):
        controller.observe(Round(answer=answer, passages=(Passage(id=answer, text=answer),)))
    promise = promise_of(fit_method("micp", read_traces(EXAMPLE), split="tune"))
    watch = Watch(promise)
    documents = [controller.to_dict(), watch.state()]
    file = folder / "s.json"

    def case(draw: random.Random) -> None:
        which = draw.randrange(2)
        file.write_bytes(damaged_json(documents[which], draw))
        try:
            state = json.loads(file.read_bytes())
        except (ValueError, RecursionError):
            return  # its reader's to say
        if which:
            watch.resume(state)
        else:
            Controller.from_dict(state).observe(Round(answer="Bob"))

    return case


KINDS: Mapping[str, Callable[[Path], Case]] = {
    "traces": traces,
    "policies": policies,
    "plans": plans,
    "indexes": indexes,
    "caches": caches,
    "runs": runs,
    "states": states,
}


# --- what came of it ------------------------------------------------------------------------------
@dataclass(kw_only=True)
class Outcomes:
    """How many were read and refused, and by number what else came of one."""

    counts: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    slowest_s: float = 0.0
    most_bytes: int = 0

    def __iadd__(self, other: Outcomes) -> Outcomes:
        self.counts += other.counts
        self.wrong += other.wrong
        self.slowest_s = max(self.slowest_s, other.slowest_s)
        self.most_bytes = max(self.most_bytes, other.most_bytes)
        return self

    def add(self, number: int, what: str, detail: str = "") -> None:
        self.counts[what] += 1
        if what not in ("read", "refused"):
            self.wrong.append(f"case {number}: {what}: {detail}")


class _TooLong(BaseException):
    """Raised in whatever takes too long."""


def _stop(_signal: int, _frame: FrameType | None) -> None:
    raise _TooLong


@contextmanager
def _limited() -> Iterator[None]:
    """So many seconds of CPU time, and ten times as many of a machine that may have other work."""
    limits = {signal.ITIMER_PROF: _TOO_LONG_S, signal.ITIMER_REAL: 10 * _TOO_LONG_S}
    for number in (signal.SIGPROF, signal.SIGALRM):
        signal.signal(number, _stop)
    for timer, seconds in limits.items():
        signal.setitimer(timer, seconds)
    try:
        yield
    finally:
        for timer in limits:
            signal.setitimer(timer, 0)


def _resident(name: str) -> int:
    """Bytes of memory that this process holds (``VmRSS``), or held at most (``VmHWM``)."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    return 0


def _forget_peak() -> None:
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def run(kind: str, numbers: Iterable[int], seed: int = 0) -> Outcomes:
    """Damage and read files of a kind; case ``n`` of a seed is always the same."""
    outcomes = Outcomes()
    with tempfile.TemporaryDirectory(dir=_MEMORY) as name, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        case = KINDS[kind](Path(name))
        for number in numbers:
            _forget_peak()
            before, begin = _resident("VmRSS"), time.process_time()
            try:
                with _limited():
                    case(random.Random(f"{seed} {number}"))
                what, detail = "read", ""
            except SufficeError:
                what, detail = "refused", ""
            except (Exception, _TooLong) as error:  # noqa: BLE001
                what = type(error).__name__
                detail = f"{error!s:.200} at {_place(error)}"
            seconds, grown = time.process_time() - begin, _resident("VmHWM") - before
            outcomes.slowest_s = max(outcomes.slowest_s, seconds)
            outcomes.most_bytes = max(outcomes.most_bytes, grown)
            if seconds > MOST_SECONDS or grown > MOST_BYTES:
                outcomes.add(number, "too much", f"{seconds:.1f} s, {grown / 1e6:.0f} MB, {what}")
            else:
                outcomes.add(number, what, detail)
    return outcomes


def _place(error: BaseException) -> str:
    frames = [f for f in traceback.extract_tb(error.__traceback__) if "suffice" in f.filename]
    return " < ".join(f"{Path(f.filename).name}:{f.lineno}" for f in reversed(frames[-4:]))


def run_apart(times: Mapping[str, int], seed: int = 0) -> dict[str, Outcomes]:
    """So many files of each kind, in processes of their own: one that dies is seen.

    They are started once, as many as there are processors, and take up pieces of the work.
    """
    pieces = [
        (kind, range(begin, min(begin + _PIECE, many)))
        for kind, many in times.items()
        for begin in range(0, many, _PIECE)
    ]
    outcomes = {kind: Outcomes() for kind in times}
    workers = len(os.sched_getaffinity(0))
    with ProcessPoolExecutor(workers, get_context("spawn"), initializer=_alone) as pool:
        running: Sequence[tuple[str, range, Future[Outcomes]]] = [
            (kind, numbers, pool.submit(run, kind, numbers, seed)) for kind, numbers in pieces
        ]
        for kind, numbers, piece in running:
            try:
                outcomes[kind] += piece.result()
            except BrokenProcessPool:
                outcomes[kind].add(
                    numbers.start, "died", f"or one up to {numbers[-1]}, or beside it"
                )
    return outcomes


def _alone() -> None:
    """One thread, since there is a process for each processor."""
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)


def main(arguments: list[str]) -> int:
    kind, *numbers = arguments
    times = TIMES if kind == "all" else {kind: int(numbers.pop(0)) if numbers else TIMES[kind]}
    lines = []
    for name, outcomes in run_apart(times, *map(int, numbers)).items():
        counts = ", ".join(f"{count:,} {what}" for what, count in sorted(outcomes.counts.items()))
        lines += [
            f"{name}: {counts}; slowest {outcomes.slowest_s:.2f} s CPU, "
            f"most {outcomes.most_bytes / 1e6:.0f} MB at once",
            *(f"  {line}" for line in outcomes.wrong[:200]),
        ]
    sys.stdout.write("\n".join(lines) + "\n")
    return 1 if any(line.startswith("  ") for line in lines) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
