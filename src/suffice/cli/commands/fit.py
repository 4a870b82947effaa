"""``suffice fit``: calibrate or train a policy, or certify one."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from suffice.cli.fit_options import (
    add_ab_rag,
    add_certified,
    add_gate,
    add_micp,
    add_stop_rag,
)
from suffice.cli.options import (
    add_calibrator,
    add_costs,
    add_json,
    add_traces,
    cost_model,
    natural,
    open_traces,
)
from suffice.cli.output import ProgressLine, print_json, say
from suffice.errors import UsageError
from suffice.policies.defaults import FIT_SPLIT
from suffice.policies.file import policy_document, policy_hash, save_policy
from suffice.policies.gate.fit import fit_gate, gate_costs
from suffice.policies.gate.policy import GatePolicy
from suffice.policies.gate.settings import GateSettings
from suffice.policies.registry import (
    GATE_OPTIONS,
    METHODS,
    MICP_OPTIONS,
    STOP_RAG_OPTIONS,
    fit_method,
)
from suffice.policies.stop_rag.fit import TrainingRun, checkpoint_of
from suffice.policies.stop_rag.training import Progress
from suffice.replay.choose.certified import CertifySettings
from suffice.replay.choose.certified_fit import CertifiedPolicy, CertifiedSettings, fit_certified
from suffice.replay.choose.families import FamilySettings
from suffice.trace.plans.file import read_plans
from suffice.trace.plans.rows import PLANS
from suffice.trace.rounds.reader import schema_of
from suffice.trace.rounds.table import TraceSet

_CERTIFIED = "certified"
_GATE = "gate"
_METHOD_OPTIONS = (
    "calibrator",
    "certainty",
    "support",
    "threshold",
    *sorted((GATE_OPTIONS | MICP_OPTIONS | STOP_RAG_OPTIONS) - {"seed"}),
)
_PLAN_OPTIONS = ("ask_cost", "stop_cost", "detector")
_ON_PLANS = f"with 'fit {_GATE}' on plan traces only"
_ANY_CERTIFIED = f"with 'fit {_CERTIFIED}' only"
_GOES_WITH = MappingProxyType(
    {
        **dict.fromkeys(("preset", *_METHOD_OPTIONS), f"with every method but {_CERTIFIED}"),
        **dict.fromkeys(
            ("family", "max_loss", "confidence", "metric", "loss", "correction"), _ANY_CERTIFIED
        ),
        **dict.fromkeys(_PLAN_OPTIONS, _ON_PLANS),
        **dict.fromkeys(("rule", "grid"), "with --family thresholds only"),
        **dict.fromkeys(("signals", "levels", "max_signals"), "with --family rule only"),
    }
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare what the command takes."""
    listed = "; ".join(f"{name}: {method.summary}" for name, method in METHODS.items())
    parser.description = (
        f"Calibrates or trains a policy on recorded rounds. Methods: {listed}; {_CERTIFIED}: "
        "the cheapest policy of a family whose loss against the full budget is proven small."
    )
    parser.add_argument(
        "method",
        metavar="POLICY",
        choices=(*sorted(METHODS), _CERTIFIED),
        help="a method, see above",
    )
    add_traces(parser)
    parser.add_argument(
        "--out",
        required=True,
        metavar="PATH",
        help="a .json file, or a directory that gets policy.json",
    )
    parser.add_argument(
        "--preset",
        choices=("corrected", "published"),
        default="corrected",
        help="with the paper's defects mended, or as its code ran (default: corrected)",
    )
    parser.add_argument(
        "--split",
        default=FIT_SPLIT,
        metavar="S",
        help=f"questions to fit on (default: {FIT_SPLIT})",
    )
    add_calibrator(parser, ", for the corrected presets")
    add_ab_rag(parser)
    add_micp(parser)
    add_stop_rag(parser)
    add_gate(parser)
    add_certified(parser)
    parser.add_argument(
        "--seed",
        type=natural,
        default=42,
        help="of certified's halves, of micp's division and lots, and of stop-rag's division and training "
        "(default: 42)",
    )
    add_costs(parser)
    add_json(parser)
    parser.set_defaults(run=run)
    parser.set_defaults(unset={each: parser.get_default(each) for each in _GOES_WITH})


