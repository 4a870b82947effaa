"""Shows references such as ``:class:`suffice.Round``` as code on the site's page of Python."""

from __future__ import annotations

import re
from typing import Any

import griffe  # type: ignore[import-not-found]  # of requirements-site.txt

ROLE = re.compile(r":[a-z]+:`~?([^`]+)`")


class Roles(griffe.Extension):  # type: ignore[misc]
    """Rewrites the docstrings that the site reads."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Every documented object, once it is loaded."""
        if obj.docstring is not None:
            obj.docstring.value = ROLE.sub(r"`\1`", obj.docstring.value)
