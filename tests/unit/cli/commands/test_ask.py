"""``suffice ask``: budgets, confidence, retrievers and what is refused before the first call."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.commands import run, run_json
from tests.hashing_encoder import HashingEncoder

from suffice.cli import retrieval
from suffice.cli.commands.ask import _print
from suffice.cli.main import main
from suffice.live.answering import Answered
from suffice.policies.ab_rag.policy import ABRagPolicy
from suffice.policies.policy_file import save_policy
from suffice.trace.rounds.records import Round

pytest.importorskip("bm25s")

QUESTION = "Who founded Cadel Tower?"


@pytest.fixture(autouse=True)
def _hashing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        retrieval, "connect_encoder", lambda name, *_: HashingEncoder(32 if name == "other" else 64)
    )


@pytest.fixture
def certain(tmp_path: Path) -> Path:
    """A policy whose confidence is the mean token probability, and which never stops by itself."""
    policy = ABRagPolicy(weights={"token_probability": 1.0}, threshold=1.0)
    return save_policy(policy, tmp_path / "certain.json")


def ask(*arguments: str | Path) -> Any:
    return run_json("ask", QUESTION, "--llm", "scripted", *arguments)


def refused(*arguments: str | Path) -> str:
    done = run("ask", QUESTION, "--llm", "scripted", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    return done.stderr


def test_the_pipeline_goes_by_the_policy(corpus: Path, certain: Path) -> None:
    one = ask("--corpus", corpus, "--policy", "fixed-2")
    assert (one["rounds"], len(one["passages"])) == (2, 2)
    five = ask("--corpus", corpus, "--policy", certain)
    assert (five["rounds"], len(five["passages"])) == (2, 8)  # eight pages: five, then three
    assert (five["stopped_by"], five["reason"]) == (
        "end",
        "pool exhausted: no passage is left to show",
    )
    chosen = ask(
        "--corpus", corpus, "--policy", "fixed-3", "--pipeline", "budgeted",
        "--start", "2", "--step", "1",
    )  # fmt: skip
    assert (chosen["rounds"], len(chosen["passages"])) == (3, 4)


def test_what_abstains_for_a_rule_can_be_said(corpus: Path, tmp_path: Path, certain: Path) -> None:
    usual = ask("--corpus", corpus, "--policy", "not abstained")
    assert usual["rounds"] == 1
    phrases = tmp_path / "phrases.txt"
    phrases.write_text(usual["answer"], encoding="utf-8")
    own = ("--corpus", corpus, "--abstention", phrases)
    assert ask(*own, "--policy", "not abstained")["rounds"] > 1


def test_an_agent_stops_where_it_would_finish_unless_told_otherwise(corpus: Path) -> None:
    agent = ("--corpus", corpus, "--pipeline", "react")
    found = ask(*agent)
    assert found["stopped_by"] in ("policy", "budget")
    assert set(found["reasons"][-1]["values"]) == {"llm_stop"}
    fixed = ask(*agent, "--policy", "fixed-2", "--step", "2")
    assert (fixed["rounds"], len(fixed["passages"])) == (2, 4)
    assert fixed["usage"]["judge_calls"] == 0
    assert ask(*agent, "--policy", "answer_stable and malformed_actions < 1")["rounds"] <= 3
    said = refused("--corpus", corpus, "--policy", "llm_stop")
    assert "'llm_stop'" in said
    assert "--pipeline react" in said


@pytest.mark.parametrize("retriever", ["bm25", "dense", "hybrid"])
def test_every_retriever_answers(retriever: str, corpus: Path) -> None:
    found = ask("--corpus", corpus, "--retriever", retriever, "--policy", "fixed-1")
    assert found["passages"][0]["title"] == "Cadel Tower"


def test_budgets_end_it_and_never_fail(corpus: Path, certain: Path) -> None:
    common = ("--corpus", corpus, "--policy", certain, "--start", "1", "--step", "1")
    prices = ("--prices", "input=1,output=1")
    for budget, rounds in (
        (("--budget-rounds", "2"), 2),
        (("--budget-tokens", "1"), 1),
        (("--budget-seconds", "0.0001"), 1),
        (("--budget-usd", "0.000001", *prices), 1),
        (("--budget-usd", "1", "--budget-rounds", "2", *prices), 2),
    ):
        found = ask(*common, *budget)
        assert (found["stopped_by"], found["rounds"]) == ("budget", rounds), budget
    assert found["usage"]["usd"] == pytest.approx(
        (found["usage"]["prompt_tokens"] + found["usage"]["completion_tokens"]) / 1e6
    )


@pytest.fixture
def voted(tmp_path: Path) -> Path:
    """A policy fitted on five samples a round, which stops by their agreement."""
    fifths = tuple(n / 5 for n in range(1, 6))
    policy = ABRagPolicy(
        weights={"self_consistency": 1.0}, threshold=1.0, levels=fifths, preset="corrected"
    )
    return save_policy(policy, tmp_path / "voted.json")


@pytest.mark.parametrize(
    ("options", "calls"), [((), 5), (("--samples", "5"), 5), (("--samples", "2"), 2)]
)
def test_a_policy_reads_as_many_samples_as_it_was_fitted_on(
    options: tuple[str, ...],
    calls: int,
    corpus: Path,
    voted: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    common: tuple[str | Path, ...] = (
        "--corpus",
        corpus,
        "--policy",
        voted,
        "--budget-rounds",
        "1",
        *options,
    )
    found = ask(*common)
    assert found["usage"]["llm_calls"] == calls
    agreeing = found["confidence"] * calls
    assert agreeing == pytest.approx(round(agreeing))
    assert main(["ask", QUESTION, "--llm", "scripted", *map(str, common)]) == 0
    told = "the policy was fitted on 5 samples a round; on 2" in capsys.readouterr().err
    assert told == (calls == 2)


@pytest.mark.parametrize(
    ("policy", "counted"),
    [
        ("fixed-1 --pipeline budgeted --certainty self_consistency", "llm_calls"),
        ("self_consistency>0.7 --budget-rounds 2", "sample_calls"),  # the last decides nothing,
    ],
)
def test_samples_of_a_vote_and_of_a_rule(policy: str, counted: str, corpus: Path) -> None:
    common: tuple[str | Path, ...] = ("--corpus", corpus, "--policy", *policy.split())
    # at the end of a budget nothing is left to decide, and no sample is drawn to decide by
    assert ask(*common)["usage"][counted] == 3
    assert ask(*common, "--samples", "4")["usage"][counted] == 4


def test_samples_that_nothing_reads_are_not_drawn(corpus: Path, certain: Path) -> None:
    for policy in ("fixed-1", certain):
        found = ask("--corpus", corpus, "--policy", policy, "--samples", "4")
        assert (found["usage"]["llm_calls"], found["usage"]["sample_calls"]) in ((1, 0), (2, 0))


def test_the_index_is_kept_and_refused_when_it_is_another(corpus: Path, tmp_path: Path) -> None:
    kept = ("--corpus", corpus, "--retriever", "hybrid", "--index", tmp_path / "index")
    first = ask(*kept)
    written = (tmp_path / "index" / "index.npz").stat().st_ino
    assert ask(*kept)["passages"] == first["passages"]
    assert (tmp_path / "index" / "index.npz").stat().st_ino == written
    said = refused(*kept, "--encoder", "other")
    assert "hashing-64" in said
    assert "hashing-32" in said
    assert "--reindex" in said
    (corpus / "Ardel.md").unlink()
    said = refused(*kept)
    assert "1 removed (Ardel.md#1)" in said
    assert "--reindex" in said
    assert ask(*kept, "--reindex")["rounds"] >= 1
    ask(*kept)


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["--policy", "ab-rag"], ["rerank_variance", "--retriever"]),
        (["--policy", "ab-rag", "--encoder", "none"], ["evidence_consistency", "--encoder minilm"]),
        (["--retriever", "hybrid+rerank"], ["--reranker PATH", ".gguf"]),
        (["--retriever", "hybrid", "--encoder", "none"], ["needs an encoder"]),
        (["--reranker", "x"], ["--reranker is for", "--retriever bm25+rerank"]),
        (["--retriever", "dense", "--pool", "10"], ["--pool is for", "--retriever dense+rerank"]),
        (["--encoder-model", "m"], ["--encoder URL"]),
        (["--budget-usd", "1"], ["--price-model", "--prices input="]),
        (["--budget-usd", "-1", "--prices", "input=1,output=1"], ["above 0"]),
        (["--budget-usd", "1", "--prices", "input=1"], ["output"]),
        (["--decline-below", "0.5"], ["has none", "--policy ab-rag"]),
        (["--answer", "most-confident"], ["has none", "--policy ab-rag"]),
        (["--reindex"], ["--index"]),
        (["--start", "3"], ["--pipeline budgeted"]),
        (["--policy", "ab-rag-corrected"], ["suffice"]),
        (
            ["--policy", "verbalized_confidence > 1", "--pipeline", "budgeted"],
            ["--prompt answer-first"],
        ),
    ],
)
def test_refusals(arguments: list[str], parts: list[str], corpus: Path) -> None:
    said = refused("--corpus", corpus, *arguments)
    for part in parts:
        assert part in said


def test_it_says_what_was_spent_and_saved(corpus: Path) -> None:
    told = ask("--corpus", corpus, "--policy", "round >= 2 and answer_stable >= 0")
    usage = told["usage"]
    assert usage["llm_calls"] == 2
    assert told["saved_rounds"] == 3


def test_the_choice_of_an_earlier_answer_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    answered = Answered(
        answer="Oslo",
        rounds=(Round(answer="Oslo"), Round(answer="Oslo"), Round(answer="Rome")),
        decisions=(),
        stopped_by="end",
        reason="no passage is left",
        answer_round=2,
        confidence=None,
        declined=False,
    )
    _print(answered, "majority", None)
    assert "the answer is from round 2, as --answer majority chooses" in capsys.readouterr().out
