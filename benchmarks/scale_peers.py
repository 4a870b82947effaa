"""One rule replayed by others: stop rounds and exact match at the stop, from one Parquet file.

python -m venv .venv-peers; .venv-peers/bin/pip install -e . -r benchmarks/requirements-peers.txt
.venv-peers/bin/python -m benchmarks.scale_peers [--questions 1000000] [--folder DIR]

Each way runs in a process of its own, reads the columns it wants, and may normalise each distinct text once.
All must give the same stop rounds and the same exact match. The other ways take the file to be in order of
question and round, where they can use that; ours does not.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import string
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from benchmarks.scale import ours, spent
from benchmarks.scale_records import distinct_words

ROUNDS = 5
FLOOR = 2.0
RULES = {
    "stable": "answer_stable",
    "margin": f"answer_stable and answer_token_margin > {FLOOR:g}",
}
PUBLISHED_PART = 2_000
PUNCTUATION = r"[!-/:-@\[-`{-~]"
ARTICLES = r"\b(?:a|an|the)\b"
MARGIN = "answer_token_margin"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stops:
    """What a way found: the round each question stops at, in order of question, and the mean exact match."""

    rounds: NDArray[np.signedinteger[Any]]
    em: float

    def said(self) -> str:
        """For another process."""
        digest = hashlib.sha256(np.ascontiguousarray(self.rounds, np.int8).tobytes()).hexdigest()
        return json.dumps({"rounds": digest, "em": float(self.em)})


# --- the record ----------------------------------------------------------------------------------
def answers_record(folder: Path, questions: int) -> Path:
    """Answers of five rounds in spellings that scoring ignores, two gold answers, and a recorded margin."""
    path = folder / f"answers-{questions}.parquet"
    if path.exists():
        return path
    from suffice.trace.rounds.schema import QUESTIONS

    named = ("question_id", "round", "question", "gold_answers", "answer", "llm_calls", "signals")
    stated = {QUESTIONS.key: str(QUESTIONS.version).encode()}
    schema = pa.schema([QUESTIONS.arrow.field(name) for name in named], stated)
    rng = np.random.default_rng(11)
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        for begin in range(0, questions, 50_000):
            count = min(50_000, questions - begin)
            writer.write_table(_answers(rng, begin, count, schema))
    return path


def _answers(rng: np.random.Generator, begin: int, count: int, schema: pa.Schema) -> pa.Table:
    texts = pa.array(distinct_words(np.arange(30_000)))

    def name(numbers: NDArray[np.int64]) -> pa.Array:
        return pc.binary_join_element_wise(
            pc.utf8_capitalize(texts.take(pa.array(numbers % 997))),
            pc.utf8_capitalize(texts.take(pa.array(numbers // 997 % 29_000))),
            " ",
        )

    gold = rng.integers(0, 997 * 29_000, count)
    right = rng.random((count, ROUNDS)) < np.linspace(0.3, 0.6, ROUNDS)
    wrong = gold[:, None] + rng.integers(1, 4, (count, ROUNDS))
    spelled = rng.choice(5, count * ROUNDS, p=[0.6, 0.1, 0.1, 0.1, 0.1])
    before = pa.array(["", "the ", "The ", "", " "]).take(pa.array(spelled))
    after = pa.array(["", "", ".", "!", " "]).take(pa.array(spelled))
    answers = name(np.where(right, gold[:, None], wrong).ravel())
    accepted = np.stack([gold, gold + 7], axis=1).ravel()
    numbers = np.repeat(np.arange(begin, begin + count), ROUNDS)
    ids = pc.binary_join_element_wise(
        "q", pc.utf8_lpad(pa.array(numbers).cast(pa.string()), 9, "0"), ""
    )
    golds = pa.ListArray.from_arrays(
        pa.array(np.arange(0, 2 * count + 1, 2, dtype=np.int32)), name(accepted)
    )
    rows = count * ROUNDS
    signals = pa.MapArray.from_arrays(
        pa.array(np.arange(rows + 1, dtype=np.int32)),
        pa.array([MARGIN]).take(pa.array(np.zeros(rows, np.int8))),
        pa.array(rng.exponential(2.0, rows)),
    )
    columns = {
        "question_id": ids,
        "round": pa.array(np.tile(np.arange(1, ROUNDS + 1), count)),
        "question": pc.binary_join_element_wise("What is", ids, "?", " "),
        "gold_answers": golds.take(pa.array(np.repeat(np.arange(count), ROUNDS))),
        "answer": pc.binary_join_element_wise(before, answers, after, ""),
        "llm_calls": pa.array(np.ones(rows, np.int16)),
        "signals": signals,
    }
    return pa.table([columns[field.name].cast(field.type) for field in schema], schema=schema)


# --- the ways ------------------------------------------------------------------------------------
_REMOVED = str.maketrans("", "", string.punctuation)
_ARTICLE = re.compile(ARTICLES)


def normal(text: str) -> str:
    """The official normalisation."""
    return " ".join(_ARTICLE.sub(" ", text.lower().translate(_REMOVED)).split())


def published(record: Path, rule: str) -> Stops:
    """The scripts' way: a frame, each question's rows sorted, a Python loop over them; of a part."""
    import pandas as pd

    columns = ["question_id", "round", "gold_answers", "answer", "signals"]
    part = next(pq.ParquetFile(record).iter_batches(PUBLISHED_PART * ROUNDS, columns=columns))
    frame = pd.DataFrame(part.to_pylist())
    stops, scores = [], []
    for _, rows in frame.groupby("question_id", sort=True):
        previous = None
        for _, row in rows.sort_values("round").iterrows():
            answer = normal(row["answer"])
            fires = previous is not None and answer == previous
            if rule == "margin":
                fires = fires and dict(row["signals"])[MARGIN] > FLOOR
            previous = answer
            if fires or row["round"] == ROUNDS:
                stops.append(int(row["round"]))
                scores.append(float(any(normal(gold) == answer for gold in row["gold_answers"])))
                break
    return Stops(rounds=np.array(stops, np.int8), em=float(np.mean(scores)))


def with_pandas(record: Path, rule: str) -> Stops:
    """Whole columns; distinct answers by ``factorize``."""
    import pandas as pd

    names = ["question_id", "round", "gold_answers", "answer", "signals"]
    table = pq.read_table(record, columns=names if rule == "margin" else names[:-1])
    plain = table.select(["question_id", "round", "answer"]).to_pandas()

    def forms(texts: Any) -> Any:
        texts = texts.str.lower().str.replace(PUNCTUATION, "", regex=True)
        texts = texts.str.replace(ARTICLES, " ", regex=True)
        return texts.str.replace(r"\s+", " ", regex=True).str.strip()

    codes, distinct = pd.factorize(plain["answer"])
    normals = forms(pd.Series(distinct))
    same, _ = pd.factorize(normals)
    question = pd.factorize(plain["question_id"])[0]
    follows = np.append(False, question[1:] == question[:-1])
    fires = follows & (same[codes] == np.roll(same[codes], 1))
    if rule == "margin":
        fires &= pc.map_lookup(table["signals"], MARGIN, "first").to_numpy() > FLOOR
    ends = np.append(~follows[1:], True)
    stop = plain[fires | ends].drop_duplicates("question_id")
    gold = table["gold_answers"].take(pa.array(stop.index)).combine_chunks()
    rows = pc.list_parent_indices(gold).to_numpy()
    accepted = forms(gold.flatten().to_pandas())
    answered = normals.to_numpy()[codes[stop.index]]
    hits = np.zeros(len(stop), bool)
    hits[rows[accepted.to_numpy() == answered[rows]]] = True
    return Stops(rounds=stop["round"].to_numpy(), em=hits.mean())


def with_polars(record: Path, rule: str) -> Stops:
    """A lazy query; the answers at the stop are scored, and no others."""
    import polars as pl

    def form(texts: Any) -> Any:
        texts = texts.str.to_lowercase().str.replace_all(PUNCTUATION, "")
        return (
            texts.str.replace_all(ARTICLES, " ").str.replace_all(r"\s+", " ").str.strip_chars(" ")
        )

    question = pl.col("question_id")
    rounds = pl.scan_parquet(record)
    forms = rounds.select(pl.col("answer").unique()).with_columns(form=form(pl.col("answer")))
    rounds = rounds.join(forms, on="answer", how="left", maintain_order="left")
    fires = (pl.col("form") == pl.col("form").shift()) & (question == question.shift())
    if rule == "margin":
        fires &= pl.col("signals").map.get(MARGIN) > FLOOR
    stop = (
        rounds.filter(fires.fill_null(value=False) | (pl.col("round") == ROUNDS))
        .unique("question_id", keep="first", maintain_order=True)
        .select(
            "round",
            em=pl.col("gold_answers").list.eval(form(pl.element())).list.contains(pl.col("form")),
        )
        .collect()
    )
    return Stops(rounds=stop["round"].to_numpy(), em=stop["em"].mean())


def with_duckdb(record: Path, rule: str) -> Stops:
    """SQL with a window."""
    import duckdb

    connection = duckdb.connect()
    connection.execute(
        f"""create macro form(t) as trim(regexp_replace(regexp_replace(regexp_replace(
            lower(t), '{PUNCTUATION}', '', 'g'), '{ARTICLES}', ' ', 'g'), '\\s+', ' ', 'g'))"""
    )
    floor = "" if rule == "stable" else f"and signals['{MARGIN}'] > {FLOOR}"
    found = connection.execute(
        f"""with
        forms as (
            select answer, form(answer) as form
            from (select distinct answer from read_parquet('{record}'))
        ),
        rounds as (
            select question_id, round, form, gold_answers,
                form = lag(form) over (partition by question_id order by round) {floor} as fires
            from read_parquet('{record}') join forms using (answer)
        ),
        stops as (
            select question_id,
                coalesce(min(round) filter (where fires), max(round)) as stop,
                coalesce(arg_min(form, round) filter (where fires), arg_max(form, round)) as form,
                any_value(gold_answers) as gold
            from rounds group by question_id
        )
        select stop, list_contains(list_transform(gold, lambda g: form(g)), form) as em
        from stops order by question_id"""
    ).fetchnumpy()
    return Stops(rounds=found["stop"], em=found["em"].mean())


def with_suffice(record: Path, rule: str) -> Stops:
    """Stop rounds and scores by the Python interface."""
    import suffice
    from suffice.measures.measures import Measures

    optional = ["gold_answers", *(["signals"] if rule == "margin" else [])]
    measures = Measures.of(suffice.read_traces(record, columns=optional))
    stops = measures.stop_rounds(suffice.RulePolicy(rule=RULES[rule]))
    scores = np.take_along_axis(measures.score("em"), stops[:, None] - 1, axis=1)
    return Stops(rounds=stops, em=scores.mean())


WAYS: dict[str, Callable[[Path, str], Stops]] = {
    "suffice": with_suffice,
    "polars": with_polars,
    "duckdb": with_duckdb,
    "pandas": with_pandas,
    "published": published,
}


# --- both in one run -----------------------------------------------------------------------------
def compared(record: Path, questions: int, rule: str) -> dict[str, float]:
    """CPU and wall time and peak memory of every way, after their results were found equal."""
    figures: dict[str, float] = {}
    expected: Any = None
    for way in WAYS:
        with tempfile.TemporaryDirectory() as aside:
            said = Path(aside) / "said"
            alone = (sys.executable, "-m", "benchmarks.scale_peers", "--way", way, rule)
            run = spent((*alone, str(record), str(said)))
            result = json.loads(said.read_text())
        scaled = 1.0
        if way == "published":
            scaled = questions / PUBLISHED_PART
            part = record.with_name(f"part-of-{record.name}")
            rows = next(pq.ParquetFile(record).iter_batches(PUBLISHED_PART * ROUNDS))
            pq.write_table(pa.Table.from_batches([rows], pq.read_schema(record)), part)
            expected = json.loads(with_suffice(part, rule).said())
        elif expected is None:
            expected = result
        if result["rounds"] != expected["rounds"] or abs(result["em"] - expected["em"]) > 1e-12:
            raise SystemExit(f"{way} gives {result}, not {expected}")
        figures[f"{RULES[rule]}: {way}, CPU seconds"] = run.cpu * scaled
        figures[f"{RULES[rule]}: {way}, wall seconds"] = run.wall * scaled
        if scaled == 1.0:
            figures[f"{RULES[rule]}: {way}, peak MB"] = run.peak
    command = ours("replay", str(record), "--stop-when", RULES[rule], "--json")
    run = spent(command)
    figures[f"{RULES[rule]}: suffice replay, the whole command, CPU seconds"] = run.cpu
    figures[f"{RULES[rule]}: suffice replay, the whole command, wall seconds"] = run.wall
    figures[f"{RULES[rule]}: suffice replay, the whole command, peak MB"] = run.peak
    return figures


def main(arguments: Sequence[str]) -> dict[str, float]:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--questions", type=int, default=1_000_000)
    parser.add_argument("--folder", type=Path, help="where the record is kept (default: removed)")
    parser.add_argument("--way", nargs=4, metavar=("WAY", "RULE", "RECORD", "OUT"))
    options = parser.parse_args(arguments)
    if options.way:
        way, rule, record, out = options.way
        Path(out).write_text(WAYS[way](Path(record), rule).said())
        return {}
    with tempfile.TemporaryDirectory() as aside:
        folder = options.folder or Path(aside)
        record = answers_record(folder, options.questions)
        figures: dict[str, float] = {}
        for rule in RULES:
            figures |= compared(record, options.questions, rule)
    return figures


if __name__ == "__main__":
    for figure, value in main(sys.argv[1:]).items():
        print(f"  {value:12.4g}  {figure}")
