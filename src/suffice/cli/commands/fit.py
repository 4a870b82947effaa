"""``suffice fit``: calibrate or train a policy, or certify one."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Any

from suffice.cli.options import add_json, add_traces, open_measures, out_path
from suffice.cli.output import fit_progress, print_json, print_lines, put, say, waiting
from suffice.cli.parser import Parser
from suffice.cli.settings_options import (
    FieldOption,
    add_settings,
    field_options,
    given_options,
    read_settings,
    said_with,
)
from suffice.errors import InternalError, UsageError, did_you_mean
from suffice.policies.defaults import FIT_SPLIT
from suffice.policies.file import policy_document, policy_hash, save_policy
from suffice.policies.fitting import LABELS, fit_notes
from suffice.policies.method import (
    PRESETS,
    FitRun,
    Fitted,
    Method,
    PlanMethod,
    TellingMethod,
)
from suffice.policies.registry import find_method, method_names, refuse_options
from suffice.protocols import StopPolicy
from suffice.replay.settings import ScoredSettings
from suffice.scoring import metric_of_labels
from suffice.trace.plans.file import read_plans
from suffice.trace.plans.schema import PLANS
from suffice.trace.reader import schema_of

_ABOVE_POLICIES = MappingProxyType({"certified": "suffice.replay.choose.certified:METHOD"})
"""Methods that choose among policies, and so stand above them."""
_FLAGS = ("--json", "--skip-invalid", "--help", "-h")


def add_options(parser: Parser) -> None:
    """Declare the options; a method's own come when it is named."""
    parser.prepare = _prepare
    parser.keeps_unread = True


def names() -> tuple[str, ...]:
    """What can be fitted."""
    return (*sorted(method_names()), *_ABOVE_POLICIES)


def known_methods() -> tuple[Method, ...]:
    """Every method that can be loaded."""
    methods = []
    for name in names():
        with contextlib.suppress(UsageError):  # somebody else's
            method = _method(name)
            methods += [] if method is None else [method]
    return tuple(methods)


def _method(name: str) -> Method | None:
    """The method of a name; ``None``: there is none."""
    if name in _ABOVE_POLICIES:
        module, _, attribute = _ABOVE_POLICIES[name].partition(":")
        method: Method = getattr(import_module(module), attribute)
        return method
    return find_method(name) if name in method_names() else None


def _prepare(parser: Parser, words: Sequence[str]) -> None:
    """The options of every method, and those of the one that these words name."""
    name = _named(words)
    method = None if name is None else _method(name)
    parser.add_argument(
        "method",
        metavar="POLICY" if method is None else method.name,
        choices=names(),
        help="a method, see above",
    )
    if method is not None:
        add_settings(parser, method.settings(method.presets[0]), positional=True)
    add_traces(parser, measured=True)
    parser.add_argument(
        "--out",
        required=True,
        type=out_path(".json", folder=True),
        metavar="PATH",
        help="a .json file, or a directory that gets policy.json",
    )
    presets = PRESETS if method is None else method.presets
    default = "corrected" if "corrected" in presets else presets[0]
    parser.add_argument(
        "--preset",
        choices=sorted(presets),
        default=default,
        help=f"with the paper's defects mended, or as its code ran (default: {default})",
    )
    parser.add_argument(
        "--split",
        default=FIT_SPLIT,
        metavar="S",
        help=f"questions to fit on (default: {FIT_SPLIT})",
    )
    if not isinstance(method, TellingMethod):  # which has it among its own
        add_settings(parser, ScoredSettings, only=("metric",))
    add_json(parser)
    parser.set_defaults(run=run)
    if method is None:
        parser.description = (
            "Calibrates or trains a policy on recorded rounds. Its own options are listed by: suffice fit "
            f"POLICY --help. Methods: {'; '.join(map(_summary, names()))}."
        )
        return
    parser.helped_by = f"{parser.prog} {method.name}"
    parser.description = f"{_sentence(method.summary)} {f'({method.source})' * bool(method.source)}"
    about = _sentence(method.about).replace("%", "%%") if method.about else None
    group = parser.add_argument_group(method.name, about)
    for preset in method.presets:
        add_settings(group, method.settings(preset))
        if isinstance(method, PlanMethod):
            add_settings(group, method.plan_settings(preset))


