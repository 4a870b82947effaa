"""The contract of a method: everything the house knows of one, behind one object."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, get_args

from suffice.protocols import StopPolicy

if TYPE_CHECKING:  # deciding live loads this module, and must not load pyarrow
    from suffice.measures.measures import Measures

Preset = Literal["published", "corrected"]
"""As the paper or its code has it, or with its defects mended."""
PRESETS: tuple[Preset, ...] = get_args(Preset)


class Method(Protocol):
    """A stopping method: how it is set, fitted and read. One object a folder, named in the registry."""

    name: str
    summary: str
    source: str
    presets: tuple[Preset, ...]

    def settings(self, preset: Preset) -> type[Any]:
        """The dataclass of its options; a command makes its options from the fields."""

    def fit(
        self, measures: Measures, preset: Preset, settings: Any, split: str, run: Any = None
    ) -> StopPolicy:
        """Fit on the questions of ``split``."""

    def read(self, document: Mapping[str, Any], folder: Path) -> StopPolicy:
        """The policy of a policy file's document; weights lie beside it in ``folder``."""
