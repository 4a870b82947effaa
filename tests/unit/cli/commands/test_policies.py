"""``suffice policies`` lists what the other commands take."""

from __future__ import annotations

import json

import pytest

from suffice.cli.commands import fit
from suffice.cli.main import main
from suffice.policies.registry import method_names


def test_every_policy_is_listed_with_where_it_can_be_named(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["policies", "--json"]) == 0
    listed = {row["policy"]: row for row in json.loads(capsys.readouterr().out)["policies"]}
    references = {"fixed-K", "oracle-em", "oracle-f1", "closed-book"}
    assert set(listed) == references | set(fit.NAMES) > set(method_names())
    assert listed["tasr"]["presets"] == "published, corrected"
    assert listed["tasr"]["fitted_on"] == "tune"
    named_in = {"ab-rag": "fit, replay, ask", "rule": "fit", "certified": "fit"}
    assert {name: listed[name]["used"] for name in named_in} == named_in
    assert main(["policies"]) == 0
    assert "NAME-corrected" in capsys.readouterr().out
