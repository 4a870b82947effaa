"""The user's own files as passages: plain text, Markdown and JSON lines."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from suffice.contracts import strict_json
from suffice.errors import DataError
from suffice.retrieval.ranking import check_ids
from suffice.trace.rounds.records import Passage

MAX_FILE_BYTES = 50_000_000
MAX_WORDS = 120
_TEXT, _MARKDOWN, _ROWS = (".txt",), (".md", ".markdown"), (".jsonl",)
_ACCEPTED = ".txt, .md and .jsonl files"
_HEADING = re.compile(r" {0,3}#{1,6}\s++(?P<title>.*)")
_FENCE = re.compile(r" {0,3}(```|~~~)")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+")


@dataclass(frozen=True, slots=True, kw_only=True)
class SkippedFile:
    """Hold a skipped file, by its path inside the corpus, and the reason."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CorpusReading:
    """Hold the passages of a folder or file, by path, then by place in the file."""

    passages: tuple[Passage, ...]
    skipped: tuple[SkippedFile, ...]


def read_corpus(path: str | Path) -> CorpusReading:
    """Read ``.txt``, ``.md`` and ``.jsonl`` files into passages.

    Text and Markdown are cut at blank lines and headings into passages of at most about
    :data:`MAX_WORDS` words; the title is the nearest heading above, or else the file's name, and the
    id is ``relative/path#n`` with n from 1. A row of JSON lines is one passage,
    ``{"id"?: str, "title"?: str, "text": str}``.
    """
    root = Path(path)
    if not root.exists():
        raise DataError(
            f"does not exist; give a folder of {_ACCEPTED}, or one of them", file=str(path)
        )
    passages: list[Passage] = []
    skipped: list[SkippedFile] = []
    for file, name in _files(root, skipped):
        text, reason = _read(file)
        if reason:
            skipped.append(SkippedFile(path=name, reason=reason))
        elif file.suffix.lower() in _ROWS:
            passages += [
                _row(line, file, row, f"{name}#{row + 1}")
                for row, line in enumerate(text.split("\n"))
                if line.strip()
            ]
        else:
            passages.extend(_sections(text, file, name))
    reading = CorpusReading(passages=tuple(passages), skipped=tuple(skipped))
    if not reading.passages:
        counts = Counter(file.reason for file in skipped)
        reasons = ", ".join(f"{count} {why}" for why, count in sorted(counts.items()))
        raise DataError(
            f"no text found; a corpus is a folder of {_ACCEPTED} (UTF-8), or one of them"
            + (f". Skipped: {reasons}" if reasons else ""),
            file=str(root),
        )
    try:
        check_ids(reading.passages)
    except DataError as error:
        raise DataError(error.message, file=str(root), column=error.column) from error
    return reading


# --- files ------------------------------------------------------------------------------------
def _name(file: Path, root: Path) -> str:
    relative = file.relative_to(root).as_posix() if file != root else file.name
    return os.fsencode(relative).decode("utf-8", "replace")


def _files(root: Path, skipped: list[SkippedFile]) -> Iterator[tuple[Path, str]]:
    """Return readable files in order of path; linked folders are skipped, so there is no loop."""
    if root.is_file():
        yield root, _name(root, root)
        return
    paths: list[Path] = []
    for folder, folders, files in os.walk(
        root, onerror=lambda error: _unreadable(error, root, skipped)
    ):
        place = Path(folder)
        for name in list(folders):
            if name.startswith(".") or (place / name).is_symlink():
                folders.remove(name)
                reason = "hidden" if name.startswith(".") else "linked folder"
                skipped.append(SkippedFile(path=_name(place / name, root), reason=reason))
        paths.extend(place / name for name in files)
    for file in sorted(paths, key=lambda file: file.relative_to(root).parts):
        name = _name(file, root)
        if file.name.startswith("."):
            skipped.append(SkippedFile(path=name, reason="hidden"))
        else:
            yield file, name


