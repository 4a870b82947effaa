"""What a kind of policy is to its file: how it is read, and what lies beside.

All that loading a policy needs of a kind; what fitting needs besides is :mod:`suffice.policies.method`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from suffice.errors import DataError, UsageError
from suffice.numbers.fields import Fields
from suffice.protocols import StopPolicy
from suffice.signals.abstained import abstained_signal


class PolicyKind(ABC):
    """A kind of policy that a file can hold.

    Attributes
    ----------
    main_field
        The field of its file that is named where what a file says makes no policy.
    """

    main_field: str

    @abstractmethod
    def read(self, document: Mapping[str, Any], file: Path) -> StopPolicy:
        """The policy of the document that stands in ``file``; :func:`weights_beside` may lie there."""


@runtime_checkable
class Weighted(Protocol):
    """A policy whose file has a file of weights beside it."""

    def weights_file(self) -> bytes:
        """The weights as a safetensors file."""


def weights_beside(file: Path) -> Path:
    """Where the weights of a policy file lie."""
    return file.with_suffix(".safetensors")


def read_told(fields: Fields) -> dict[str, Any]:
    """What most policies say of their fit: ``preset``, ``fitted_on`` and ``notes``."""
    return {
        "preset": fields.of("preset", str),
        "fitted_on": fields.of("fitted_on", dict, {}),
        "notes": fields.strings("notes") or (),
    }


def read_abstention(fields: Fields) -> tuple[str, ...] | None:
    """Phrases that count as an abstention; ``None``: the usual ones."""
    phrases = fields.strings("abstention")
    try:
        abstained_signal(phrases or ())
    except UsageError as error:
        raise DataError(str(error), column="abstention") from error
    return phrases
