"""Stored files that were damaged are read or refused, by our own errors; flipped bits are noticed."""

from __future__ import annotations

import copy
import hashlib
import json
import math
import random
import shutil
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.gates import informative

from suffice.contracts import GenerationRequest, StopPolicy
from suffice.errors import SufficeError
from suffice.llm.connect import CachedModel
from suffice.policies.ab_rag.policy import ABRagPolicy
from suffice.policies.method import Weighted, weights_beside
from suffice.policies.policy_file import load_policy, save_policy
from suffice.policies.registry import fit_method
from suffice.policies.rules.policy import Rule
from suffice.policies.stop_rag.policy import StopRAGPolicy
from suffice.policies.stop_rag.signal_network import SignalNetwork, weight_shapes
from suffice.policies.unfitted import FixedPolicy
from suffice.testing.models import ScriptedModel
from suffice.trace.lazy import in_memory
from suffice.trace.parquet import write_table
from suffice.trace.rounds.reader import read_traces

EXAMPLE = Path(__file__).parents[2] / "examples/traces/generated.parquet"
Case = Callable[[random.Random], None]


def damaged(content: bytes, draw: random.Random) -> bytes:
    """The bytes, cut, flipped, overwritten, repeated or without some."""
    data = bytearray(content)
    at, size = draw.randrange(len(data)), draw.choice([1, 4, 16, 200])
    match draw.randrange(5):
        case 0:
            del data[at:]
        case 1:
            data[at] ^= 1 << draw.randrange(8)
        case 2:
            data[at : at + 8] = draw.choice([bytes(8), b"\xff" * 8, draw.randbytes(8)])
        case 3:
            data[at:at] = data[at : at + size]
        case _:
            del data[at : at + size]
    return bytes(data)


WILD: tuple[Any, ...] = (
    *(None, True, -1, 0, 2**63, 10**400, 0.5, math.inf, math.nan, "", "x" * 100_000, "\x00"),
    *("../../etc/passwd", "nan", [], {}, [[]], [None], {"": 1}, [1] * 10_000, "\u202e\x1b[2J"),
)
DEEP = ("[" * 100_000 + "]" * 100_000, "1e999", "9" * 6000, '"\\ud800"')


def damaged_json(document: Any, draw: random.Random) -> bytes:
    """The document with a value replaced, dropped or renamed, or its text damaged."""
    if draw.random() < 0.3:
        return damaged(json.dumps(document).encode(), draw)
    changed = copy.deepcopy(document)
    holder, key = draw.choice(list(_places(changed)))
    match draw.randrange(4):
        case 0:
            del holder[key]
        case 1 if isinstance(holder, dict):
            holder[f"{key}_"] = holder.pop(key)
        case 2:
            holder[key] = "DEEP"
        case _:
            holder[key] = draw.choice(WILD)
    return json.dumps(changed).replace('"DEEP"', draw.choice(DEEP)).encode()


