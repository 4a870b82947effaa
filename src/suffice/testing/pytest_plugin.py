"""A pytest plugin: the fixture ``suffice_promise``, the marker ``suffice`` and ``--suffice-update``."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:  # pytest starts without what a check runs on
    from suffice.evaluation.promise_check import Checked


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--suffice-update``."""
    text = "store the verdicts of promises that their records prove"
    parser.getgroup("suffice").addoption("--suffice-update", action="store_true", help=text)


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker."""
    config.addinivalue_line("markers", "suffice: tests that a record still proves a promise")


@pytest.fixture
def suffice_promise(request: pytest.FixtureRequest) -> Callable[..., Checked]:
    """Return a function that fails the test unless the record still proves the policy's promise.

    ``suffice_promise(record, policy, max_loss=0.02, confidence=0.95)`` also takes ``loss``, ``metric`` and
    ``cost``, as ``suffice check`` does. Paths start at pytest's root folder. The message of a failure names
    what changed, the cost, the bound and the questions that lost most.
    """

    def promise(record: str, policy: str, **terms: Any) -> Checked:
        __tracebackhide__ = True
        from suffice.evaluation.promise_check import Checks, beside, check_promise, promise_settings

        root = Path(os.path.relpath(request.config.rootpath))
        found = check_promise(
            beside(root, str(record)),
            str(root / policy),
            promise_settings(**terms),
            update=request.config.getoption("--suffice-update"),
            renew="pytest --suffice-update",
        )
        if found.reasons:
            pytest.fail(Checks(promises=(found,)).text(), pytrace=False)
        return found

    return promise
