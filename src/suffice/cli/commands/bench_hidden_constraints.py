"""``suffice bench hidden-constraints``."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from suffice.bench.hidden_constraints.checker import CHECKER, CheckerJudge
from suffice.bench.hidden_constraints.corpus.generate import generate
from suffice.bench.hidden_constraints.corpus.tasks import DEFAULT_GAP, Benchmark, BenchmarkSettings
from suffice.bench.hidden_constraints.found import (
    HiddenConstraintsStudy,
)
from suffice.bench.hidden_constraints.judge import LLMJudge
from suffice.bench.hidden_constraints.page import hidden_constraints_page
from suffice.bench.hidden_constraints.run_plan import gate_agent
from suffice.bench.hidden_constraints.scripted import ScriptedPlanner
from suffice.bench.hidden_constraints.settings import (
    EXPERIMENTS,
    REGIMES,
    SUBSETS,
    HiddenConstraintsSettings,
)
from suffice.bench.hidden_constraints.study import Experimenters, hidden_constraints_study
from suffice.bench.hidden_constraints.table import hidden_constraints_tables
from suffice.cli.options import add_json, add_model, connect_model, names, natural, number, positive
from suffice.cli.output import INTERRUPTED, ProgressLine, print_json, say
from suffice.errors import UsageError
from suffice.llm.cache import CachedModel
from suffice.llm.connect import connect
from suffice.llm.openai_compatible import OpenAISettings
from suffice.pipelines.models import connect_detector, connect_encoder
from suffice.pipelines.planning.agent import PlanningSettings
from suffice.pipelines.planning.controls import AGENTS
from suffice.pipelines.record.session import Progress
from suffice.policies.file import load_policy
from suffice.policies.gate.policy import GatePolicy
from suffice.policies.gate.settings import MARKERS, GateSettings
from suffice.protocols import ChatModel, Judge
from suffice.trace.durable import replace_file

_ALL = "all"
_SCRIPTED = "scripted"
_WHOLE = "policy.json"  # the main file of a policy that is a folder
_PLANNING = PlanningSettings()


def add_experiment(experiments: Any) -> None:
    """Declare the experiment."""
    parser = experiments.add_parser(
        "hidden-constraints",
        help="planning agents and retrievers on tasks with a constraint that only documents tell",
        description="Runs planning agents with every retriever on generated cloud tasks, each with one "
        "constraint that 1 to 3 documents of the corpus carry, and judges the plans: semantic and proxy "
        "success, documents read, coverage, recall, what retrieval allows and what control saves, "
        "ablations and thresholds of the gate, and paired differences. With --out it can be gone on with: "
        "run the same again, perhaps with more agents, retrievers, seeds or experiments.",
    )
    _add_what(parser)
    _add_benchmark(parser)
    _add_planning(parser)
    _add_judging(parser)
    add_model(parser)
    parser.add_argument(
        "--out",
        metavar="DIR",
        help="write hidden_constraints.json, hidden_constraints.html (a page with the figures), the "
        "benchmark (tasks.jsonl, documents.jsonl) and every plan (DIR/plans); without it nothing is kept "
        "and an interrupted experiment starts anew",
    )
    add_json(parser)
    parser.set_defaults(run=_run)


def _add_what(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--agents",
        type=names,
        default=(_ALL,),
        metavar="A,B,...",
        help=f"of {', '.join(AGENTS)} (default: all)",
    )
    parser.add_argument(
        "--retrievers",
        type=names,
        default=HiddenConstraintsSettings().retrievers,
        metavar="A,B,...",
        help=f"of {', '.join(REGIMES)}; dense-30 gives 30 documents, the others 6 (default: "
        f"{','.join(HiddenConstraintsSettings().retrievers)})",
    )
    parser.add_argument(
        "--encoder",
        default="minilm",
        metavar="E",
        help="of the dense and hybrid retrievers, as in 'suffice record' (default: minilm)",
    )
    parser.add_argument("--encoder-model", metavar="M", help="the embedding server's model name")
    parser.add_argument(
        "--gate",
        action="append",
        default=[],
        metavar="FILE",
        help="a gate's policy file, as 'suffice fit gate' writes it, for one more agent named after the "
        "file and a hash of its numbers; may be given several times",
    )
    parser.add_argument(
        "--experiments",
        type=names,
        default=EXPERIMENTS,
        metavar="A,B,...",
        help=f"of {', '.join(EXPERIMENTS)}; ablations and sweep run the published gate with the first "
        "retriever in the first seed (default: all)",
    )
    parser.add_argument(
        "--seeds", type=positive, default=3, metavar="N", help="how often all is drawn (default: 3)"
    )
    parser.add_argument(
        "--seed",
        type=natural,
        default=42,
        help="of the first draws, each next one's is 1 more, and of the resampling (default: 42)",
    )
    parser.add_argument(
        "--bootstrap", type=positive, default=1000, metavar="N", help="resamples (default: 1000)"
    )


def _add_benchmark(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("benchmark")
    group.add_argument(
        "--subset", choices=SUBSETS, default="hard", help="which tasks (default: hard, all of them)"
    )
    group.add_argument(
        "--limit",
        type=positive,
        metavar="N",
        help="only the first N tasks of the subset (default: all)",
    )
    group.add_argument(
        "--benchmark-seed",
        type=natural,
        default=42,
        metavar="S",
        help="of tasks and documents (default: 42)",
    )
    group.add_argument(
        "--gap",
        type=number,
        default=DEFAULT_GAP,
        metavar="G",
        help="how far the documents that matter are from their task in words, in [0, 1] (default: "
        f"{DEFAULT_GAP:g})",
    )


def _add_planning(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("planning")
    group.add_argument(
        "--candidates",
        type=positive,
        default=_PLANNING.candidates,
        metavar="K",
        help=f"next steps drawn for a decision (default: {_PLANNING.candidates})",
    )
    group.add_argument(
        "--temperature",
        type=number,
        default=_PLANNING.temperature,
        metavar="T",
        help=f"at which they are drawn (default: {_PLANNING.temperature:g})",
    )
    group.add_argument(
        "--max-plan-tokens",
        type=positive,
        default=_PLANNING.max_plan_tokens,
        metavar="N",
        help=f"of the final plan's JSON (default: {_PLANNING.max_plan_tokens})",
    )
    group.add_argument(
        "--no-json-schema",
        action="store_true",
        help="do not ask the server to hold the final plan to its schema",
    )
    group.add_argument(
        "--detector",
        default=MARKERS,
        metavar="NAME_OR_PATH",
        help="what finds contradictions: markers (the published words, the default), learned (a small head "
        "on MiniLM), a head's .safetensors file, or an entailment cross-encoder by folder or name",
    )


def _add_judging(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("judge")
    group.add_argument(
        "--judge",
        metavar="URL",
        help="a server's base URL, 'embedded', or 'checker' (words of the requirement in the plan, no "
        "model); default: the planning model, of 'scripted' the checker",
    )
    group.add_argument(
        "--judge-model", metavar="M", help="that server's model name, or a GGUF file for 'embedded'"
    )


# --- running --------------------------------------------------------------------------------------
def _run(arguments: argparse.Namespace) -> int:
    settings = _settings(arguments)
    _check_judge(arguments)
    made = generate(settings.benchmark)
    who = _experimenters(arguments, settings, made)
    if arguments.out is None:
        say("without --out nothing is kept: if this is interrupted, it starts anew")
    line = ProgressLine("runs finished")

    def progress(now: Progress) -> None:
        line.show(now.finished, now.planned, failed=now.failed)

    study = hidden_constraints_study(who, settings, progress, benchmark=made)
    if study is None:
        kept = "run the same command again to go on"
        say(f"interrupted; {kept if arguments.out is not None else 'nothing was kept'}")
        return INTERRUPTED
    return _show(study, arguments)


def _settings(arguments: argparse.Namespace) -> HiddenConstraintsSettings:
    return HiddenConstraintsSettings(
        benchmark=BenchmarkSettings(seed=arguments.benchmark_seed, gap=arguments.gap),
        subset=arguments.subset,
        limit=arguments.limit,
        agents=tuple(AGENTS) if arguments.agents == (_ALL,) else arguments.agents,
        retrievers=arguments.retrievers,
        seeds=arguments.seeds,
        seed=arguments.seed,
        experiments=arguments.experiments,
        gates=_gates(arguments.gate),
        encoder=arguments.encoder,
        detector=arguments.detector,
        planning=PlanningSettings(
            candidates=arguments.candidates,
            temperature=arguments.temperature,
            max_plan_tokens=arguments.max_plan_tokens,
            json_schema=not arguments.no_json_schema,
        ),
        resamples=arguments.bootstrap,
        folder=None if arguments.out is None else Path(arguments.out),
    )


def _gates(paths: Sequence[str]) -> dict[str, GateSettings]:
    """Gates by the name of their file, or of their folder, with a hash of their numbers."""
    found: dict[str, GateSettings] = {}
    for path in paths:
        policy = load_policy(path).policy
        if not isinstance(policy, GatePolicy):
            raise UsageError(
                f"--gate {path} holds a policy of kind {policy.kind!r}, and a gate is wanted; fit one with "
                "'suffice fit gate PLANS --out gate.json'"
            )
        place = Path(path)
        stem = place.resolve().parent.name if place.name == _WHOLE else place.stem
        found[gate_agent(stem, policy.settings)] = policy.settings
    return found


def _check_judge(arguments: argparse.Namespace) -> None:
    """Refuse, before anything is loaded, options that do not go together."""
    if arguments.judge_model is not None and arguments.judge in (None, CHECKER):
        raise UsageError("--judge-model goes with --judge URL or --judge embedded")


def _experimenters(
    arguments: argparse.Namespace, settings: HiddenConstraintsSettings, made: Benchmark
) -> Experimenters:
    model = _planner(arguments, made)
    judge, judge_name = _judge(arguments, model, made)
    dense = any(REGIMES[each].retriever in ("dense", "hybrid") for each in settings.retrievers)
    return Experimenters(
        model=model,
        judge=judge,
        judge_name=judge_name,
        encoder=connect_encoder(arguments.encoder, arguments.encoder_model) if dense else None,
        detector=None if arguments.detector == MARKERS else connect_detector(arguments.detector),
    )


def _planner(arguments: argparse.Namespace, made: Benchmark) -> ChatModel:
    """The model that plans; the scripted one knows this benchmark."""
    if arguments.llm != _SCRIPTED:
        return connect_model(arguments)
    scripted = ScriptedPlanner(made)
    return scripted if arguments.cache is None else CachedModel(scripted, arguments.cache)


def _judge(arguments: argparse.Namespace, model: ChatModel, made: Benchmark) -> tuple[Judge, str]:
    """Who judges, and what a recording calls it."""
    named = arguments.judge
    if named == CHECKER or (named is None and arguments.llm == _SCRIPTED):
        return CheckerJudge.of(each.constraint for each in made.tasks), CHECKER
    if named is not None:
        server = OpenAISettings(
            api=arguments.api, timeout_s=arguments.timeout, concurrency=arguments.concurrency
        )
        model = connect(named, arguments.judge_model, server=server, cache=arguments.cache)
    judge = LLMJudge(model)
    return judge, judge.name


# --- results --------------------------------------------------------------------------------------
def _show(study: HiddenConstraintsStudy, arguments: argparse.Namespace) -> int:
    """Print and write what was found; the exit code."""
    if arguments.json:
        print_json(study.to_json())
        for note in study.notes:
            say(note)
    else:
        print(hidden_constraints_tables(study))
    if arguments.out is not None:
        _write(study, Path(arguments.out))
    failed = any(each.failed for each in (*study.cells, *(one.cell for one in study.variants)))
    if failed and arguments.out is not None:
        say(f"some runs failed, see {Path(arguments.out) / 'plans'}; run again to retry them")
    elif failed:
        say("some runs failed; with --out their reasons are kept, and running again retries them")
    return 1 if failed else 0


def _write(study: HiddenConstraintsStudy, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    document = json.dumps(study.to_json(), allow_nan=False, ensure_ascii=False, indent=1)
    written = [folder / f"hidden_constraints.{ending}" for ending in ("json", "html")]
    replace_file(written[0], f"{document}\n".encode())
    replace_file(written[1], hidden_constraints_page(study).encode())
    say(f"wrote {written[0]} and {written[1]}; the plans are in {folder / 'plans'}")