def _places(document: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(document, dict | list):
        for key in list(document) if isinstance(document, dict) else range(len(document)):
            yield document, key
            yield from _places(document[key])


TYPES = (
    *(pa.string(), pa.binary(), pa.bool_(), pa.int8(), pa.float64(), pa.timestamp("ns"), pa.null()),
    *(pa.list_(pa.string()), pa.struct([("id", pa.string())]), pa.map_(pa.string(), pa.string())),
    *(pa.dictionary(pa.int8(), pa.string()), pa.list_(pa.list_(pa.string())), pa.string_view()),
)


def damaged_table(table: pa.Table, draw: random.Random) -> pa.Table:
    """The table without a column, with one twice, of another type, with nulls, or other metadata."""
    at = draw.randrange(table.num_columns)
    name, cells = table.column_names[at], table.column(at)
    match draw.randrange(6):
        case 0:
            return table.remove_column(at)
        case 1:
            return table.append_column(name, cells)
        case 2:
            return table.take([draw.randrange(len(table)) for _ in range(len(table))])
        case 3:
            holes = pa.array([None if draw.random() < 0.3 else row for row in range(len(table))])
            return table.set_column(at, name, cells.take(holes))
        case 4:
            run = {"model": "m", "derived": [{"by": "x"}], "watch": {"a": [1, {"b": 2}]}}
            metadata = dict(table.schema.metadata or {})
            metadata[draw.choice([*metadata, b"suffice.run"])] = draw.choice(
                [b"", b"-3", b"9" * 5000, b"\xff\xfe", b"[]", damaged_json(run, draw)]
            )
            return table.replace_schema_metadata(metadata)
        case _:
            kind = draw.choice(TYPES)
            try:
                return table.set_column(at, name, cells.cast(kind, safe=False))
            except (pa.ArrowException, NotImplementedError):
                return table.set_column(at, name, pa.nulls(len(table), kind))


def _damage_parquet(table: pa.Table, file: Path, draw: random.Random) -> None:
    if draw.random() < 0.5:
        with suppress(pa.ArrowException, NotImplementedError):  # no file can hold the type
            write_table(damaged_table(table, draw), file)
            return
    pq.write_table(table, file, write_page_checksum=draw.random() < 0.2)
    content = file.read_bytes()
    footer = -int.from_bytes(content[-8:-4], "little") - 8 if draw.random() < 0.4 else 0
    file.write_bytes(content[:footer] + damaged(content[footer:], draw))


def traces(folder: Path) -> Case:
    table, file = pq.read_table(EXAMPLE).slice(0, 24), folder / "t.parquet"

    def case(draw: random.Random) -> None:
        _damage_parquet(table, file, draw)
        held = read_traces(file, skip_invalid=draw.random() < 0.3)
        assert all(record.rounds for record in held.records())
        assert in_memory(held.closed_book) is not None

    return case


def _policies() -> list[StopPolicy]:
    record = read_traces(EXAMPLE)
    names, rng = ("answer_stable", "overlap"), np.random.default_rng(0)
    shapes = weight_shapes(len(names), 4).items()
    tensors = {name: np.abs(rng.normal(size=shape)).astype(np.float32) for name, shape in shapes}
    return [
        Rule(rule="overlap > 0.3 and not abstained", guarantee={"max_loss": 0.1}),
        FixedPolicy(3),
        fit_method("tasr", record),
        fit_method("micp", record, split="tune"),
        fit_method("gate", informative(), "published", ""),
        ABRagPolicy(weights={"overlap": 0.1}, levels=(0.2, 0.6, 1.0), preset="corrected"),
        StopRAGPolicy(model=SignalNetwork(names=names, tensors=tensors), threshold=0.1, rounds=5),
    ]


def policies(folder: Path) -> Case:
    """Weights are damaged too, and have the digest that the policy names."""
    kept: list[tuple[dict[str, Any], bytes]] = []
    file = folder / "p.json"
    for policy in _policies():
        document = json.loads(save_policy(policy, file).read_bytes())
        kept.append((document, policy.weights_file() if isinstance(policy, Weighted) else b""))

    def case(draw: random.Random) -> None:
        document, weights = draw.choice([*kept, kept[-1]])
        text = damaged_json(document, draw)
        if weights and draw.random() < 0.6:
            length = int.from_bytes(weights[:8], "little")
            header = damaged_json(json.loads(weights[8 : 8 + length]), draw)
            weights = (
                len(header).to_bytes(8, "little") + header + damaged(weights[8 + length :], draw)
            )
            network = document["network"] | {"weights_sha256": hashlib.sha256(weights).hexdigest()}
            text = json.dumps(document | {"network": network}).encode()
        weights_beside(file).write_bytes(weights)
        file.write_bytes(text)
        save_policy(load_policy(file).policy, folder / "again.json")

    return case


def caches(folder: Path) -> Case:
    request = GenerationRequest(prompt="Evidence: Ann", temperature=0.9, seed=5, n=2)
    clean, file = folder / "clean.sqlite", folder / "c.sqlite"
    with CachedModel(ScriptedModel(), clean) as model:
        model.generate(request)
    with closing(sqlite3.connect(clean)) as database:
        database.execute("PRAGMA journal_mode=DELETE")

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
                changed = damaged_json(json.loads(text), draw).decode(errors="replace")
                database.execute(f"UPDATE {table} SET {column} = ?", (changed,))
        with CachedModel(ScriptedModel(), file) as model:
            model.generate(request)

    return case


@pytest.mark.filterwarnings("ignore::suffice.errors.SufficeWarning")
@pytest.mark.parametrize("times", [10, pytest.param(500, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", [traces, policies, caches], ids=lambda kind: kind.__name__)
def test_damaged_files_are_read_or_refused(
    kind: Callable[[Path], Case], times: int, tmp_path: Path
) -> None:
    case = kind(tmp_path)
    for number in range(times):
        begun = time.process_time()
        with suppress(SufficeError):
            case(random.Random(number))
        assert time.process_time() - begun < 2.0, number


@pytest.mark.filterwarnings("ignore::suffice.errors.SufficeWarning")
@pytest.mark.parametrize("times", [12, pytest.param(600, marks=pytest.mark.slow)])
def test_flipped_bits_are_not_read_as_other_values(tmp_path: Path, times: int) -> None:
    """Of a file that was written here, before its footer, which no checksum covers."""
    file, draw = tmp_path / "t.parquet", random.Random(0)
    rows = pq.read_table(EXAMPLE)
    write_table(rows if times > 100 else rows.slice(0, 12), file)  # the sample is of a small file
    content = file.read_bytes()
    pages = len(content) - 8 - int.from_bytes(content[-8:-4], "little")

    def held() -> Any:
        traces = read_traces(file)
        return in_memory(traces.table), in_memory(traces.closed_book), traces.origin.run

    clean, counts = held(), Counter[str]()
    for _ in range(times):
        flipped = bytearray(content)
        flipped[draw.randrange(pages)] ^= 1 << draw.randrange(8)
        file.write_bytes(flipped)
        try:
            counts["harmless" if held() == clean else "other values"] += 1
        except SufficeError:
            counts["refused"] += 1
    assert counts["other values"] <= 0.02 * times, counts  # headers of pages have none either
    assert counts["refused"] > 0.7 * times, counts
