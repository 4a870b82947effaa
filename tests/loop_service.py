"""The routes of decisions and loops, over policies of a test's own."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from fastapi import FastAPI
from tests.serving import running

from suffice.contracts import StopPolicy
from suffice.policies.policy_file import save_policy
from suffice.policies.rules.policy import Rule
from suffice.policies.unfitted import FixedPolicy
from suffice.serve.app import make_app
from suffice.serve.service import Service

STABLE = Rule(rule="answer_stable")


class Clock:
    """Seconds that a test moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def loop_service(
    record: Path | None = None,
    policies: Mapping[str, StopPolicy | str | Path] | None = None,
    **further: Any,
) -> Service:
    """A service that answers nothing; its default policies are ``stable`` within 5 rounds, and ``two``."""
    if policies is None:
        file = save_policy(STABLE, Path(mkdtemp()) / "stable.json", max_rounds=5)
        policies = {"stable": file, "two": FixedPolicy(2)}
    return Service(None, policies, record=record, **further)


def loop_app(
    record: Path | None = None, clock: Callable[[], float] = time.monotonic, **further: Any
) -> FastAPI:
    """Its application."""
    return make_app(loop_service(record, **further), clock=clock)


@contextmanager
def listening(record: Path | None = None) -> Iterator[int]:
    """A port at which the routes of loops are served in this process."""
    with running(loop_app(record)) as port:
        yield port
