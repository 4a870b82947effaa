"""A promise that fails the build: made by init, checked by the command and in pytest, broken, renewed."""

from __future__ import annotations

import ast
import importlib
import json
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.builders import drawn_records
from tests.commands import SUFFICE, run

import suffice
from suffice.cli.commands import check
from suffice.errors import UsageError
from suffice.evaluation.promise_check import carry_promise, check_promise, promise_settings
from suffice.measures.measures import Measures
from suffice.policies.policy_file import save_policy
from suffice.policies.rules.policy import Rule
from suffice.testing.traces import make_record
from suffice.trace.rounds.writer import write_traces

AGENTS = Path(__file__).parents[2] / "examples" / "agents"
LOOPS = tomllib.loads(
    Path(check.__file__).parents[1].joinpath("starter.toml").read_text(encoding="utf-8")
)["loops"]


@pytest.fixture(scope="module")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with all that init writes, a chosen policy and its verdict."""
    folder = tmp_path_factory.mktemp("project")
    assert run("init", folder).returncode == 0
    options = ["--signals", "overlap", "--max-signals", "1", "--bootstrap", "20", "--workers", "1"]
    allowed = ("--max-loss", "0.05", "--out", folder / "chosen")
    assert run("choose", "example", *allowed, *options).returncode == 0
    few = ("--max-loss", "0.006", "--out", folder / "guessed")
    assert run("choose", "example", *few, *options).returncode == 0
    assert run("check", folder / "suffice.toml").returncode == 1  # no verdict yet
    assert run("check", folder / "suffice.toml", "--update").returncode == 0
    return folder


@pytest.fixture
def project(made_once: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(made_once, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def in_pytest(*options: str) -> subprocess.CompletedProcess[str]:
    plugin = ("-p", "suffice.testing.pytest_plugin", "-p", "no:cacheprovider")
    words = [sys.executable, "-m", "pytest", *plugin, "-q", "-m", "suffice", *options, "tests"]
    return subprocess.run(words, capture_output=True, text=True, check=False)


def edited(path: str, **changes: Any) -> None:
    document = json.loads(Path(path).read_text(encoding="utf-8"))
    Path(path).write_text(json.dumps(document | changes), encoding="utf-8")


def test_a_loosened_policy_fails_until_it_is_proven_and_renewed(project: Path) -> None:
    assert run("check").returncode == 0
    assert in_pytest().returncode == 0

    edited("chosen/policy.json", rule="round >= 1")
    loose = run("check", "--update")
    assert loose.returncode == 1
    assert "not proven" in " ".join(loose.stdout.split())
    failed = in_pytest("--suffice-update")
    assert failed.returncode == 1
    assert "lost most points" in " ".join(failed.stdout.split())

    edited("chosen/policy.json", rule="round >= 5")  # proven, but not what the verdict is of
    assert run("check").returncode == 1
    assert in_pytest().returncode == 1
    assert in_pytest("--suffice-update").returncode == 0
    assert run("check").returncode == 0
    assert "exists already" in run("init", project).stdout


def terms(**changes: Any) -> None:
    stated = {"record": "example", "policy": "chosen/policy.json", "max_loss": 0.05} | changes
    lines = [f"{name} = {json.dumps(value)}" for name, value in stated.items()]
    # with a byte order mark, as some editors write
    Path("suffice.toml").write_text("\n".join(["[[promise]]", *lines]), encoding="utf-8-sig")


def made(**changes: Any) -> None:
    """Change what a policy's file says of its choice."""
    told = json.loads(Path("chosen/policy.json").read_text(encoding="utf-8"))["chosen_on"]
    edited("chosen/policy.json", chosen_on=told | changes)


def unproven_elsewhere() -> None:
    made(loop=[{"model": "another"}])
    edited("chosen/policy.promises.json", promises={})