def _named(words: Sequence[str]) -> str | None:
    """The method among these words: the first that is neither an option nor an option's value."""
    value = False
    for word in words:
        if value:
            value = False
        elif word.startswith("-") and word != "-":
            value = word not in _FLAGS and "=" not in word
        else:
            return word
    return None


def _summary(name: str) -> str:
    try:
        method = _method(name)
    except UsageError as error:  # somebody else's; the others are still to be listed
        return f"{name}: {error}"
    return f"{name}: {'' if method is None else method.summary}"


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


# --- running ---------------------------------------------------------------------------------------
def run(arguments: argparse.Namespace) -> int:
    """Fit and write the policy file."""
    method = _method(arguments.method)
    if method is None:
        raise InternalError(f"argparse let {arguments.method!r} through")
    _refuse_unknown(method, arguments)
    on_plans = isinstance(method, PlanMethod) and schema_of(arguments.traces) is PLANS
    with waiting(f"fitting {method.name}"):
        fitted = _fit_plans(method, arguments) if on_plans else _fit(method, arguments)
    written = save_policy(fitted.policy, arguments.out, max_rounds=fitted.max_rounds)
    document = policy_document(fitted.policy)
    if arguments.json:
        print_json(
            {
                "out": str(written),
                "hash": policy_hash(fitted.policy),
                "policy": document,
                **fitted.document,
            }
        )
    else:
        put(f"wrote {written}")
        for line in fitted.lines:
            text = line.replace("{traces}", str(arguments.traces))
            _print_line(text.replace("{policy}", str(written)))
    for note in fitted.notes:
        say(f"note: {note}")
    return 0


def _print_line(line: str) -> None:
    """What is to be copied in one line, all else in lines that fit, under what it is about."""
    about, _, said = line.partition(" ")
    text = said.lstrip()
    if about in ("rule", "use"):
        put(f"  {line}")
    else:
        lead = f"  {line[: len(line) - len(text)]}"
        print_lines(text, lead=lead, indent=len(lead))


def _fit(method: Method, arguments: argparse.Namespace) -> Fitted:
    """Fit on recorded questions."""
    preset = arguments.preset
    types = {name: method.settings(name) for name in method.presets}
    options = _given(method, arguments)
    for name, option in options.items():
        plans_only = isinstance(method, PlanMethod) and not any(
            name in _options(settings) for settings in types.values()
        )
        if plans_only:
            raise UsageError(
                f"{option.flag} goes with 'fit {method.name}' on plan traces only; leave it out"
            )
    known = {name: list(_options(types[name])) for name in types}
    refuse_options(method.name, preset, options, known)
    settings = read_settings(arguments, types[preset])
    measures = open_measures(arguments, say)
    traces = measures.traces
    out = Path(arguments.out)
    watched = FitRun(
        progress=fit_progress(),
        checkpoint=FitRun.checkpoint_of(out),
        folder=out.parent if out.suffix == ".json" else out,
    )
    if isinstance(method, TellingMethod):
        told = method.fit_told(measures, preset, settings, arguments.split, watched)
        return replace(told, max_rounds=traces.full_budget)
    measures = measures.by(arguments.metric)
    policy = method.fit(measures, preset, settings, arguments.split, watched)
    return Fitted(
        policy=policy,
        max_rounds=traces.full_budget,
        lines=_told(policy, method),
        notes=tuple(measures.notes(arguments.metric)) if LABELS in policy.facts.fitted_on else (),
    )