def run(arguments: argparse.Namespace) -> int:
    """Fit and write the policy file."""
    on_plans = arguments.method == _GATE and schema_of(arguments.traces) is PLANS
    _refuse_unread(arguments, on_plans=on_plans)
    if on_plans:
        return _plan_gate(arguments)
    traces = open_traces(arguments, say)
    if arguments.method == _CERTIFIED:
        return _certified(traces, arguments)
    asked = _asked(arguments, _METHOD_OPTIONS)
    if "seed" in METHODS[arguments.method].options[arguments.preset]:
        asked["seed"] = arguments.seed
    policy = fit_method(
        arguments.method,
        traces,
        arguments.preset,
        arguments.split,
        run=_watched(arguments),
        **asked,
    )
    most = min(traces.n_rounds, policy.facts.max_rounds or traces.n_rounds)
    written = save_policy(policy, arguments.out, max_rounds=most)
    document = policy_document(policy)
    if arguments.json:
        print_json({"out": str(written), "hash": policy_hash(policy), "policy": document})
    else:
        print(f"wrote {written}")
        print(f"  rule   {policy.facts.summary}")
        if promise := policy.facts.promise:
            print(f"  promise  {promise}")
        for remark in policy.facts.notes:
            print(f"  note   {remark}")
        if fitted := document.get("fitted_on"):
            print(f"  fitted on {fitted['labelled']} labelled questions of split {fitted['split']}")
        print(f"  use    suffice replay {arguments.traces} --policy {written}")
    return 0


def _asked(arguments: argparse.Namespace, names: Sequence[str]) -> dict[str, Any]:
    """The options given; one at its default was not asked for."""
    return {
        name: value
        for name in names
        if (value := getattr(arguments, name)) != arguments.unset[name]
    }


def _plan_gate(arguments: argparse.Namespace) -> int:
    """Fit a planning agent's gate and write its policy file."""
    given = _asked(arguments, (*_METHOD_OPTIONS, *_PLAN_OPTIONS))
    detector = {name: given.pop(name) for name in ("detector",) if name in given}
    unread = sorted(set(given) - GATE_OPTIONS - set(_PLAN_OPTIONS))
    if unread or arguments.split != FIT_SPLIT:
        option = f"--{unread[0].replace('_', '-')}" if unread else "--split"
        raise UsageError(f"{option} has no meaning for a gate on plan traces; leave it out")
    plans = read_plans(arguments.traces, skip_invalid=arguments.skip_invalid)
    if plans.skipped:
        say(f"skipped {len(plans.skipped)} invalid parts; the first: {plans.skipped[0]}")
    if arguments.preset == "published":
        costs = {"costs": gate_costs(**given)} if given else {}
        settings = GateSettings.published(**costs, **detector)
    else:
        settings = fit_gate(plans, gate_costs(**given), **detector)
    policy = GatePolicy(settings=settings)
    written = save_policy(policy, arguments.out)
    if arguments.json:
        document = policy_document(policy)
        print_json({"out": str(written), "hash": policy_hash(policy), "policy": document})
        return 0
    print(f"wrote {written}")
    print(f"  gate   {settings.summary}")
    for each in settings.unreachable:
        print(f"  note   {each}")
    if fitted := settings.fitted_on:
        print(f"  fitted on {fitted['fitted_steps']} steps of {fitted['labelled']} judged runs")
    print(f"  use    Gate(load_policy({str(written)!r}).policy.settings), in a planning agent")
    return 0