def grown() -> None:
    some, words = "some.parquet", ("traces", "filter", "example", "--sample")
    assert run(*words, "245", "--out", some).returncode == 0
    terms(record=some)
    assert run("check", "--update").returncode == 0
    Path(some).unlink()
    assert run(*words, "250", "--out", some).returncode == 0


@pytest.mark.parametrize(
    ("change", "code", "says"),
    [
        (lambda: terms(policy="guessed/guess.json"), 1, "guess"),
        (lambda: terms(max_loss=0.01), 1, "proved that it loses at most 5 score points"),
        (unproven_elsewhere, 1, "another loop, they differ in model another"),
        (lambda: edited("chosen/policy.promises.json", promises={}), 1, "suffice.toml --update"),
        (grown, 1, "from 245 to 250 questions"),
        (lambda: edited("chosen/policy.json", suffice_policy=99), 2, "pip install -U suffice"),
        (
            lambda: edited("chosen/policy.promises.json", suffice_promises=9),
            2,
            "promises version 9",
        ),
        (lambda: edited("chosen/policy.json", chosen_on=3), 2, "chosen_on"),
        (lambda: terms(record="gone.parquet"), 2, "gone.parquet"),
        (lambda: terms(max_lose=0.05), 2, "did you mean 'max_loss'"),
        (lambda: terms(metric="bleu"), 2, "metric"),
        (lambda: terms(max_loss="much"), 2, "max_loss"),
        (lambda: terms(record=3), 2, "promise 1"),
        (lambda: Path("suffice.toml").write_text("promise = 3"), 2, "suffice.toml"),
        (lambda: Path("suffice.toml").write_text("promise = []"), 2, "promise 1"),
        (lambda: Path("suffice.toml").unlink(), 2, "suffice init"),
    ],
)
def test_refused(project: Path, change: Callable[[], Any], code: int, says: str) -> None:
    change()
    done = run("check")
    assert done.returncode == code, done.stdout + done.stderr
    assert says in " ".join((done.stdout + done.stderr).split())


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        ("few.parquet --against example", 1, "paired on 30 questions"),
        ("few.parquet --against tune.parquet", 1, "nothing is paired"),
        ("example --against example --policy own.json --max-loss 0.01", 1, "Does not hold that"),
        ("example --against example --policy guessed/guess.json", 2, "no proven promise"),
        ("example --against example --policy guessed/guess.json --max-loss 0.05", 1, "(a guess)"),
        ("example --against example --family fixed", 2, "leave out options that choose"),
    ],
)
def test_a_promise_is_not_carried_to_another_loop(
    project: Path, words: str, code: int, says: str
) -> None:
    for name, split, size in (("tune", "tune", "100"), ("few", "eval", "30")):
        part = ("--split", split, "--sample", size, "--out", f"{name}.parquet")
        run("traces", "filter", "example", *part)
    save_policy(Rule("round >= 1"), "own.json")
    before = Path("chosen/policy.promises.json").read_bytes()
    done = run("choose", *words.split(), "--workers", "1")
    assert done.returncode == code, done.stdout + done.stderr
    assert says in " ".join((done.stdout + done.stderr).split())
    assert Path("chosen/policy.promises.json").read_bytes() == before


def test_a_promise_that_a_changed_loop_proves_is_stored(project: Path) -> None:
    """The identical loop, recorded under other ids, proves it by the path that the choice walked."""
    edited("chosen/policy.promises.json", promises={})
    unstored = run("check")
    assert unstored.returncode == 1
    assert "lost most" not in unstored.stdout  # no loss is the reason
    traces = suffice.read("example")
    renamed = [
        replace(one, question=replace(one.question, id=f"again-{number}"))
        for number, one in enumerate(traces.records())
    ]
    suffice.write(renamed, "again.parquet", run=traces.origin.run)
    words = ("choose", "again.parquet", "--against", "example", "--max-loss", "0.05", "--json")
    found = json.loads(run(*words).stdout)
    assert found["decision"] == "holds"
    assert found["new"]["p_value"] == pytest.approx(found["old"]["p_value"])
    assert found["changes"]["loss"]["estimate"] == 0.0
    terms(record="again.parquet")
    assert run("check").returncode == 0


