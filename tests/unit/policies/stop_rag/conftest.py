"""What tests of the network share."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("transformers", reason="the extra 'learn' is missing")

from tests.tiny_encoder import save_tokenizer, vocabulary


@pytest.fixture(scope="session")
def plain_tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tokenizer that adds no special tokens."""
    folder = tmp_path_factory.mktemp("plain")
    save_tokenizer(folder, vocabulary(), pair=False)
    return folder
