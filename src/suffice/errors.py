"""The errors of Suffice, by who must act.

::

    SufficeError
    ├── UsageError      an impossible request (exit code 2)
    │   └── MissingExtra    an optional dependency is not installed
    ├── DataError       a file or record is not what it must be (exit code 2)
    ├── BackendError    a model server or index failed (exit code 1)
    │   └── StorageError    a disk is full or refuses (exit code 1)
    └── InternalError   a defect of this library (exit code 1)

A message says what was found, where (file, row, column), what is allowed and what to type.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from io import BytesIO
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote

_SECRETS: set[str] = set()
_LEAST_SECRET = 6  # letters: shorter ones are words
_LEAST_REPLY_SECRET = 16
_STRUCK = "[struck]"
# each is a beginning and then one class of letters, so that the work is linear
_KEYS = re.compile(
    r"""
      (?P<scheme> \b (?:bearer|basic) [\s:=]{1,4} ) (?=[a-z.~+/_-]{0,64}[\d=]) [\w.~+/=-]{6,}
    | (?P<name> (?:api[-_ ]?key|apikey|authorization|access[-_]token|client[-_]secret|password)
        ["']{0,2} \s{0,4} [:=] \s{0,4} ["']{0,2} (?:(?:bearer|basic|token) \s{1,4})?+ ) [\w.~+/=-]{6,}
    | (?P<query> [?&] (?:key|token|sig|secret|code) = ) [\w.~+/%=-]{6,}
    | (?P<user> :// [^\s/@:]{0,64} : ) [^\s/@]{1,256} (?=@)
    | \b (?:sk|pk|rk|gsk|xai|ghp|gho|hf|nvapi|AIza|AKIA|xox[abp]|glpat|pplx) [-_A-Z0-9] [\w-]{11,}
    | \b eyJ [\w.-]{16,}
    | -----BEGIN\ [A-Z ]{0,30}PRIVATE\ KEY----- [\w\s+/=:,.-]*
    """,
    re.VERBOSE | re.IGNORECASE,
)

_CREDENTIALS = re.compile(r"(?<=:)//([^\s/?#@]{1,256}(?:@[^\s/?#@]{1,256}){0,4})@")


def keep_secret(text: str) -> None:
    """Strike this key from every foreign text that is printed."""
    if len(text) >= _LEAST_SECRET:
        _SECRETS.add(text)


def without_credentials(text: str) -> str:
    """Remove users and passwords from the URLs in a text, and keep them secret.

    >>> without_credentials("opensearch:http://ann:secret@localhost:9200/notes")
    'opensearch:http://localhost:9200/notes'
    """

    def keep(found: re.Match[str]) -> str:
        for part in found[1].split(":"):
            keep_secret(part)
            keep_secret(unquote(part))
        return "//"

    return _CREDENTIALS.sub(keep, text)


def struck(text: str) -> str:
    """Remove keys from a foreign text: those in use, and what looks like one.

    >>> struck("401: sent Authorization: Bearer abcdef123456")
    '401: sent Authorization: Bearer [struck]'
    """
    text = _KEYS.sub(lambda key: (key[key.lastgroup] if key.lastgroup else "") + _STRUCK, text)
    for secret in sorted(_SECRETS, key=len, reverse=True):
        text = text.replace(secret, _STRUCK)
    return text


def without_keys(content: bytes) -> bytes:
    """Remove the keys in use from a server's reply; short ones stay, as they may be words."""
    for secret in _SECRETS:
        if len(secret) >= _LEAST_REPLY_SECRET:
            content = content.replace(secret.encode(), _STRUCK.encode())
    return content


class SufficeError(Exception):
    """The base of all errors raised on purpose; a message holds no key and at most 20,000 letters."""

    exit_code: int = 1

    def __init__(self, message: object = "") -> None:
        text = str(message)
        cut = text if len(text) <= 20_000 else f"{text[:10_000]} [...] {text[-10_000:]}"
        super().__init__(struck(cut))


class UsageError(SufficeError):
    """An impossible request; the message says what to ask instead."""

    exit_code = 2


class MissingExtra(UsageError, ImportError):  # noqa: N818 - reads as what it is
    """A missing optional dependency; the message is the line that installs it."""


class DataError(SufficeError, ValueError):
    """Recorded or supplied data that break their contract.

    ``message`` says what is wrong and what is allowed. Rows count from 0 in file order, as in Parquet.
    """

    exit_code = 2

    def __init__(
        self,
        message: str,
        *,
        file: str | None = None,
        row: int | None = None,
        column: str | None = None,
    ) -> None:
        self.message: str = message
        self.file: str | None = file
        self.row: int | None = row
        self.column: str | None = column
        places = [] if file is None else [file]
        places += [
            f"{name} {at}" for name, at in (("row", row), ("column", column)) if at is not None
        ]
        super().__init__(f"{', '.join(places)}: {message}" if places else message)


MOST_BYTES = 2 << 30
"""Most bytes that are read of a file at once, packed or not."""
_NO_FILES = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def plain_file(path: Path) -> Path:
    """Return the path, but refuse a pipe, socket or device: reading one may never end."""
    try:
        found = _NO_FILES.get(stat.S_IFMT(path.stat().st_mode))
    except OSError:
        return path  # said by whoever opens it
    if found is not None:
        raise DataError(
            f"is {found}, not a file; write its contents into a file and name that", file=str(path)
        )
    return path


def read_plain(path: Path, most: int = MOST_BYTES) -> bytes:
    """Return the bytes of a plain file; more than ``most`` are a DataError."""
    with plain_file(path).open("rb") as stream:
        return at_most(stream, path, most)


def at_most(stream: Any, path: Path, most: int = MOST_BYTES) -> bytes:
    """Return what is left of a stream, unpacked; more than ``most`` bytes are a DataError."""
    held = BytesIO()  # piece by piece: a read of many bytes takes memory for all of them first
    while held.tell() <= most and (piece := stream.read(1 << 20)):
        held.write(piece)
    if held.tell() > most:
        raise DataError(f"holds more than {most:,} bytes; split it", file=str(path))
    return held.getvalue()


def most_unpacked(packed: int) -> int:
    """Return how many bytes some packed ones may unpack to: 100 times as many, or 64 MiB, at most 2 GiB."""
    return min(MOST_BYTES, max(64 << 20, 100 * packed))


class BackendError(SufficeError):
    """A failure of a model server, embedded model or index, after all retries.

    ``passing``: a later try may succeed.
    """

    passing: bool = False


class StorageError(BackendError):
    """A full or unwritable disk, on which every question would fail."""


class InternalError(SufficeError):
    """A defect of this library."""


class SufficeWarning(UserWarning):
    """A warning that something was left out or is probably not meant; work goes on."""


def first_line(error: BaseException) -> str:
    """Return the first line of a foreign error's message, at most 300 letters; else its type."""
    lines = (line.strip() for line in struck(str(error)).splitlines())
    return next((line[:300] for line in lines if line), type(error).__name__)


def counted(number: int, noun: str) -> str:
    """Format a number with its noun: "1 question", "3,000 questions"."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def near_misses(
    word: str, names: Iterable[str], *, most: int = 3, likeness: float = 0.75
) -> list[str]:
    """Return the ``names`` that ``word`` is similar to, best first; case, - and _ do not count.

    ``likeness`` in [0, 1] is the least similarity (difflib's ratio).

    >>> near_misses("Gold-Answer", ["gold_answers", "golden_hour", "split"])
    ['gold_answers']
    """
    by_folded: dict[str, list[str]] = {}
    for name in names:
        by_folded.setdefault(_folded(name), []).append(name)
    alike = get_close_matches(_folded(word[:200]), by_folded, n=most, cutoff=likeness)
    return [name for folded in alike for name in by_folded[folded]][:most]


def _folded(name: str) -> str:
    return name.lower().replace("-", "_")


_FEW_NAMES = 15


def did_you_mean(word: str, names: Iterable[str]) -> str:
    """Return ``"; did you mean 'x' or 'y'?"``, or an empty text if no name is similar.

    >>> did_you_mean("overlp", ["overlap", "answer_stable"])
    "; did you mean 'overlap'?"
    """
    near = near_misses(word, names)
    return f"; did you mean {' or '.join(repr(name) for name in near)}?" if near else ""


def unknown_name(what: str, word: object, names: Iterable[str]) -> str:
    """Return a refusal of an unknown name, with similar names, and all if they are few or none is similar.

    >>> unknown_name("form", "andd", ["or", "and"])
    "unknown form 'andd'; known: or, and; did you mean 'and'?"
    """
    known = list(names)
    near = did_you_mean(str(word), known)
    told = f"; known: {', '.join(known)}" if not near or len(known) <= _FEW_NAMES else ""
    return f"unknown {what} {word!r}{told}{near}"


Found = TypeVar("Found")


def attempt(compute: Callable[[], Found]) -> tuple[Found | None, str | None]:
    """Return what ``compute`` gives, or why the record or the settings do not allow it, in one line."""
    try:
        return compute(), None
    except (UsageError, DataError) as error:
        return None, " ".join(str(error).split())


def all_of(*computes: Callable[[], Any]) -> list[Any]:
    """Return what each function gives, or raise all their refusals as one UsageError."""
    attempts = [attempt(compute) for compute in computes]
    reasons = dict.fromkeys(reason for _, reason in attempts if reason is not None)
    if reasons:
        raise UsageError("; also, ".join(reasons))
    return [found for found, _ in attempts]
