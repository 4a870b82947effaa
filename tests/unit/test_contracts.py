"""What the contracts' own small classes refuse."""

from __future__ import annotations

import pytest

from suffice.contracts import Action, Decision
from suffice.errors import UsageError


@pytest.mark.parametrize("action", list(Action))
def test_a_decision_is_neither_true_nor_false(action: Action) -> None:
    decision = Decision(action=action, reason="", values={})
    with pytest.raises(UsageError, match=r"if controller\.observe\(\.\.\.\)\.stop:"):
        bool(decision)
