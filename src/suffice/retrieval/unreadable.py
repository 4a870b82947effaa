"""What the libraries that read arrays and indexes raise for damaged files."""

from __future__ import annotations

import struct
import tokenize
import zipfile
import zlib

__all__ = ["UNREADABLE"]

UNREADABLE: tuple[type[Exception], ...] = (
    # any file, and JSON
    *(OSError, EOFError, ValueError),
    # too deep, of an unknown kind, or encrypted, as flipped bits may say
    *(RecursionError, NotImplementedError, RuntimeError),
    # NumPy reads an array's header as Python source, and makes an array of the size it states
    *(SyntaxError, tokenize.TokenError, MemoryError, OverflowError, struct.error),
    *(zipfile.BadZipFile, zlib.error),
    # well-formed, but not what the reader expects
    *(TypeError, KeyError, IndexError, AttributeError, ArithmeticError),
)
"""Not among them: ``ImportError``, which :class:`suffice.errors.MissingExtra` is."""
