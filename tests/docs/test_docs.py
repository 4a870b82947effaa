"""Docs run: every block and command of every page, and the generated pages are current."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.commands import forget_commands
from tests.docs.pages import (
    PAGES,
    ROOT,
    blocks,
    follow,
    inline,
    lay_out,
    parse,
    typed,
    under_headings,
)
from tests.packages import forget

from suffice.cli.main import COMMANDS
from suffice.policies.registry import method_names
from suffice.policies.stop_rag.policy import METHOD
from suffice.signals.known_signals import SIGNALS

LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")


@pytest.fixture(scope="session")
def readers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as a reader has it, to be copied."""
    pytest.importorskip("transformers", reason="the extra 'learn' is missing")
    folder = tmp_path_factory.mktemp("docs") / "readers"
    lay_out(folder)
    return folder


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_runs_as_printed(
    page: Path, readers: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every block in turn, in a folder that holds what a reader has."""
    here = shutil.copytree(readers, tmp_path / "here")
    monkeypatch.chdir(here)
    monkeypatch.syspath_prepend(here)
    monkeypatch.setattr(type(METHOD), "variants", {})  # of stop-rag, which trains for seconds

    def made(packages: Path) -> None:
        monkeypatch.syspath_prepend(packages)
        forget_commands(monkeypatch)
        forget()

    follow(page, made)
    forget()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_in_sentences_have_their_options(page: Path) -> None:
    wrong = {line: parse(typed(line)) for line in inline(page)}
    assert not {line: why for line, why in wrong.items() if why}


def test_what_integrations_run_is_named_there() -> None:
    """A block that needs a framework stands under a heading that a test of the framework runs."""
    tests = "".join(file.read_text("utf-8") for file in (ROOT / "tests/integrations").glob("*.py"))
    for page in sorted((ROOT / "docs" / "integrations").glob("*.md")):
        for heading, block in under_headings(page):
            if "tests/integrations" in block.why_not:
                names = (f'"{heading}"', f'"{page.name}#{heading}"')
                assert any(name in tests for name in names), (page, heading)


def test_reasons_name_tests_that_exist() -> None:
    for page in PAGES:
        for block in blocks(page):
            for named in re.findall(r"(?:studies|tests)/[\w/.]+", block.why_not):
                assert (ROOT / named).exists(), (page, named)


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