def _unreadable(error: OSError, root: Path, skipped: list[SkippedFile]) -> None:
    name = _name(Path(str(error.filename)), root)
    skipped.append(SkippedFile(path=name, reason=f"unreadable ({error.strerror})"))


def _read(file: Path) -> tuple[str, str]:
    if file.suffix.lower() not in (*_TEXT, *_MARKDOWN, *_ROWS):
        return "", "of another kind"
    try:
        if not file.is_file():
            return "", "not a regular file"
        if file.stat().st_size > MAX_FILE_BYTES:
            return "", f"larger than {MAX_FILE_BYTES / 1e6:g} MB"
        data = file.read_bytes()
        return ("", "binary") if b"\0" in data else (data.decode("utf-8-sig"), "")
    except OSError as error:
        return "", f"unreadable ({error.strerror})"
    except UnicodeDecodeError:
        return "", "not UTF-8"


# --- rows -------------------------------------------------------------------------------------
def _row(line: str, file: Path, row: int, default_id: str) -> Passage:
    wanted = 'a row is {"id": optional, "title": optional, "text": required}, all strings'
    try:
        value = strict_json(line)
    except (ValueError, RecursionError) as error:
        raise DataError(f"not JSON ({error}); {wanted}", file=str(file), row=row) from error
    if not isinstance(value, dict):
        raise DataError(f"found {type(value).__name__}; {wanted}", file=str(file), row=row)
    fields: dict[str, str] = {}
    for column, default in (("id", default_id), ("title", ""), ("text", None)):
        cell = value.get(column)
        if cell is None:  # many writers state an absent value as null
            cell = default
        if column == "id" and isinstance(cell, int) and not isinstance(cell, bool):
            cell = str(cell)
        if not isinstance(cell, str):
            what = "nothing" if cell is None else repr(cell)
            raise DataError(f"found {what:.60}; {wanted}", file=str(file), row=row, column=column)
        fields[column] = cell
    return Passage(id=fields["id"], title=fields["title"], text=fields["text"])


# --- text and Markdown ------------------------------------------------------------------------
def _sections(text: str, file: Path, name: str) -> Iterator[Passage]:
    markdown = file.suffix.lower() in _MARKDOWN
    number = 0
    for title, paragraphs in _titled(text, file.stem, markdown=markdown):
        for piece in _pieces(paragraphs):
            number += 1
            yield Passage(id=f"{name}#{number}", title=title, text=piece)


def _titled(text: str, title: str, *, markdown: bool) -> Iterator[tuple[str, list[str]]]:
    paragraphs: list[str] = []
    lines: list[str] = []
    fenced = False

    def close() -> None:
        if lines:
            paragraphs.append(" ".join(" ".join(lines).split()))
            lines.clear()

    for line in text.splitlines():
        if markdown and _FENCE.match(line):
            fenced = not fenced
        heading = _HEADING.match(line) if markdown and not fenced else None
        if heading:
            close()
            if paragraphs:
                yield title, paragraphs
            title, paragraphs = heading["title"].rstrip().rstrip("#").rstrip() or title, []
        elif line.strip():
            lines.append(line)
        else:
            close()
    close()
    if paragraphs:
        yield title, paragraphs


def _pieces(paragraphs: list[str]) -> Iterator[str]:
    held: list[str] = []
    size = 0
    for paragraph in paragraphs:
        for part in _cut(paragraph):
            words = len(part.split())
            if held and size + words > MAX_WORDS:
                yield " ".join(held)
                held, size = [], 0
            held.append(part)
            size += words
    if held:
        yield " ".join(held)


def _cut(paragraph: str) -> Iterator[str]:
    if len(paragraph.split()) <= MAX_WORDS:
        yield paragraph
        return
    for sentence in _SENTENCE_END.split(paragraph):
        words = sentence.split()
        for start in range(0, len(words), MAX_WORDS):
            yield " ".join(words[start : start + MAX_WORDS])
