"""The snippets of ``docs/integrations/``, run where the framework is installed."""

from __future__ import annotations

import linecache
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.register_assert_rewrite("tests.integrations.watching", "tests.integrations.traced")

from tests.integrations.agent_server import AgentServer, agent_server, in_order  # noqa: E402

REPOSITORY = Path(__file__).parents[2]
PAGES = sorted((REPOSITORY / "docs" / "integrations").glob("*.md"))
sys.path.append(str(REPOSITORY / "examples" / "agents"))  # as a snippet imports them


@pytest.fixture
def server() -> Iterator[AgentServer]:
    """A model that searches five times and then answers."""
    with agent_server(in_order("Unknown", "Bergen", "Oslo"), searches=5) as running:
        yield running


@pytest.fixture
def run_snippet() -> Callable[..., dict[str, Any]]:
    """Runs the snippet under a heading, with texts replaced, and gives the names it made.

    ``PAGE.md#HEADING`` names the page too.
    """

    def run(heading: str, *given: tuple[str, Any], **replaced: str) -> dict[str, Any]:
        name, _, heading = heading.rpartition("#")
        pages = [page for page in PAGES if page.name == name or not name]
        text = "\n".join(page.read_text(encoding="utf-8") for page in pages)
        section = text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
        (code,) = re.findall(r"^```py\n(.*?)^```", section, re.DOTALL | re.M)
        for old, new in replaced.items():
            code = code.replace(old, new)
        code = code.replace("explore=0.05", "explore=0.0")  # else one in twenty runs on
        names: dict[str, Any] = dict(given)
        place = f"docs/integrations#{heading}"  # with the lines of the snippet, for who asks for its source
        linecache.cache[place] = (len(code), None, code.splitlines(keepends=True), place)
        exec(compile(code, place, "exec", dont_inherit=True), names)
        return names

    return run
