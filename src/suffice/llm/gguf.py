"""The few facts about a GGUF file that are needed before it is loaded.

The layout is that of the GGUF specification, versions 2 and 3, little-endian.
"""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass
from pathlib import Path

from suffice.errors import DataError, UsageError

_STRING, _ARRAY = 8, 9
_FORMATS = {
    0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d",
}  # fmt: skip
_RANK = 4  # the pooling type of models that score
_WANTED = frozenset({"general.name", "general.license", "tokenizer.chat_template"})


@dataclass(frozen=True, slots=True, kw_only=True)
class GgufFacts:
    """What the header says; an empty string or ``None`` where it says nothing.

    ``scores_pairs``: the model's output is one score of a text pair, as a reranker's is.
    """

    name: str
    licence: str
    has_chat_template: bool
    context_length: int | None
    scores_pairs: bool = False


class _Reader:
    """A cursor over the header. Running past the end raises ``struct.error``."""

    def __init__(self, data: mmap.mmap) -> None:
        self._data = data
        self._at = 0

    def number(self, code: str) -> float:
        value: float
        (value,) = struct.unpack_from(f"<{code}", self._data, self._at)
        self._at += struct.calcsize(f"<{code}")
        return value

    def skip(self, size: int) -> None:
        if self._at + size > len(self._data):
            raise struct.error("the file ends early")
        self._at += size

    def string(self) -> str:
        size = int(self.number("Q"))
        start = self._at
        self.skip(size)
        return self._data[start : self._at].decode("utf-8", errors="replace")

    def value(self, kind: int) -> float | str | None:
        """The value at the cursor; ``None`` for an array, which is passed over."""
        if kind == _STRING:
            return self.string()
        if kind != _ARRAY:
            return self.number(_FORMATS[kind])
        element, length = int(self.number("I")), int(self.number("Q"))
        if element == _STRING:
            for _ in range(length):
                self.skip(int(self.number("Q")))
        elif element == _ARRAY:
            for _ in range(length):
                self.value(_ARRAY)
        else:
            self.skip(length * struct.calcsize(f"<{_FORMATS[element]}"))
        return None


def read_facts(path: Path) -> GgufFacts:
    """Read the header of a GGUF file."""
    if not path.is_file():
        raise UsageError(f"no model file {str(path)!r}; give the path of a GGUF file")
    entries: dict[str, float | str] = {}
    try:
        with (
            path.open("rb") as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data,
        ):
            if data[:4] != b"GGUF":
                raise DataError(
                    f"not a GGUF file: it starts with {data[:4]!r}, not with b'GGUF'",
                    file=str(path),
                )
            reader = _Reader(data)
            reader.skip(16)
            for _ in range(int(reader.number("Q"))):
                key = reader.string()
                value = reader.value(int(reader.number("I")))
                if value is not None and (
                    key in _WANTED or key.endswith((".context_length", ".pooling_type"))
                ):
                    entries[key] = value
    except (struct.error, KeyError, ValueError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(
            f"the GGUF header cannot be read ({error}); the file is cut short or damaged, "
            "download or build it again",
            file=str(path),
        ) from error
    lengths = [int(v) for k, v in entries.items() if k.endswith(".context_length")]
    return GgufFacts(
        name=str(entries.get("general.name", "")),
        licence=str(entries.get("general.license", "")),
        has_chat_template=bool(entries.get("tokenizer.chat_template")),
        context_length=lengths[0] if lengths else None,
        scores_pairs=_RANK in [v for k, v in entries.items() if k.endswith(".pooling_type")],
    )
