"""Studies stand behind one object each, which is imported when it is chosen."""

from __future__ import annotations

import subprocess
import sys

import pytest

from studies.study import STUDIES, find_study
from suffice.cli.main import build_parser, main
from suffice.cli.settings_options import field_options
from suffice.errors import UsageError


def test_the_command_knows_the_names_alone() -> None:
    script = (
        "import sys; from suffice.cli.main import build_parser; build_parser({'bench'}).format_help();"
        "print([name for name in sys.modules if name.startswith('studies.')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "['studies.study']"


@pytest.mark.parametrize("name", STUDIES)
def test_every_field_that_is_an_option_is_offered(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        build_parser({"bench"}).parse_args(["bench", name, "--help"])
    said = capsys.readouterr().out
    for group in find_study(name).options:
        for option in field_options(group.settings, nested=False):
            if group.only is None and option.field not in group.without:
                assert option.flag in said
    assert "--format" in said


def test_an_unknown_study_is_refused() -> None:
    with pytest.raises(UsageError, match="no study 'nothing'; known: retrieval, ab-rag"):
        find_study("nothing")


@pytest.mark.parametrize(
    ("form", "start"),
    [("csv", "retriever,recall@5"), ("markdown", "### Recall"), ("latex", r"\begin{table}")],
)
def test_every_form_is_printed(form: str, start: str, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["bench", "retrieval", "--dataset", "generated", "--limit", "4", "--encoder", "none"]
    assert main([*asked, "--bootstrap", "5", "--format", form]) == 0
    printed = capsys.readouterr()
    assert printed.out.startswith(start)
    assert ("dense is left out" in printed.err) == (form == "csv")
