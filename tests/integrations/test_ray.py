"""Shards on a real local Ray of two workers."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

ray = pytest.importorskip("ray", reason="runs in its own environment: make test-integrations")

import suffice  # noqa: E402
from suffice.cli.main import main  # noqa: E402
from suffice.errors import BackendError, DataError  # noqa: E402
from suffice.integrations import ray as shim  # noqa: E402
from suffice.integrations.ray import RayExecutor  # noqa: E402
from suffice.measures.measures import Measures  # noqa: E402
from suffice.measures.shards import SHARD_ROWS, shards_of  # noqa: E402

EXAMPLE = Path(__file__).parents[2] / "examples" / "traces" / "generated.parquet"


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    started = ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    yield started.address_info["address"]
    ray.shutdown()


@pytest.fixture
def executor(cluster: str) -> RayExecutor:
    return RayExecutor(cluster)


def told_of(place: str) -> None:
    raise DataError("a negative amount", file=place, row=3, column="llm_calls")


def dies(place: str, times: int) -> int:
    """Kills its own worker so many times; how often it was called before."""
    calls = Path(place)
    before = len(calls.read_text()) if calls.exists() else 0
    calls.write_text("x" * (before + 1))
    if before < times:
        os.kill(os.getpid(), 9)
    return before


def test_calls_are_spread_and_come_back_in_order(executor: RayExecutor) -> None:
    assert executor.count == 2
    assert list(executor.map(pow, range(20), [2] * 20)) == [n * n for n in range(20)]


def test_an_error_of_a_shard_comes_as_itself(executor: RayExecutor) -> None:
    with pytest.raises(DataError) as raised:
        executor.submit(told_of, "part-0007.parquet").result()
    assert type(raised.value) is DataError
    assert (raised.value.file, raised.value.row) == ("part-0007.parquet", 3)


def test_a_worker_that_dies_is_replaced_and_its_shard_redone(
    executor: RayExecutor, tmp_path: Path
) -> None:
    calls = tmp_path / "calls"
    others = [executor.submit(pow, n, 2) for n in range(6)]
    dying = executor.submit(dies, str(calls), 2)
    assert dying.result() == 2
    assert [other.result() for other in others] == [n * n for n in range(6)]


def test_a_shard_that_kills_every_worker_ends_in_an_error(
    executor: RayExecutor, tmp_path: Path
) -> None:
    with pytest.raises(BackendError, match=r"died 4 times over one shard.*smaller files"):
        executor.submit(dies, str(tmp_path / "calls"), 99).result()


def copied(example: pa.Table, number: str) -> pa.Table:
    for name in ("question_id", "question"):
        cells = pc.binary_join_element_wise(example.column(name), number, "-")
        example = example.set_column(example.column_names.index(name), name, cells)
    return example


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copies of a record in two files, enough rounds for several tasks of shards."""
    example = pq.read_table(EXAMPLE)
    folder = tmp_path_factory.mktemp("traces")
    copies = 20 * SHARD_ROWS // example.num_rows
    for part, numbers in enumerate(np.array_split(np.arange(copies), 2)):
        tables = [copied(example, str(number)) for number in numbers]
        pq.write_table(pa.concat_tables(tables), folder / f"part-{part}.parquet")
    return folder


class Killing(RayExecutor):
    """The second call kills its worker before it ends, once."""

    def __init__(self, address: str, aside: Path) -> None:
        self.calls = 0
        self.aside = aside
        super().__init__(address)

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **named: Any) -> Future[Any]:
        self.calls += 1
        if self.calls != 3:  # the first one asks for the version
            return super().submit(function, *arguments, **named)
        return super().submit(cut_short, str(self.aside), function, *arguments, **named)


def cut_short(aside: str, function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    done = function(*arguments, **named)
    dies(aside, 1)
    return done


def test_a_record_is_measured_alike_though_a_worker_dies(
    cluster: str, record: Path, tmp_path: Path
) -> None:
    traces = suffice.read(record)
    assert len(shards_of(traces)) > 16
    executor = Killing(cluster, tmp_path / "deaths")
    policy = suffice.Rule(rule="answer_stable and overlap > 0.1")
    there, here = Measures(traces, executor=executor), Measures(traces)
    assert there.stop_rounds(policy).tolist() == here.stop_rounds(policy).tolist()
    assert np.array_equal(there.score("f1"), here.score("f1"), equal_nan=True)
    assert executor.calls > 3
    assert (tmp_path / "deaths").read_text() == "xx"


@pytest.mark.parametrize(
    "words",
    [
        ("replay", "--stop-when", "answer_stable and overlap > 0.1", "--json"),
        ("search", "--signals", "answer_stable,overlap,self_consistency", "--json"),
    ],
)
def test_commands_print_what_they_print_without(
    cluster: str, record: Path, words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    printed = []
    for who in (("--workers", "1"), ("--ray", cluster)):
        assert main([words[0], str(record), *words[1:], *who]) == 0
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1]


def test_recording_is_spread_over_the_workers(
    cluster: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [
        "record",
        "--dataset",
        "generated",
        "--limit",
        "24",
        "--llm",
        "scripted",
        "--rounds",
        "3",
    ]
    assert main([*words, "--out", str(tmp_path / "there"), "--ray", cluster]) == 0
    assert "24 questions (24 recorded now, 0 before)" in capsys.readouterr().out
    assert main([*words, "--out", str(tmp_path / "here")]) == 0
    there, here = (
        suffice.read(tmp_path / name).table.select(["question_id", "round", "answer", "split"])
        for name in ("there", "here")
    )
    assert there.equals(here)
    shards = {file.stem for file in (tmp_path / "there").glob("*.db")}
    assert shards == {"record-1of2", "record-2of2"}


def test_workers_of_another_version_are_refused(
    cluster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shim, "VERSION", "99.0")
    with pytest.raises(BackendError, match="99"):
        RayExecutor(cluster)


def test_nothing_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    begun = time.perf_counter()
    with pytest.raises(BackendError, match=r"127\.0\.0\.1:9"):
        RayExecutor("127.0.0.1:9")
    assert time.perf_counter() - begun < 15
