"""A record without its texts: nothing of them is left, and policies do on it what they do on the record."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal

import pyarrow.parquet as pq
import pytest

import suffice
from suffice.errors import UsageError
from suffice.live.privacy import redact_traces
from suffice.measures.measures import Measures
from suffice.policies.micp.policy import MiCPPolicy
from suffice.signals.registry import SIGNALS
from suffice.signals.table import signal_table
from suffice.stats.conformal.order_statistics import NEVER
from suffice.testing.traces import sampled_records
from suffice.trace.rounds.derive import merge_traces
from suffice.trace.rounds.filter import TraceFilter, filter_traces
from suffice.trace.rounds.writer import write_traces

RECORD = Path(__file__).parents[3] / "examples" / "traces" / "generated.parquet"


@pytest.mark.parametrize("texts", ["hashes", "no-texts"])
def test_no_text_is_left(tmp_path: Path, texts: str) -> None:
    out = tmp_path / "redacted.parquet"
    redact_traces(RECORD, out, texts=texts)  # type: ignore[arg-type]
    kept = json.dumps(pq.read_table(out).drop_columns(["question_id"]).to_pylist(), default=str)
    for held in suffice.read_traces(RECORD).records():
        shown = [held.question.text, *held.gold.answers]
        shown += [p.text or "" for one in held.rounds for p in one.passages or ()]
        shown += [one.response or "" for one in held.rounds]
        assert not [text for text in shown if len(text) > 12 and text in kept]


@pytest.mark.parametrize("texts", ["hashes", "no-texts"])
def test_policies_do_on_it_what_they_do_on_the_record(tmp_path: Path, texts: str) -> None:
    written = redact_traces(RECORD, tmp_path / "redacted", texts=texts)  # type: ignore[arg-type]
    whole, redacted = suffice.read_traces(RECORD), suffice.read_traces(written.out)
    names = [
        name
        for name, spec in SIGNALS.items()
        if not spec.recorded_only and set(spec.needs) <= set(whole.table.column_names)
    ]
    ours, theirs = signal_table(redacted, names), signal_table(whole, names)
    for name in names:
        assert ours.signal(name) == pytest.approx(theirs.signal(name), nan_ok=True), name

    policies = ("tasr", "tasr-corrected", "fixed-2")
    assert (
        replayed(redacted, "score", *policies)
        == replayed(redacted, None, *policies)
        == replayed(whole, "f1", *policies)
    )


def test_exact_match_its_oracle_and_answer_sets_are_those_of_the_record(tmp_path: Path) -> None:
    record = tmp_path / "sampled.parquet"
    write_traces(sampled_records(150), record)
    whole = suffice.read_traces(record)
    redacted = suffice.read_traces(redact_traces(record, tmp_path / "redacted").out)
    policies = ("fixed-1", "oracle-em")
    assert replayed(redacted, "em", *policies) == replayed(whole, "em", *policies)
    ours, theirs = (
        suffice.fit_method("micp", Measures.of(traces).by("em"), "corrected", "tune", weight=1.0)
        for traces in (redacted, whole)
    )
    assert isinstance(ours, MiCPPolicy)
    assert isinstance(theirs, MiCPPolicy)
    assert (ours.stops, ours.final) == (theirs.stops, theirs.final)
    assert set(ours.stops) != {NEVER}


def replayed(
    traces: suffice.TraceSet, metric: Literal["f1", "em", "score"] | None, *policies: str
) -> list[object]:
    settings = suffice.ComparisonSettings(policies=policies, split="eval", metric=metric)
    told = suffice.compare(traces, settings).to_json()
    by = told["metric"]
    return [(one["name"], one["mean_rounds"], round(one[by], 6)) for one in told["policies"]]


def test_redacted_pieces_joined_are_compared_by_their_scores(tmp_path: Path) -> None:
    pieces = []
    for split in ("tune", "eval"):
        piece = tmp_path / f"{split}.parquet"
        filter_traces(RECORD, piece, TraceFilter(split=(split,)))
        pieces.append(redact_traces(piece, tmp_path / f"{split}-redacted.parquet").out)
    joined = tmp_path / "joined.parquet"
    merge_traces(pieces, joined)
    assert Measures.of(suffice.read_traces(joined)).by(None).metric.name == "score"


def test_what_it_cannot_do(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="'hashes'"):
        redact_traces(RECORD, tmp_path / "out", texts="all")  # type: ignore[arg-type]
    (tmp_path / "there.parquet").touch()
    with pytest.raises(UsageError, match=r"there\.parquet"):
        redact_traces(RECORD, tmp_path / "there.parquet")


SECRETS = {
    "base_url": "https://ann:hunter22@models.example/v1?api_key=k1abcdef&sig=s1abcdef#frag",
    "model": "openai:gpt at http://bob:pw@host.example/v1?token=t1abcdef",
    "corpus": "/home/ann/secret corpus/notes.jsonl",
    "index": "see C:\\Users\\ann\\index.bin and ~/ann/private.db",
    "files": ["data/ann/private.parquet", "../ann/private.txt", "file:///home/ann/x"],
    "command": "record --api-key k2abcdef --corpus /srv/ann/docs --token=t2abcdef",
    "error": {"message": "401: password: hunter33 at '/etc/ann/key.pem'"},
    "api_key": "plainword",
    "https://ann:hunter44@host.example": 1,
}
TELLING = ("hunter", "ann", "k1abc", "s1abc", "t1abc", "k2abc", "t2abc", "plainword", "bob", "frag")


def test_no_key_password_or_path_is_left_of_the_run(tmp_path: Path) -> None:
    kept = {"model_name": "Qwen/Qwen2.5-1.5B", "max_tokens": 48, "dataset": "hotpotqa"}
    records = sampled_records(3)
    write_traces(records, tmp_path / "r.parquet", run={**SECRETS, **kept})
    redact_traces(tmp_path / "r.parquet", tmp_path / "out.parquet")
    run = suffice.read_traces(tmp_path / "out.parquet").origin.run
    assert not [word for word in TELLING if word in json.dumps(run)], run
    assert {name: run[name] for name in kept} == kept
    assert "models.example/v1" in run["base_url"]


@pytest.mark.parametrize("texts", ["hashes", "no-texts"])
def test_nor_in_a_watched_record(tmp_path: Path, texts: str) -> None:
    watch = suffice.Watch(record=tmp_path / "rec", texts=texts, run=SECRETS)  # type: ignore[arg-type]
    with watch, watch.question("Who?") as loop:
        loop.observe(answer="Oslo")
    for file in (tmp_path / "rec").iterdir():
        content = file.read_bytes().decode("utf-8", "replace")
        assert not [word for word in TELLING if word in content], file


@pytest.mark.parametrize("texts", ["hashes", "no-texts"])
def test_it_says_field_by_field_what_stays(tmp_path: Path, texts: str) -> None:
    """What it names is as it was, and of all else nothing is."""
    whole = pq.read_table(RECORD)
    written = redact_traces(RECORD, tmp_path / "out.parquet", texts=texts)  # type: ignore[arg-type]
    out = pq.read_table(written.out)
    keys = [("question_id", "ascending"), ("round", "ascending")]
    whole, out = whole.sort_by(keys), out.sort_by(keys)
    for name in whole.column_names:
        if name in {*out.column_names} - {"signals", "score"} and out[name].null_count < len(out):
            same = out[name].to_pylist() == whole[name].to_pylist()
            blank = not any(whole[name].to_pylist())
            assert blank or same == (name in written.stays), name
    assert "run document" in written.stays
    assert ("group" in written.stays) == (texts == "no-texts")
