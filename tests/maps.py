"""A fitted map at one value."""

from __future__ import annotations

from typing import Any

import numpy as np


def at(fitted: Any, *where: float) -> float:
    """At a value, or at a round and a value."""
    *number, value = where
    return float(fitted.predict(*number, np.array([value], np.float64))[0])
