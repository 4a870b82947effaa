from __future__ import annotations

import pytest

pytest.importorskip("transformers", reason="the extra 'rerank' is missing")

from transformers.utils import logging

from suffice.retrieval.networks import without_bars


@pytest.mark.parametrize("before", [True, False])
def test_bars_are_off_inside_and_as_before_after(*, before: bool) -> None:
    was = logging.is_progress_bar_enabled()
    try:
        (logging.enable_progress_bar if before else logging.disable_progress_bar)()
        with without_bars():
            assert not logging.is_progress_bar_enabled()
        assert logging.is_progress_bar_enabled() is before
        with pytest.raises(ValueError, match="inside"), without_bars():
            raise ValueError("inside")
        assert logging.is_progress_bar_enabled() is before
    finally:
        (logging.enable_progress_bar if was else logging.disable_progress_bar)()
