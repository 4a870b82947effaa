"""Records of any number of questions for the benchmarks of scale, streamed to Parquet group by group.

python -m benchmarks.scale_records FOLDER --questions 2000000 --padded --files 20

Copies of examples/traces/generated.parquet under new ids: a copy of a question is called ID-COPY, so that a
record is not in the order of its ids. No row becomes a Python object.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

EXAMPLE = Path(__file__).parents[1] / "examples" / "traces" / "generated.parquet"
ROUND_BYTES = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What to write.

    Parameters
    ----------
    questions
        How many; each has the five rounds of the example's, and its closed-book answer as round 0.
    files
        Over how many files they are spread.
    varied
        Every copy has a word of its own in its answers, gold answers, samples and passages; else a record
        has no more distinct texts than the example, which favours whatever works by distinct text.
    padded
        Varied, and passages are lengthened with text that never repeats, to about 4 KB a round in memory;
        without round 0.
    split
        Whether the example's splits are kept; without them a replay is of every question.
    group
        Questions in a row group; a question lies in one.
    """

    questions: int
    files: int = 1
    varied: bool = False
    padded: bool = False
    split: bool = True
    group: int = 20_000

    @property
    def name(self) -> str:
        """A file name that tells records apart."""
        kind = "padded" if self.padded else "varied" if self.varied else "copies"
        splits = "splits" if self.split else "whole"
        return f"{kind}-{splits}-{self.questions}-{self.files}-{self.group}"


def written(folder: Path, record: Record) -> Path:
    """The record below ``folder``, written unless it is there: a file, or a directory of several."""
    place = folder / (record.name if record.files > 1 else f"{record.name}.parquet")
    paths = [place]
    if record.files > 1:
        place.mkdir(parents=True, exist_ok=True)
        paths = [place / f"part-{number:04}.parquet" for number in range(record.files)]
    example = _example(closed_book=not record.padded)
    ends = np.linspace(0, record.questions, record.files + 1).astype(np.int64)
    for number, path in enumerate(paths):
        if path.exists():
            continue
        unfinished = path.with_suffix(".unfinished")
        with pq.ParquetWriter(unfinished, example.schema, compression="zstd") as writer:
            for part in _groups(int(ends[number]), int(ends[number + 1]), record.group):
                writer.write_table(_rows(example, part, record), row_group_size=1 << 30)
        unfinished.rename(path)
    return place


def _example(*, closed_book: bool) -> pa.Table:
    table = pq.read_table(EXAMPLE)
    return table if closed_book else table.filter(pc.greater(table.column("round"), 0))


def _groups(start: int, stop: int, size: int) -> Iterator[range]:
    return (range(begin, min(begin + size, stop)) for begin in range(start, stop, size))


def _rows(example: pa.Table, questions: range, record: Record) -> pa.Table:
    """The rows of the questions with these numbers; number = copy x questions of the example + question."""
    ids = example.column("question_id").combine_chunks().dictionary_encode()
    begins = np.searchsorted(ids.indices.to_numpy(), np.arange(len(ids.dictionary) + 1))
    copies, originals = np.divmod(np.arange(questions.start, questions.stop), len(ids.dictionary))
    sizes = np.diff(begins)[originals]
    ends = np.cumsum(sizes)
    positions = np.arange(ends[-1]) + np.repeat(begins[originals] - ends + sizes, sizes)
    copies = np.repeat(copies, sizes)
    table = example.take(pa.array(positions)).combine_chunks()
    names = _joined(table.column("question_id"), pa.array(copies).cast(pa.string()), "-")
    columns = {name: table.column(name) for name in table.column_names}
    columns["question_id"] = names
    copy = pa.array(copies).cast(pa.string())
    columns["question"] = _joined(columns["question"], copy, " ")  # one of a text would be one unit
    if not record.split:
        columns["split"] = pa.nulls(len(names), pa.string())
    if record.varied or record.padded:
        words = pa.array(distinct_words(copies))
        columns["answer"] = _joined(columns["answer"], words)
        for name in ("gold_answers", "samples"):
            texts, rows = _flat(columns[name])
            columns[name] = _nested(columns[name], _joined(texts, words.take(pa.array(rows))))
        passages, rows = _flat(columns["passages"])
        tails = words.take(pa.array(rows))
        if record.padded:
            shorter = ROUND_BYTES - example.nbytes / example.num_rows
            tails = _padding(questions.start, len(passages), shorter * len(table) / len(passages))
        fields = dict(zip(passages.type.names, passages.flatten(), strict=True))
        fields["text"] = _joined(fields["text"], tails)
        longer = pa.StructArray.from_arrays(list(fields.values()), fields=list(passages.type))
        columns["passages"] = _nested(columns["passages"], longer)
    made = [
        column.cast(kind)
        for column, kind in zip(columns.values(), example.schema.types, strict=True)
    ]
    return pa.table(made, schema=example.schema)


