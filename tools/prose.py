"""Report pages and sentences that are too long, and words that the project does not use.

A page has at most 800 words, all pages together 45,000; generated pages, design notes and stubs do not count.
Sentences are those of the pages, the README and the commands' help. ``python tools/prose.py FILE ...``
reports these files alone.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
MOST_WORDS_A_PAGE = 800
MOST_WORDS = 45_000
MOST_WORDS_A_SENTENCE = 20
GENERATED = "<!-- generated"
STUB_WORDS = 60
SOURCE = ROOT / "src" / "suffice"
BANNED = {
    "neither fitted nor ranked": "held-out questions",
    "evaluated tokens": "prompt tokens not served from cache",
    "charged as it would be run": "cost if deployed",
    "what is weak": "Limitations",
    "signed loss": "lose at most N points on average",
    "beyond its interval": "significantly",
    "favours fixed-k": "deliberately conservative comparison",
    "nothing is left": "the error allowance is used up",
    "written anew": "rewritten",
    "of which nothing stands": "output appears only when complete",
    "is taken to answer": "we assume",
    "as much as is allowed": "the best candidate loses about N points",
    "a recording of before": "an older recording",
    "takes the best anew": "deliberately conservative comparison",
    "of the first half": "of the held-out half",
    "keep it either": "no cheaper policy looks safe",
    "is the place to save": "lower it to save",
    "the policy says itself": "the policy's own choice",
    "stands there within seconds": "appears in seconds",
    "licence": "license",
    "colour": "color",
    "favour": "favor",
    "labelled": "labeled",
    "behaviour": "behavior",
}
"""What people stumbled over, and what to write."""


def is_stub(text: str) -> bool:
    """Whether the page only says where its contents moved."""
    return "](" in text and len(text.split()) <= STUB_WORDS


def pages() -> Iterator[tuple[Path, str]]:
    """Every page of the site that a person wrote."""
    for page in sorted(DOCS.rglob("*.md")):
        text = page.read_text(encoding="utf-8")
        if "design" not in page.parts and not text.startswith(GENERATED) and not is_stub(text):
            yield (
                page,
                re.sub(r"^<!-- .+ -->\n", "", text, flags=re.MULTILINE),
            )  # nobody reads those


def helps() -> Iterator[tuple[Path, str]]:
    """What commands and their options say of themselves, by file."""
    for file in sorted(SOURCE.rglob("*.py")):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        told = [
            node.value.value
            for node in ast.walk(tree)
            if isinstance(node, ast.keyword)
            and node.arg == "help"
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ]
        if file.parent.name == "commands":
            functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
            told += [
                ast.get_docstring(node) or "" for node in functions if not node.name.startswith("_")
            ]
        if told:
            yield file, "\n\n".join(told)


def sentences(text: str) -> Iterator[str]:
    """The sentences outside code, tables and headings."""
    text = re.sub(r"^( *)(```|~~~).*?^\1\2", "", text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"<!--.*?-->|\$\$.*?\$\$", "", text, flags=re.DOTALL)
    text = re.sub(r"^(\s*\||#|    |:::).*$", "\n", text, flags=re.MULTILINE)
    text = re.sub(r"`[^`]+`", "code", re.sub(r"!\[[^\]]*\]\([^)]*\)", "", text))
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    for block in re.split(r"\n\s*\n|^\s*(?:[-*]|\d+\.)\s", text, flags=re.MULTILINE):
        yield from re.split(r"(?<=[.!?])[*)\"']*\s+", " ".join(block.split()))


def misses(text: str) -> Iterator[str]:
    """Long sentences and banned words."""
    for sentence in sentences(text):
        words = [word for word in sentence.split() if re.search(r"\w", word)]
        if len(words) > MOST_WORDS_A_SENTENCE:
            yield f"{len(words)} words: {sentence[:100]}"
        for banned, better in BANNED.items():
            if banned in sentence.lower():
                yield f"{banned!r}: write {better!r}"


def main(named: list[str]) -> int:
    """Print the misses by file; 1 where there are any."""
    found: dict[Path, list[str]] = {}
    counted = dict(pages())
    sizes = {page: len(text.split()) for page, text in counted.items()}
    for page, size in sizes.items():
        if size > MOST_WORDS_A_PAGE:
            found.setdefault(page, []).append(f"{size} words, more than {MOST_WORDS_A_PAGE}")
    readme = ROOT / "README.md"
    for file, text in (*counted.items(), (readme, readme.read_text(encoding="utf-8")), *helps()):
        found.setdefault(file, []).extend(misses(text))
    wanted = {Path(name).resolve() for name in named} or set(found)
    told = {page: lines for page, lines in sorted(found.items()) if lines and page in wanted}
    for page, lines in told.items():
        print(page.relative_to(ROOT), *(f"  {line}" for line in lines), sep="\n")
    total = sum(sizes.values())
    print(f"{len(sizes)} pages, {total:,} words of at most {MOST_WORDS:,}")
    return int(bool(told) or total > MOST_WORDS)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