def test_a_loop_that_knew_its_budget_is_another(project: Path) -> None:
    def told(note: bool) -> tuple[str, Measures]:
        traces, stated = suffice.read("example"), {"pipeline": "react", "budget_note": note}
        return "x", Measures.of(replace(traces, origin=replace(traces.origin, run=stated)))

    with pytest.raises(UsageError, match="budget"):
        carry_promise(told(True), told(False), "chosen", promise_settings(max_loss=0.05))


def test_what_tests_a_policy(project: Path) -> None:
    """New questions prove also a guess; nobody's choice is tested on split eval, with a note."""
    guess = json.loads(Path("guessed/guess.json").read_text(encoding="utf-8"))
    edited("guessed/guess.json", chosen_on=guess["chosen_on"] | {"sample": "1 2 3"})
    asked = promise_settings(max_loss=0.05)
    new = check_promise("example", "guessed/guess.json", asked, renew="x", update=True)
    assert (new.questions, new.reasons) == (250, ())
    own = save_policy(Rule("new_passages < 0.5"), "own.json")
    found = check_promise("example", str(own), asked, renew="x")
    assert found.questions == 150
    assert any("split eval" in note for note in found.notes)


ROOT = Path(__file__).parents[2]


def performed(folder: Path, base: str = "") -> tuple[int, str]:
    """Run the steps of the action as its runner does, without pip; the exit code and the summary."""
    yaml = pytest.importorskip("yaml")
    action = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
    given = {
        "inputs.config": action["inputs"]["config"]["default"],
        "inputs.install || github.action_path": str(ROOT),
        "github.event.pull_request.base.sha": base,
    }
    stubs = f'python() {{ test "$5" = "$INSTALL"; }}; suffice() {{ {" ".join(SUFFICE)} "$@"; }}; '
    summary = folder.with_suffix(".md")
    summary.unlink(missing_ok=True)
    for step in action["runs"]["steps"]:
        if "run" in step and given.get(step.get("if"), "always"):
            env = {name: given[value.strip("${} ")] for name, value in step["env"].items()}
            env |= {**os.environ, "GITHUB_STEP_SUMMARY": str(summary)}
            shell = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", stubs + step["run"]]
            if code := subprocess.run(shell, cwd=folder, env=env, check=False).returncode:
                return code, summary.read_text(encoding="utf-8")
    return 0, summary.read_text(encoding="utf-8")


def test_the_action_shows_what_a_change_does_to_promises_and_fails_it(project: Path) -> None:
    Path("chosen").rename("a|<b>")  # text of others is shown as text
    terms(policy="a|<b>/policy.json")
    commit = ["-c", "user.name=a", "-c", "user.email=a@example.org", "commit", "-q", "-m", "base"]
    for words in (["init", "-q"], ["add", "-A"], commit):
        subprocess.run(["git", *words], check=True)
    base = subprocess.check_output(["git", "rev-parse", "HEAD"], text=True).strip()
    assert performed(project)[0] == 0

    edited("a|<b>/policy.json", rule="round >= 1")
    code, summary = performed(project, base)
    before, now = summary.split("## Promises now")
    assert (code, "| holds" in before, "| fails" in now) == (1, True, True)
    assert r"a\|&lt;b&gt;/policy.json" in now

    edited("a|<b>/policy.json", rule="round >= 5")
    assert run("check", "--update").returncode == 0
    assert performed(project, base)[0] == 0


