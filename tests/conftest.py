"""Where third-party files are found."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

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
