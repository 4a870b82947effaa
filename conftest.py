"""How every test runs, and where third-party files are found."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from tests.database import NoServer, Server, serving
from tests.properties import FULL

from suffice.cli import output

# Tests run beside each other, so none of them gains by several threads of arithmetic: they only
# wait for one another. Set before numpy, torch and the like are imported; child processes inherit.
for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")

# a shell that starts tests in the background has them ignore Ctrl-C, which some of them send
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# what stands on stderr must not hang on how fast the machine is
output._SILENT_S = 1e6

# how long an example takes says more about what else the machine does; the same examples in every
# continuous run, new ones where somebody is looking
COMMON: dict[str, Any] = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
if os.environ.get("CI"):
    COMMON |= {"derandomize": True, "database": None}
settings.register_profile("everyday", max_examples=12, **COMMON)
settings.register_profile("thorough", max_examples=FULL, **COMMON)  # make test-slow
settings.load_profile("everyday")

# The files that take longest, the longest first: of several processes none is left with a long one at
# the end. All others follow in the usual order.
LONGEST = (
    "browser/test_report.py",
    "unit/llm/test_embedded.py",
    "unit/evaluation/choose/test_families.py",
    "browser/test_viewer.py",
    "docs/test_docs.py",
    "architecture/test_environments.py",
    "e2e/test_budgeted.py",
    "faults/test_choice_folder.py",
)
ORDER = {
    (Path(__file__).parent / "tests" / name).resolve(): place for place, name in enumerate(LONGEST)
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    missing = [str(path) for path in ORDER if not path.exists()]
    if missing:
        raise pytest.UsageError(f"LONGEST in conftest.py names no file: {', '.join(missing)}")
    items.sort(key=lambda item: ORDER.get(item.path, len(ORDER)))


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """``SUFFICE_DATA``; tests over it are skipped with a line when it is unset."""
    folder = os.environ.get("SUFFICE_DATA", "")
    if not folder:
        pytest.skip("SUFFICE_DATA is unset")
    return Path(folder)


@pytest.fixture(scope="session")
def qwen_traces(data_folder: Path) -> Path:
    return data_folder / "traces" / "hotpotqa_qwen1.5b.parquet"


@pytest.fixture(scope="session")
def make_encoder(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """``make_encoder("Bert", seed=0, **config)``: the folder of such an encoder."""
    pytest.importorskip("transformers", reason="the extra 'learn' is missing")
    from tests.tiny_encoder import save_encoder

    def make(kind: str = "Bert", *, seed: int = 0, **config: Any) -> Path:
        folder = tmp_path_factory.mktemp(kind.lower())
        save_encoder(folder, kind, seed=seed, **config)
        return folder

    return make


@pytest.fixture(scope="session")
def tiny(make_encoder: Callable[..., Path]) -> Path:
    """A BERT of three layers with random weights."""
    return make_encoder()


@pytest.fixture(scope="session")
def database_server() -> Iterator[Server]:
    """A PostgreSQL server; tests of it are skipped where none can be started."""
    pytest.importorskip("psycopg", reason="psycopg is not installed")
    try:
        with serving() as server:
            yield server
    except NoServer as error:
        pytest.skip(str(error))


@pytest.fixture
def database(database_server: Server) -> str:
    """The address of an empty database."""
    return database_server.database()


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A store of either kind."""
    if request.param == "postgresql":
        return str(request.getfixturevalue("database"))
    return str(tmp_path / "live.db")
