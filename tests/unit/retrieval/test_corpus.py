from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path

import pytest

from suffice.errors import DataError
from suffice.retrieval.corpus import MAX_WORDS, read_corpus

PARAGRAPH = "Salt was weighed here. " * 20  # 80 words


def write(root: Path, name: str, content: str | bytes) -> Path:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_a_folder_is_read_in_order_of_path(tmp_path: Path) -> None:
    write(tmp_path, "b.txt", "Second file.")
    write(tmp_path, "a/deep/x.MD", "# Harbour\n\nBoats lie here.")
    write(tmp_path, "c.jsonl", '{"text": "one"}\n\n{"id": "own", "title": "T", "text": "two"}\n')
    reading = read_corpus(tmp_path)
    assert [(p.id, p.title, p.text) for p in reading.passages] == [
        ("a/deep/x.MD#1", "Harbour", "Boats lie here."),
        ("b.txt#1", "b", "Second file."),
        ("c.jsonl#1", "", "one"),
        ("own", "T", "two"),
    ]
    assert reading.skipped == ()


def test_short_paragraphs_are_joined_and_long_ones_cut(tmp_path: Path) -> None:
    long = "word " * 300 + "end."
    write(tmp_path, "a.txt", f"{PARAGRAPH}\n\n{PARAGRAPH}\n\nShort.\n\n{long}\n\n{PARAGRAPH * 3}")
    texts = [p.text or "" for p in read_corpus(tmp_path).passages]
    sizes = [len(text.split()) for text in texts]
    assert max(sizes) <= MAX_WORDS
    assert sizes[:2] == [80, 81]
    assert " ".join(texts).split() == f"{PARAGRAPH * 2} Short. {long} {PARAGRAPH * 3}".split()
    assert texts[-1].startswith("Salt")  # cut at a sentence


def test_headings_give_titles_and_code_does_not(tmp_path: Path) -> None:
    text = "Intro.\n\n# One #\nUnder one.\n```\n# not a heading\n```\n## Two\n\n### Empty\n#tag\n"
    write(tmp_path, "guide.md", text)
    assert [(p.title, p.text) for p in read_corpus(tmp_path).passages] == [
        ("guide", "Intro."),
        ("One", "Under one. ``` # not a heading ```"),
        ("Empty", "#tag"),
    ]


def test_what_cannot_be_read_is_skipped_and_counted(tmp_path: Path) -> None:
    write(tmp_path, "good.txt", "Text.")
    write(tmp_path, "photo.txt", b"\x89PNG\x00\x00")
    write(tmp_path, "latin.md", "Stra\xdfe".encode("latin-1"))
    write(tmp_path, "latin.jsonl", b'{"text": "\xff"}')
    write(tmp_path, "page.html", "<p>")
    write(tmp_path, ".secret.txt", "hidden")
    write(tmp_path, ".git/config.txt", "hidden")
    (tmp_path / "broken.txt").symlink_to(tmp_path / "nowhere")
    reading = read_corpus(tmp_path)
    assert [p.text for p in reading.passages] == ["Text."]
    assert Counter(file.reason for file in reading.skipped) == {
        "binary": 1,
        "not UTF-8": 2,
        "of another kind": 1,
        "hidden": 2,
        "not a regular file": 1,
    }


def test_link_loops_and_special_files_are_harmless(tmp_path: Path) -> None:
    write(tmp_path, "a/good.txt", "Text.")
    (tmp_path / "a" / "up").symlink_to(tmp_path)
    (tmp_path / "self.txt").symlink_to(tmp_path / "self.txt")
    os.mkfifo(tmp_path / "pipe.txt")
    reading = read_corpus(tmp_path)
    assert [p.id for p in reading.passages] == ["a/good.txt#1"]
    assert {file.path for file in reading.skipped} == {"a/up", "self.txt", "pipe.txt"}


@pytest.mark.parametrize(
    ("line", "column", "message"),
    [
        ('{"text": "cut', None, "not JSON"),
        ("[1]", None, "found list"),
        ('{"title": "no text"}', "text", "found nothing"),
        ('{"text": 3}', "text", "found 3"),
        ('{"text": "x", "title": ["t"]}', "title", "found"),
        ('{"text": "x", "id": true}', "id", "found True"),
        ("[" * 100_000, None, "not JSON"),
    ],
)
def test_a_malformed_row_names_file_row_and_column(
    tmp_path: Path, line: str, column: str | None, message: str
) -> None:
    path = write(tmp_path, "rows.jsonl", f'{{"text": "fine"}}\n{line}\n')
    with pytest.raises(DataError, match=message) as caught:
        read_corpus(tmp_path)
    assert (caught.value.file, caught.value.row, caught.value.column) == (str(path), 1, column)


def test_repeated_ids(tmp_path: Path) -> None:
    write(tmp_path, "rows.jsonl", '{"id": "a", "text": "x"}\n{"id": "a", "text": "y"}\n')
    with pytest.raises(DataError, match="'a'"):
        read_corpus(tmp_path)


def test_nothing_to_read_says_what_is_accepted(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="jsonl"):
        read_corpus(tmp_path)
    write(tmp_path, "a.pdf", "x")
    write(tmp_path, "b.txt", " \n\n ")
    with pytest.raises(DataError, match="Skipped"):
        read_corpus(tmp_path)
    with pytest.raises(DataError, match="does not exist"):
        read_corpus(tmp_path / "nowhere")


def test_number_ids_and_line_separators_inside_strings(tmp_path: Path) -> None:
    row = json.dumps({"id": 7, "text": "a\u2028b"}, ensure_ascii=False)
    (passage,) = read_corpus(write(tmp_path, "rows.jsonl", row)).passages
    assert (passage.id, passage.text) == ("7", "a\u2028b")