@pytest.mark.parametrize("package", LOOPS)
def test_the_lines_that_init_writes_name_what_there_is(package: str) -> None:
    lines = ast.parse(check.starter_files(package)["suffice_watch.py"])
    for node in lines.body:
        if isinstance(node, ast.ImportFrom):
            adapter = AGENTS / f"{node.module}.py"
            if adapter.exists():  # an example to copy, whose framework need not be installed
                there = {getattr(one, "name", "") for one in ast.parse(adapter.read_text()).body}
            else:
                there = {*dir(importlib.import_module(str(node.module)))}
            assert {alias.name for alias in node.names} <= there


def test_a_choice_replaces_no_policy_of_another_record(project: Path) -> None:
    kept, options = Path("chosen/policy.json"), ("--signals", "overlap", "--bootstrap", "20")
    grown, other = project / "grown.parquet", project / "other.parquet"
    write_traces([*drawn_records(60, ["Oslo", "Rome", "unknown"], seed=1)], other)

    def chosen(record: str | Path, *to: str) -> subprocess.CompletedProcess[str]:
        before = kept.read_bytes()
        done = run("choose", record, *options, *to)
        assert (kept.read_bytes() == before) == (done.returncode == 2 or bool(to)), done.stderr
        return done

    words = ("traces", "filter", "example", "--sample")
    assert run(*words, "200", "--out", grown).returncode == 0
    assert chosen(grown).returncode == 0  # of the example, which is nobody's own
    assert chosen("example").returncode == 0
    assert chosen(other).returncode == 0
    refused = chosen("example")
    assert refused.returncode == 2
    assert "suffice choose example --out chosen-2" in refused.stderr
    assert chosen("example", "--out", "chosen-2").returncode == 0
    assert "choose example" not in run("init", project).stdout
    edited("chosen/policy.json", remark="mine", rule="round >= 4", kind="rule")
    assert chosen(other).returncode == 2
    kept.write_text("no policy")
    assert chosen(other).returncode == 2


def test_both_halves_of_a_promise_are_tested(tmp_path: Path) -> None:
    """A new loop gains as often as it loses: no points lost, and 20% of the answers turned wrong."""
    settled = [
        make_record(f"q{n:03}", ["Bo"] * (n % 3) + ["Ada"] * (4 - n % 3), gold=["Ada"])
        for n in range(200)
    ]
    turned = {0: ["Bo"] * 3 + ["Ada"], 1: ["Ada"] * 3 + ["Bo"]}
    changed = [
        make_record(f"n{n:04}", turned.get(n % 5, ["Ada"] * 4), gold=["Ada"]) for n in range(1000)
    ]
    places = tmp_path / "old.parquet", tmp_path / "new.parquet"
    for place, records in zip(places, (settled, changed), strict=True):
        write_traces(records, place, run={})
    options = (
        "--metric",
        "em",
        "--cost",
        "rounds",
        "--max-loss",
        "0.05",
        "--max-wrong-stops",
        "0.06",
    )
    assert run("choose", places[0], "--out", tmp_path / "chosen", *options).returncode == 0
    policy = tmp_path / "chosen" / "policy.json"
    carried = run("choose", places[1], "--against", places[0], "--policy", policy)
    assert carried.returncode == 1, carried.stdout
    assert "holds" in carried.stdout
    assert "fails" in carried.stdout


def test_no_path_goes_over_what_a_live_loop_does_not_know(tmp_path: Path) -> None:
    place = tmp_path / "live.db"
    with suffice.Watch(
        Rule(rule="round >= 2"), record=place, mode="live", explore=0.5, max_rounds=4
    ) as watch:
        for number in range(120):
            name = f"q{number}"
            with watch.question(
                f"What is {number}?", question_id=name, gold_answers=["Oslo"]
            ) as loop:
                while not loop.done:
                    loop.observe(answer="Oslo")
    choice = suffice.choose(str(place), metric="em", cost="rounds")
    assert choice.promised is not None
    named = [row.proven.title for row in choice.promised.rows if row.proven is not None]
    assert named
    assert not any("policy_stop" in title for title in named)
