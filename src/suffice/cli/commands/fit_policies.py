"""``suffice fit`` and ``policies``: calibrate or train a policy, and list all of them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Annotated, Any

from cyclopts import App, Parameter

from suffice.cli.output import (
    Form,
    fit_progress,
    print_json,
    print_lines,
    print_result,
    put,
    say,
    waiting,
)
from suffice.cli.parser import Command, FieldOption, Given, command, field_options, make_app
from suffice.cli.shared_options import Json, Measuring, Traces, out_path, policy_entry
from suffice.contracts import StopPolicy
from suffice.errors import UsageError, counted
from suffice.evaluation.settings import ScoredSettings
from suffice.options import Option
from suffice.policies.defaults import FIT_SPLIT
from suffice.policies.fitting import LABELS, fit_notes
from suffice.policies.method import FitRun, Fitted, Method, PlanMethod
from suffice.policies.policy_file import save_policy
from suffice.policies.registry import (
    find_method,
    fit_method,
    method_names,
    nameable_methods,
    refuse_options,
)
from suffice.results.table import Column, Table
from suffice.scoring import metric_of_labels
from suffice.trace.plan_traces import PLANS, read_plans
from suffice.trace.stored_file import schema_of

NAMES = tuple(sorted(method_names()))
_PATH = Option(
    metavar="PATH",
    parse=out_path(".json", folder=True),
    help="a .json file, or a directory that gets policy.json",
)

fit: App = make_app(
    "fit",
    "Calibrate or train a policy on recorded rounds. 'suffice fit POLICY --help' lists its options.",
)
for _name in NAMES:
    fit.command(f"{__name__}:{_name}", name=_name)


def __getattr__(name: str) -> Command:
    """Return the command that fits a method."""
    try:
        method = find_method(name) if name in NAMES else None
    except UsageError as error:  # somebody else's; the others are still to be listed
        said = error

        def broken(*_: Annotated[str, Parameter(allow_leading_hyphen=True)]) -> int:
            raise said

        broken.__doc__ = str(said)
        return broken
    if method is None:
        raise AttributeError(name)
    return _command(method)


def _command(method: Method) -> Command:
    default = "corrected" if "corrected" in method.presets else method.presets[0]
    presets = Option(
        choices=tuple(sorted(method.presets)),
        help="corrected: our corrected version. published: as in the paper.",
    )
    types = [method.settings(preset) for preset in method.presets]
    if isinstance(method, PlanMethod):
        types += [method.plan_settings(preset) for preset in method.presets]
    own = [option for kind in types for option in field_options(kind, group=method.name)]

    @command(
        FieldOption("preset", str, default, presets),
        *(option for option in field_options(ScoredSettings) if option.field == "metric"),
        *own,
    )
    def run(
        traces: Traces,
        *,
        given: Given,
        out: Annotated[str, _PATH],
        split: Annotated[str, Option(metavar="S", help="questions to fit on")] = FIT_SPLIT,
        reading: Measuring,
        json: Json = False,
    ) -> None:
        preset = given.get("preset", default)
        stated = {option.dest: option.flag for option in own if option.dest in given}
        with waiting(f"fitting {method.name}"):
            if isinstance(method, PlanMethod) and schema_of(traces) is PLANS:
                fitted = _fit_plans(method, preset, given, stated, traces, reading)
            else:
                fitted = _fit(method, preset, split, given, stated, traces, reading)
        written = save_policy(fitted.policy, out, max_rounds=fitted.max_rounds)
        if json:
            print_json(policy_entry(written, fitted.policy))
        else:
            put(f"wrote {written}")
            for line in fitted.lines:
                _print_line(line.replace("{traces}", traces).replace("{policy}", str(written)))
        for note in fitted.notes:
            say(f"note: {note}")

    summary = f"{method.summary[:1].upper()}{method.summary[1:]}."
    about = f"{method.about[:1].upper()}{method.about[1:]}." if method.about else ""
    run.__doc__ = "\n\n".join(filter(None, (summary, method.source, about)))
    return run


def _print_line(line: str) -> None:
    about, _, said = line.partition(" ")
    text = said.lstrip()
    if about in ("rule", "use"):
        put(f"  {line}")
    else:
        lead = f"  {line[: len(line) - len(text)]}"
        print_lines(text, lead=lead, indent=len(lead))


def _fit(
    method: Method,
    preset: Any,
    split: str,
    given: Given,
    stated: Mapping[str, str],
    traces: str,
    reading: Measuring,
) -> Fitted:
    types = {name: method.settings(name) for name in method.presets}
    known = {name: [option.dest for option in field_options(types[name])] for name in types}
    for dest in stated.keys() - {dest for dests in known.values() for dest in dests}:
        alone = f"goes with 'fit {method.name}' on plan traces only"
        raise UsageError(f"{stated[dest]} {alone}; leave it out")
    refuse_options(method.name, preset, [*stated], known)
    settings = given.settings(types[preset])
    measures = reading.measures(traces)
    budget = measures.traces.full_budget
    metric = given.get("metric")
    measures = measures.by(metric)
    run, options = FitRun(progress=fit_progress()), fields(settings)
    stated_or_usual = {option.name: getattr(settings, option.name) for option in options}
    policy = fit_method(method.name, measures, preset, split, run=run, **stated_or_usual)
    return Fitted(
        policy=policy,
        max_rounds=budget,
        lines=_told(policy, method),
        notes=tuple(measures.notes(metric)) if LABELS in policy.facts.fitted_on else (),
    )


def _told(policy: StopPolicy, method: Method) -> tuple[str, ...]:
    facts = policy.facts
    lines = [f"rule   {facts.summary}"]
    if len(method.presets) > 1:
        lines.append(
            f"preset {policy.preset}; --policy {method.name} in replay fits the {method.presets[0]} one, "
            f"--policy {method.name}-corrected the corrected one"
        )
    if facts.promise:
        lines.append(f"promise  {facts.promise}")
    lines += [f"note   {remark}" for remark in facts.notes]
    fitted = facts.fitted_on
    if {"labelled", "split"} <= fitted.keys():  # another package's method may say less
        lines.append(
            f"fitted on {counted(fitted['labelled'], 'labeled question')} of split {fitted['split']}"
            if LABELS not in fitted
            else f"fitted on {metric_of_labels(fitted[LABELS]).labels}, on "
            f"{counted(fitted['labelled'], 'question')} of split {fitted['split']}; no gold answer was read"
        )
        lines += [f"cut    {note}" for note in fit_notes(fitted)]
    return (*lines, "use    suffice replay {traces} --policy {policy}")


def _fit_plans(
    method: Any,
    preset: Any,
    given: Given,
    stated: Mapping[str, str],
    traces: str,
    reading: Measuring,
) -> Fitted:
    settings = method.plan_settings(preset)
    read = {option.dest for option in field_options(settings)}
    unread = [flag for dest, flag in stated.items() if dest not in read]
    unread += [f"--{name}" for name in ("metric", "split") if name in given]
    if unread:
        raise UsageError(
            f"{unread[0]} has no effect on a {method.name} on plan traces; leave it out"
        )
    plans = read_plans(traces, skip_invalid=reading.skip_invalid)
    if plans.skipped:
        say(f"skipped {len(plans.skipped)} invalid parts; the first: {plans.skipped[0]}")
    fitted: Fitted = method.fit_plans(plans, preset, given.settings(settings))
    return fitted


_REFERENCES = (
    ("fixed-K", "always K rounds", "replay, ask"),
    ("oracle-em", "stops at the first exact match; knows the gold answers", "replay"),
    ("oracle-f1", "stops at the first answer of the best F1; knows the gold answers", "replay"),
    ("oracle-score", "stops at the first answer of the best score of its own", "replay"),
    ("closed-book", "the model's answer without passages, recorded as round 0", "replay"),
    ("certified", "the cheapest policy with a proven bound on its loss", "choose"),
)
_NOTES = (
    "Every command takes a policy file; 'named in' lists the commands that also take the name. NAME is "
    "as in the paper and fitted on the spot. NAME-corrected is our corrected version, which 'suffice fit "
    "NAME' writes by default.",
    "Give your own rule as text with --stop-when; 'suffice fit rule' writes it as a file. 'suffice fit "
    "NAME --help' lists a method's options, 'suffice signals --list' the signals.",
)
_COLUMNS = (
    Column(name="policy"),
    Column(name="meaning", head="what it does"),
    Column(name="used", head="named in"),
    Column(name="presets", drop=2),
    Column(name="fitted_on", head="fitted on", drop=1),
    Column(name="source", drop=3),
)


@command()
def policies(form: Form) -> None:
    """List every policy: what it does, which commands take its name, its presets and its splits."""
    table = Table(name="policies", columns=_COLUMNS, rows=list(_rows()), notes=_NOTES)
    print_result(form, [table], lambda: {"policies": table.to_arrow().to_pylist()})


def _rows() -> Iterator[list[Any]]:
    for name, meaning, used in _REFERENCES:
        yield [name, meaning, used, "", "", ""]
    for name in NAMES:
        with contextlib.suppress(UsageError):  # another package's, of which it was warned
            if (method := find_method(name)) is not None:
                yield _row(method)


def _row(method: Method) -> list[Any]:
    used = [
        "fit",
        *["replay"] * (method.name in nameable_methods()),
        *["ask"] * bool(method.unfitted),
    ]
    presets = ", ".join(method.presets) if len(method.presets) > 1 else ""
    splits = " or ".join(" and ".join(sorted(splits)) for splits in method.reads)
    fitted = splits if method.fitted else ""
    return [method.name, method.summary, ", ".join(used), presets, fitted, method.source]
