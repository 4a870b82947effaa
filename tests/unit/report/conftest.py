"""Reports of small hand-made trace sets, as fixtures."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from suffice.replay.diagnose.report_data import ReportData
from suffice.trace.rounds.records import QuestionRecord
from tests import reports


@pytest.fixture
def records() -> list[QuestionRecord]:
    return reports.oslo_records()


@pytest.fixture
def build_report() -> Callable[..., ReportData]:
    return reports.build_report


@pytest.fixture(scope="session")
def gathered() -> reports.Gathered:
    return reports.gathered()