_SYLLABLES = np.array([a + b for a in "bdfgklmnprstvz" for b in "aeiou"])


def distinct_words(numbers: NDArray[np.int64]) -> NDArray[np.str_]:
    """A word of four syllables or more for each number, another for another number."""
    size = len(_SYLLABLES)
    words = _SYLLABLES[numbers % size]
    for power in range(1, 4):
        words = np.strings.add(words, _SYLLABLES[numbers // size**power % size])
    return words


def _joined(texts: pa.Array, tails: pa.Array, between: str = " ") -> pa.Array:
    return pc.binary_join_element_wise(texts, tails, between)


def _flat(lists: pa.ChunkedArray) -> tuple[pa.Array, NDArray[np.int64]]:
    """The values of a column of lists, and of each its row."""
    lists = lists.combine_chunks()
    return lists.flatten(), pc.list_parent_indices(lists).to_numpy()


def _nested(lists: pa.ChunkedArray, values: pa.Array) -> pa.Array:
    """Other values in the same lists."""
    lists = lists.combine_chunks()
    sizes = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
    offsets = pa.array(np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32))
    return pa.ListArray.from_arrays(offsets, values, mask=lists.is_null())


_PIECE = 40  # words in a piece of padding


def _padding(seed: int, number: int, length: float) -> pa.Array:
    """Texts of about ``length`` bytes, words in proportion to 1 / rank as in prose."""
    pieces = _pieces()
    size = float(np.mean(pc.binary_length(pieces).to_numpy()))
    rng = np.random.default_rng(seed)
    chosen = [
        pieces.take(pa.array(rng.integers(0, len(pieces), number)))
        for _ in range(max(1, round(length / size)))
    ]
    return pc.binary_join_element_wise(*chosen, " ")


def _pieces(number: int = 20_000) -> pa.Array:
    rng = np.random.default_rng(7)
    vocabulary = distinct_words(rng.integers(0, len(_SYLLABLES) ** 3, 30_000))
    ranks = 1 / np.arange(1, len(vocabulary) + 1)
    drawn = rng.choice(len(vocabulary), (number, _PIECE), p=ranks / ranks.sum())
    return pc.binary_join(
        pa.ListArray.from_arrays(
            pa.array(np.arange(0, number * _PIECE + 1, _PIECE, dtype=np.int32)),
            pa.array(vocabulary).take(pa.array(drawn.ravel())),
        ),
        " ",
    )


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--questions", type=int, default=100_000)
    parser.add_argument("--files", type=int, default=1)
    parser.add_argument("--group", type=int, default=20_000, help="questions in a row group")
    parser.add_argument("--varied", action="store_true")
    parser.add_argument("--padded", action="store_true")
    parser.add_argument("--split", action=argparse.BooleanOptionalAction, default=True)
    asked = vars(parser.parse_args(arguments))
    folder = asked.pop("folder")
    folder.mkdir(parents=True, exist_ok=True)
    print(written(folder, Record(**asked)))


if __name__ == "__main__":
    main()
