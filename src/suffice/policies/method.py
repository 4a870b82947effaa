"""The two presets of every method."""

from __future__ import annotations

from typing import Literal, get_args

Preset = Literal["published", "corrected"]
"""As the paper or its code has it, or with its defects mended."""
PRESETS: tuple[Preset, ...] = get_args(Preset)