def _watched(arguments: argparse.Namespace) -> TrainingRun:
    """Progress on stderr, and checkpoints where the policy goes."""
    lines = {"read": ProgressLine("read texts"), "train": ProgressLine("trained steps")}

    def progress(now: Progress) -> None:
        lines[now.stage].show(now.done, now.total)
        if now.evaluation is not None:
            choice = now.evaluation.choice
            say(
                f"step {now.done}: validation reward {choice.score:.3f} in {choice.mean_rounds:.2f} rounds, "
                f"loss {now.evaluation.loss:.4f}"
            )

    return TrainingRun(progress=progress, checkpoint=checkpoint_of(Path(arguments.out)))


def _refuse_unread(arguments: argparse.Namespace, *, on_plans: bool) -> None:
    """Refuse an option that this method or family would pass over in silence."""
    certified = arguments.method == _CERTIFIED
    family = arguments.family if certified else None
    read = {
        f"with every method but {_CERTIFIED}": not certified,
        _ANY_CERTIFIED: certified,
        _ON_PLANS: on_plans,
        "with --family thresholds only": family == "thresholds",
        "with --family rule only": family == "rule",
    }
    for name, goes_with in _GOES_WITH.items():
        if getattr(arguments, name) != arguments.unset[name] and not read[goes_with]:
            option = f"--{name.replace('_', '-')}"
            raise UsageError(f"{option} goes {goes_with}; leave it out")


def _certified(traces: TraceSet, arguments: argparse.Namespace) -> int:
    found = fit_certified(traces, _certified_settings(arguments))
    written = save_policy(found.policy, arguments.out, max_rounds=traces.n_rounds)
    if arguments.json:
        document = policy_document(found.policy)
        print_json(
            {
                "out": str(written),
                "hash": policy_hash(found.policy),
                "policy": document,
                **found.to_json(),
            }
        )
    else:
        _print_certified(found, str(written), arguments)
    for note in found.notes:
        say(f"note: {note}")
    return 0


def _print_certified(found: CertifiedPolicy, written: str, arguments: argparse.Namespace) -> None:
    promise = found.policy.guarantee
    print(f"wrote {written}")
    print(f"  rule     {found.policy.rule}")
    print(f"  result   {promise['reason']}")
    if promise["fell_back"]:
        print("           so the policy takes the full budget")
    else:
        print(
            f"  promise  expected {promise['loss']} loss in {promise['metric']} of at most "
            f"{promise['max_loss']:g} with probability {promise['confidence']:g}; measured "
            f"{promise['loss_on_testing_half']:+.4f} on the half that proves, p = {promise['p_value']:.2g}"
        )
    print(
        f"  cost     {promise['mean_cost']:.4g} {found.cost.label} a question, "
        f"{promise['full_budget_cost']:.4g} at the full budget"
    )
    print(
        f"  family   {promise['family']}: {promise['members']} members, {promise['tested']} tested "
        f"({promise['correction']}), {promise['certified']} certified; halves of "
        f"{promise['questions']['learn']} and {promise['questions']['test']} questions"
    )
    print("  holds    for questions drawn like these, with this model, prompt and retriever")
    print(f"  use      suffice replay {arguments.traces} --policy {written}")


def _certified_settings(arguments: argparse.Namespace) -> CertifiedSettings:
    return CertifiedSettings(
        promise=CertifySettings(
            max_loss=arguments.max_loss,
            confidence=arguments.confidence,
            loss=arguments.loss,
            correction=arguments.correction,
        ),
        family=FamilySettings(
            family=arguments.family,
            rule=arguments.rule,
            thresholds=arguments.grid,
            signals=arguments.signals,
            levels=arguments.levels,
            max_signals=arguments.max_signals,
        ),
        metric=arguments.metric,
        split=arguments.split,
        cost=arguments.cost,
        cost_model=cost_model(arguments),
        f1_kind=arguments.f1,
        seed=arguments.seed,
    )
