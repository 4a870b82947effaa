"""Where third-party files are found."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

# the same examples in every continuous run; new ones where somebody is looking
settings.register_profile("ci", derandomize=True, database=None)
if os.environ.get("CI"):
    settings.load_profile("ci")


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