def _told(policy: StopPolicy, method: Method) -> tuple[str, ...]:
    facts = policy.facts
    lines = [f"rule   {facts.summary}"]
    if len(method.presets) > 1:
        lines.append(
            f"preset {policy.preset}; replay --policy {method.name} fits the {method.presets[0]} one, "
            f"--policy {method.name}-corrected the corrected one"
        )
    if facts.promise:
        lines.append(f"promise  {facts.promise}")
    lines += [f"note   {remark}" for remark in facts.notes]
    if fitted := facts.fitted_on:
        lines.append(
            f"fitted on {fitted['labelled']} labelled questions of split {fitted['split']}"
            if LABELS not in fitted
            else f"fitted on {metric_of_labels(fitted[LABELS]).labels}, on {fitted['labelled']} questions "
            f"of split {fitted['split']}; no gold answer was read"
        )
        lines += [f"cut    {note}" for note in fit_notes(fitted)]
    return (*lines, "use    suffice replay {traces} --policy {policy}")


def _fit_plans(method: Any, arguments: argparse.Namespace) -> Fitted:
    """Fit on recorded runs of planning agents."""
    types = {name: method.plan_settings(name) for name in method.presets}
    unread = [
        option.flag
        for name, option in _given(method, arguments).items()
        if name not in _options(types[arguments.preset])
    ]
    unread += ["--metric"] if arguments.metric is not None else []
    if unread or arguments.split != FIT_SPLIT:
        option = unread[0] if unread else "--split"
        raise UsageError(
            f"{option} has no meaning for a {method.name} on plan traces; leave it out"
        )
    settings = read_settings(arguments, types[arguments.preset])
    plans = read_plans(arguments.traces, skip_invalid=arguments.skip_invalid)
    if plans.skipped:
        say(f"skipped {len(plans.skipped)} invalid parts; the first: {plans.skipped[0]}")
    fitted: Fitted = method.fit_plans(plans, arguments.preset, settings)
    return fitted


# --- options that were given -----------------------------------------------------------------------
def _types(method: Method) -> list[type[Any]]:
    """The settings of every preset, and of plan traces."""
    types = [method.settings(preset) for preset in method.presets]
    if isinstance(method, PlanMethod):
        types += [method.plan_settings(preset) for preset in method.presets]
    return types


def _options(settings: type[Any]) -> dict[str, FieldOption]:
    return {option.dest: option for option in field_options(settings)}


def _given(method: Method, arguments: argparse.Namespace) -> dict[str, FieldOption]:
    """The method's options that were given."""
    return {
        name: _options(settings)[name]
        for settings in _types(method)
        for name in given_options(arguments, settings)
    }


def _refuse_unknown(method: Method, arguments: argparse.Namespace) -> None:
    """Refuse a word that this method would pass over in silence, saying where it belongs."""
    if not arguments.unread:
        return
    words = (word.partition("=")[0] for word in arguments.unread)
    flag = next((word for word in words if word.startswith("--")), None)
    help_named = f"see 'suffice fit {method.name} --help'"
    if flag is None:
        raise UsageError(f"{arguments.unread[0]!r} is one word too many; {help_named}")
    owners: dict[str, str] = {}
    for other in known_methods():
        for settings in () if other.name == method.name else _types(other):
            for option in field_options(settings):
                if option.flag == flag and option.option.goes_with:
                    raise UsageError(f"{flag} goes {said_with(option)}; leave it out")
                if option.flag == flag:
                    on_plans = settings not in map(other.settings, other.presets)
                    owners.setdefault(
                        other.name, f"'fit {other.name}'{' on plan traces' * on_plans}"
                    )
    if not owners:
        own = [option.flag for settings in _types(method) for option in field_options(settings)]
        near = did_you_mean(flag, dict.fromkeys([*own, "--out", "--preset", "--split", *_FLAGS]))
        raise UsageError(f"there is no option {flag}; {help_named}{near}")
    where = " or ".join(owners.values())
    takes = sorted(_options(method.settings(arguments.preset)))
    said = f"takes {', '.join(takes)}" if takes else "takes no options"
    raise UsageError(
        f"{flag} goes with {where} only: the {arguments.preset} preset of {method.name} {said}; leave "
        f"{flag[2:].replace('-', '_')} out; {help_named}"
    )
