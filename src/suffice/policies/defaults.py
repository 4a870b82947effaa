"""Defaults of fitting, sweeping and scoring."""

from __future__ import annotations

from typing import Literal

FIT_SPLIT = "tune"
EVAL_SPLIT = "eval"  # the default of whatever scores
USUAL_METHODS = ("tasr", "tasr-corrected")  # compared where nothing is named
CalibratorKind = Literal["isotonic", "isotonic-global", "platt", "shrunken", "venn-abers"]
MARGIN = "answer_token_margin"
TEMPLATE = f"answer_stable and not abstained and calibrated({MARGIN}) > ?"
"""The rule with one open number that is swept and certified: TASR's (paper 0)."""
FLOORS = tuple(round(0.20 + 0.01 * step, 2) for step in range(16))
"""Numbers tried in it."""
PUBLISHED_FLOOR = 0.25
PUBLISHED_RULE = f"answer_stable_published and calibrated({MARGIN}) > {PUBLISHED_FLOOR}"
"""TASR's as its paper's code ran it."""
PUBLISHED_UNDEFINED = 0.5
"""What an undefined margin counts as there, calibrated."""
