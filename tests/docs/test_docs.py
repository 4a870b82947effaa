"""Docs run: every Python block of the README and the guide, and the generated pages are current."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from suffice.cli.main import COMMANDS, main
from suffice.policies.registry import method_names
from suffice.signals.known_signals import SIGNALS

ROOT = Path(__file__).parents[2]
QUESTIONS = sorted((ROOT / "docs" / "questions").glob("[a-z]*.md"))
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCED = re.compile(r"^```(python|sh)\n(.*?)^```", re.MULTILINE | re.DOTALL)
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")


@pytest.mark.parametrize(
    "page", [page for page in PAGES if page not in QUESTIONS], ids=lambda page: page.name
)
def test_python_blocks_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {}
    for block in BLOCK.findall(page.read_text(encoding="utf-8")):
        # where a browser was opened this thread has a running event loop
        with ThreadPoolExecutor(1) as pool:
            pool.submit(exec, compile(block, str(page), "exec"), namespace).result()


@pytest.mark.parametrize("page", QUESTIONS, ids=lambda page: page.stem)
def test_answers_to_questions_run_as_printed(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every block in turn, in a directory that holds the shipped record."""
    monkeypatch.chdir(tmp_path)
    Path("traces").mkdir()
    shutil.copy(ROOT / "examples" / "traces" / "generated.parquet", "traces")
    namespace: dict[str, object] = {}
    for language, block in FENCED.findall(page.read_text(encoding="utf-8")):
        if language == "python":
            exec(compile(block, str(page), "exec"), namespace)
            continue
        for line in block.replace("\\\n", " ").splitlines():
            name, *arguments = shlex.split(line, comments=True)
            assert name == "suffice"
            assert main(arguments) == 0, (line, capsys.readouterr().err)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in LINK.findall(page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target


def test_generated_pages_are_current() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "make_docs.py"), "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_everything_is_documented() -> None:
    """Every command, signal and method stands in the docs."""
    text = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    for command in COMMANDS:
        assert f"suffice {command}" in text
    for name in (*SIGNALS, *method_names(), "oracle-em", "oracle-f1", "fixed-K"):
        assert f"`{name}`" in text, name
