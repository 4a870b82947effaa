"""A promise in a project's tests: does the stored record still prove it of this very policy?"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from suffice.contracts import strict_json
from suffice.costs.usage import COSTS
from suffice.errors import DataError, SufficeError, UsageError, counted, read_plain, unknown_name
from suffice.evaluation.choose import candidates as choosing
from suffice.evaluation.choose.bounds import LOSES, Promise, allowed_in_words, bound_in_words
from suffice.evaluation.choose.candidates import Candidate, Kept
from suffice.evaluation.choose.proof import OwnPath, PathTests, paths_of, walk_again
from suffice.evaluation.replay.loop_comparison import LoopComparison, compare_loops, shared_rows
from suffice.evaluation.replay.named_policies import NamedPolicy
from suffice.evaluation.settings import USUAL_LOSS, ChoiceSettings, ScoredSettings
from suffice.foreign import named_place, read_toml
from suffice.measures.measures import Measures
from suffice.measures.scores import refuse_code
from suffice.options import as_share
from suffice.policies.defaults import EVAL_SPLIT
from suffice.policies.policy_file import PolicyFile, check_version, load_policy, policy_hash
from suffice.policies.rules.policy import Rule, coin_sides
from suffice.results.as_json import as_json
from suffice.results.formats import bracket, estimated, percent, points
from suffice.results.table import Column, Described, Table, table_of
from suffice.results.tabular import Tabular
from suffice.scoring import METRICS
from suffice.signals.signal_table import refuse_lacking
from suffice.stats.fields import Fields, whole
from suffice.stats.intervals import Interval, mean_interval, resampled_means
from suffice.stats.units import Array, equally_many, per_unit
from suffice.trace.durable import replace_file
from suffice.trace.engines import Address, as_place, named_address
from suffice.trace.rounds.trace_set import differences, in_words, loops_of, unit_keys
from suffice.trace.stored_file import EXAMPLE

_VERSION, _MOST_LOST = 1, 10
_PARTS: dict[str, type] = {"tune_split": str, "split": str, "seed": int}
_TERMS = ("max_loss", "confidence", "loss", "metric", "cost")
_COLUMNS: tuple[Described, ...] = (
    ("name", Column(name="promise", most=60)),
    ("saved", Column(name="saved", kind="percent", head="saved\n%")),
    ("loss", Column(name="loss", kind="points", interval=True, head="points lost\n[95%]")),
    ("max_loss", Column(name="max_loss", kind="percent", head="allowed")),
    ("p_value", Column(name="p_value", kind="p_value", head="p-value")),
    (lambda one: "fails" if one.reasons else "holds", Column(name="verdict")),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """A promise, tested again.

    ``saved`` is the saved share of the full budget's ``cost`` (``None``: that is 0), ``loss`` the mean loss
    on ``questions`` with its 95% interval, a fraction of the score. ``p_value`` is that of "the mean loss is
    above ``max_loss``". ``reasons`` say why the check fails (empty: it passes), ``notes`` what to know.
    """

    name: str
    max_loss: float
    confidence: float
    metric: str
    cost: str
    questions: int
    saved: float | None
    loss: Interval
    p_value: float
    reasons: tuple[str, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Checks(Tabular):
    promises: tuple[Checked, ...]

    def tables(self) -> tuple[Table, ...]:
        """Return a row for each promise, and why some fail."""
        notes = [f"{one.name}: {said}" for one in self.promises for said in one.reasons + one.notes]
        return (table_of("promises", self.promises, _COLUMNS, notes=notes),)


def promise_settings(**stated: Any) -> ChoiceSettings:
    """Return the terms of a promise: max_loss, confidence, loss, metric and cost; refuse wrong ones."""
    terms = {"max_loss": USUAL_LOSS, "confidence": 0.95, **stated}
    allowed: dict[str, list[Any]] = {"metric": [None, *METRICS], "cost": [None, *COSTS]}
    for name, value in terms.items():
        if name not in _TERMS:
            raise UsageError(unknown_name("key", name, _TERMS))
        if value not in allowed.get(name, [value]):
            raise UsageError(unknown_name(name, value, map(str, allowed[name][1:])))
    shares = {what: as_share(terms[what], what) for what in ("max_loss", "confidence")}
    return ChoiceSettings(**{**terms, **shares})


def read_promises(file: Path) -> Iterator[tuple[str, str, ChoiceSettings]]:
    """Yield record, policy file and terms of every ``[[promise]]``; paths stay below the repository."""
    try:
        promises = [dict(one) for one in read_toml(file)["promise"]] or [{}]
    except FileNotFoundError:
        raise DataError("no such file; to write one, type: suffice init", file=str(file)) from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"no TOML with [[promise]]: {error}", file=str(file)) from error
    for number, stated in enumerate(promises, start=1):
        try:
            record, policy = (stated.pop(name) for name in ("record", "policy"))
            yield _named(file, record), named_place(file, policy), promise_settings(**stated)
        except (UsageError, DataError, KeyError, TypeError, ValueError, RecursionError) as error:
            said = getattr(error, "message", str(error))
            said = said if isinstance(error, SufficeError) else "needs record and policy, as texts"
            raise DataError(said, file=str(file), column=f"promise {number}") from error


def _named(file: Path, record: str) -> str:
    if isinstance(address := as_place(record), Address):
        return named_address(address, file)
    is_example = record == EXAMPLE.stem and not (file.parent / record).exists()
    return record if is_example else named_place(file, record)


def beside(folder: Path, record: str) -> str:
    """Return the place of a record that code in this folder names."""
    named = record == EXAMPLE.stem and not (folder / record).exists()
    return record if named or isinstance(as_place(record), Address) else str(folder / record)


def check_promise(
    record: str, policy: str, settings: ChoiceSettings, *, renew: str, update: bool = False
) -> Checked:
    """Test a policy's promise on a record, and compare with the verdict stored beside the policy's file.

    It is one hypothesis, on labeled questions that the policy was not fitted on. A policy that was chosen on
    these questions also needs the promise that the choice proved; if the loop changed since, its test pays
    for the search. ``update`` stores the verdict if the promise is proven. ``renew`` is what to type for it.
    """
    tested = _tested(record, Measures.of(record), _Stated.of(policy), settings)
    return tested.checked(renew, update=update)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Carried(Tabular):
    """A promise on the record of a changed loop, beside the old record.

    ``decision`` is holds, not shown or does not hold; ``headline`` says it, and what to do. ``loops`` are
    both at their budgets, ``changes`` those of the policy's loss and cost, paired by question (``None`` and
    empty: no question is in both).
    """

    decision: str
    headline: str
    old: Checked
    new: Checked
    loops: LoopComparison | None
    changes: Mapping[str, Interval]
    note: str

    def tables(self) -> tuple[Table, ...]:
        both = self.old, self.new
        notes = [f"{one.name}: {said}" for one in both for said in one.notes]
        return (
            Table(name="decision", title=self.headline),
            table_of("promises", both, _COLUMNS, notes=[self.note, *notes]),
            *(self.loops.tables() if self.loops else ()),
        )


def carry_promise(
    new: tuple[str, Measures], old: tuple[str, Measures], policy: str, settings: ChoiceSettings
) -> Carried:
    """Say whether a policy keeps its promise on ``new``, a record of a changed loop, and store it if so.

    Records are given with their places. Without a max_loss, the promise is that of the policy's file. A file
    without one, records that are scored differently, or one of them with a budget note: a UsageError.
    """
    stated = _Stated.of(policy)
    if settings.max_loss is None:
        if not (terms := stated.proven):
            raise UsageError(
                f"{stated.place} holds no proven promise; name a loss to test, as in --max-loss 0.05, or "
                f"choose again: suffice choose {shlex.quote(new[0])} --out NEW"
            )
        settings = replace(settings, **terms)
    moved = differences((place, measures.traces.origin.run) for place, measures in (old, new))
    if any(one.entry == "budget_note" for one in moved):
        raise UsageError(
            f"only one of the loops was told its budget, {in_words(moved)}; record both with --budget-note, "
            "or both without"
        )
    before = _tested(*old, stated, settings, again=True)
    settings = replace(settings, cost=before.asked.cost or before.figures["cost"])
    of = settings.metric or stated.metric
    shared, _ = shared_rows(old[1].by(of), new[1].by(of), settings.f1_kind)
    after = _tested(*new, stated, settings, shares=bool(len(shared)), again=True)
    parts, loops, changes = (before.part, after.part), None, {}
    note = "No question is in both records, so nothing is paired."
    note += f" The loops: {in_words(moved)}." if moved else ""
    if len((rows := shared_rows(*parts, settings.f1_kind))[0]):
        loops = compare_loops(*parts, ScoredSettings(**before.asked.scored))
        paired = [one.columns[at] for one, at in zip((before, after), rows, strict=True)]
        means = per_unit(paired[1] - paired[0], parts[0].units[rows[0]])
        draws = resampled_means(means, resamples=settings.resamples, seed=settings.seed)
        name = after.figures["cost"]
        both = zip(("loss", name), means.T, draws.T, strict=True)
        changes = {of: mean_interval(values, drawn, None) for of, values, drawn in both}
        more = f"{points(changes['loss'])} points lost, {estimated(changes[name], sign=True)}"
        note = (
            f"With the policy, new less old, paired on {counted(len(rows[0]), 'question')}: {more} "
            f"{COSTS[name].label} a question."
        )
    checked = after.checked("", update=True)
    decision = "not shown" if checked.reasons else "holds"
    decision = "does not hold" if checked.loss.low > checked.max_loss else decision
    return Carried(
        decision=decision,
        headline=after.headline(decision),
        old=before.checked(None),
        new=checked,
        loops=loops,
        changes=changes,
        note=note,
    )


@dataclass(frozen=True, slots=True)
class _Stated:
    """A policy's file and what it says of its choice: nothing where somebody edited the policy since."""

    place: Path
    file: PolicyFile
    made: Mapping[str, Any]
    terms: Mapping[str, Any]
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, policy: str) -> _Stated:
        place = Path(policy) / "policy.json" if Path(policy).is_dir() else Path(policy)
        file = load_policy(place)
        made, own = file.chosen_on, policy_hash(file.policy)
        if made.get("policy", own) != own:
            note = "the policy was edited after it was chosen, so its file's promise is void"
            return cls(place, file, {}, {}, (note,))
        terms = file.policy.facts.guarantee or Fields(made, "chosen_on").of("promise", dict, {})
        return cls(place, file, made, terms)

    @property
    def metric(self) -> Any:
        stated = self.terms.get("metric")  # of wrong stops: agreement_em, score_1
        return stated.removesuffix("_em").removesuffix("_1") if isinstance(stated, str) else None

    @property
    def proven(self) -> dict[str, Any]:
        """The loss, its bound and the confidence that a choice proved; empty: a guess."""
        found = {name: self.terms.get(name) for name in ("max_loss", "confidence", "loss")}
        guess = self.terms.get("fell_back") or not isinstance(found["max_loss"], float)
        return {} if guess or not isinstance(found["confidence"], float) else found

    def wrong_stops(self, asked: ChoiceSettings) -> float | None:
        """The share of wrong stops that the file promises beside its loss; ``None``: nothing."""
        bounds = self.terms.get("bounds") or () if asked.loss != "wrong-stop" else ()
        return next((one["at_most"] for one in bounds if one["of"] == "wrong-stop"), None)

    def another(self, asked: ChoiceSettings) -> str | None:
        """What the choice proved instead of what is asked; ``None``: this, or more."""
        if not (found := self.proven):
            return "nothing of it (a guess)"
        most, sure = found["max_loss"], found["confidence"]
        kept = most <= (asked.max_loss or 0.0) and sure >= asked.confidence
        if kept and (found["loss"], self.metric) == (asked.loss, asked.metric):
            return None
        return f"that it {allowed_in_words(self.terms)} ({100 * sure:g}% confidence)"

    def testing(self, labelled: Measures, *, shares: bool) -> tuple[Measures, str, bool]:
        """The questions that test the policy, how they are known, and whether any of them chose it."""
        fitted_on, traces = self.file.policy.facts.fitted_on, labelled.traces
        sample = {*str(self.made.get("sample", "")).split()}
        if sample and not shares and sample.isdisjoint(f"{key:.0f}" for key in unit_keys(traces)):
            return labelled, "it was chosen on other questions, so all of these test it", False
        chosen = bool(self.made or self.terms)
        fitted = bool(fitted_on) or self.terms.get("path") == "learned"
        if chosen and not fitted:
            return labelled, "", True
        if self.made.get("questions") == traces.n_questions:
            stated = Fields(self.made, "chosen_on")
            parts = ChoiceSettings(**{name: stated.of(name, kind) for name, kind in _PARTS.items()})
            held_out = choosing.in_parts(labelled, parts)[0].only_split(choosing.PROVE)
            if choosing.digest_of(held_out.traces) == self.made.get("held_out"):
                return held_out, "tested on what its choice held out", True
        apart = EVAL_SPLIT in traces.splits and fitted_on.get("split") != EVAL_SPLIT
        if apart and not (chosen and shares):  # split eval also ranked what was chosen
            why = "as the file of the policy does not say what it was chosen on"
            return labelled.only_split(EVAL_SPLIT), f"tested on split {EVAL_SPLIT}, {why}", chosen
        if fitted:
            raise UsageError(
                f"{traces.origin.source} has no questions that are known to be new to the fitted policy. If "
                "suffice.choose made it, save it with choice.save(PATH), which names them. If all are new, "
                f"type: suffice traces split {traces.at} --splits {EVAL_SPLIT}=1 --replace --out NEW"
            )
        return labelled, "valid if nobody picked the policy by looking at these questions", chosen


def _tested(
    record: str,
    measures: Measures,
    stated: _Stated,
    settings: ChoiceSettings,
    *,
    shares: bool = False,
    again: bool = False,
) -> _Tested:
    """Test a policy; ``shares``: its choice knew these questions; ``again``: two loops are compared."""
    policy, terms = stated.file.policy, stated.terms
    if settings.metric is None:
        refuse_code(stated.metric, str(stated.place))
    measures = measures.by(settings.metric or stated.metric)
    answer = terms.get("answer") or policy.needs.returns or choosing.LATEST
    cost = settings.cost or terms.get("cost")
    asked = replace(settings, metric=measures.metric.name, cost=cost, answer=answer)
    choosing.refuse_several_loops(measures)
    choosing.refuse_one_round(measures)
    choosing.refuse_wrong_exploration(measures)
    complete, incomplete = choosing.without_gaps(measures, "checking", asked.f1_kind)
    labelled, left_out = choosing.labelled_only(complete, asked)
    refuse_lacking(policy.specs, labelled.traces)
    part, how, chosen = stated.testing(labelled, shares=shares)
    notes, reasons, error = [incomplete, *left_out, how, *stated.notes], [], 1.0 - asked.confidence
    moved = _moved(stated.made, loops_of(measures.traces.origin.run))
    walked = None
    if chosen and (proven := stated.another(asked)) is not None:
        reasons.append(f"the choice on these questions proved {proven}")
    elif chosen and (moved or again):
        changed = f"the loop changed, {moved}; " * bool(moved) + "the choice on these questions"
        walked = _walked(complete, part, stated, asked)
        if walked is not None:
            notes.append(f"{changed} is made anew, along all of its paths")
        else:
            error /= whole(terms.get("tested"), "guarantee.tested", 1)
            notes.append(
                f"{changed} tried {terms['tested']:,} policies, so the error of this test is at most "
                f"{error:.2g}"
            )
    paid_by = complete if part is labelled else part
    kept, columns, figures = _measured(part, paid_by, stated, asked, error)
    passed = figures["p_value"] <= error
    if walked is not None:
        passed, figures["p_value"] = walked
    if not passed:
        reasons.append(f"not proven on {counted(figures['questions'], 'question')}")
        notes.append(_most_lost(kept))
    if reasons:
        anew = f"suffice choose {shlex.quote(record)} --max-loss {asked.max_loss:g} --out NEW"
        reasons[-1] += f"; type: {anew}"
    told = tuple(reasons), tuple(filter(None, notes))
    return _Tested(record, stated, asked, part, kept, columns, figures, *told)


@dataclass(frozen=True, slots=True)
class _Tested:
    """A policy, tested on a record; ``columns`` (n_questions, 2) hold its loss and its cost."""

    record: str
    stated: _Stated
    asked: ChoiceSettings
    part: Measures
    kept: Kept
    columns: Array
    figures: Mapping[str, Any]
    reasons: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def verdict(self) -> tuple[str, dict[str, Any]]:
        """Its name in the file of verdicts, and the verdict with a hash of what the figures rest on."""
        at, asked, kept = self.record, self.asked, self.kept
        digest = hashlib.sha256(json.dumps(kept.ids).encode())
        for values in (kept.scores, kept.costs[:2], kept.stops[1]):
            digest.update(np.nan_to_num(values.round(9), nan=-1.0).tobytes())
        own, loop = policy_hash(self.stated.file.policy), loops_of(self.part.traces.origin.run)
        told = {"policy": own, "record": digest.hexdigest()[:16], "loop": loop, **self.figures}
        at = os.path.relpath(at, self.stated.place.parent) if Path(at).exists() else at
        name = f"{at} {asked.loss} {asked.max_loss:g} {asked.confidence:g} {asked.metric}"
        return name, as_json(told)

    def checked(self, renew: str | None, *, update: bool = False) -> Checked:
        """Compare with the stored verdict, or store it; without ``renew`` do neither."""
        reasons = self.reasons
        if renew is not None and not reasons:
            stored, (name, verdict) = self.stated.place.with_suffix(".promises.json"), self.verdict
            verdicts = _verdicts(stored)
            if update:
                document = {"suffice_promises": _VERSION, "promises": {**verdicts, name: verdict}}
                text = json.dumps(document, indent=1, sort_keys=True, allow_nan=False)
                replace_file(stored, f"{text}\n".encode())
            else:
                why = _outdated(verdicts.get(name) or {}, verdict, self.stated.made)
                reasons = tuple(f"{one}; type: {renew}" for one in why)
        return Checked(
            name=f"{self.stated.place} on {self.record}",
            max_loss=self.asked.max_loss or 0.0,
            confidence=self.asked.confidence,
            metric=self.part.metric.name,
            reasons=reasons,
            notes=self.notes,
            **self.figures,
        )

    def headline(self, decision: str) -> str:
        asked, metric, figures = self.asked, self.part.metric, self.figures
        most, policy = asked.max_loss or 0.0, self.stated.place
        share = self.stated.wrong_stops(asked)
        bounds = {asked.loss: most} | ({} if share is None else {"wrong-stop": share})
        keeps = " and ".join(
            bound_in_words(of, bound, metric.label, LOSES, agreement=metric.agreement)
            for of, bound in bounds.items()
        )
        if decision == "holds":
            saved = f"saves {percent(figures['saved'])}% of the {COSTS[figures['cost']].label}"
            return (
                f"Holds: on {self.record}, {policy} {saved} and {keeps} (proven, {100 * asked.confidence:g}% "
                f'confidence). The verdict is stored; write record = "{self.record}" into suffice.toml.'
            )
        lost = f"it loses {percent(figures['loss'].estimate)} {bracket(figures['loss'])} points"
        said = "; ".join((lost, *self.reasons))
        return f"{decision.capitalize()} that {policy} {keeps} on {self.record}: {said}."


def _walked(
    complete: Measures, labelled: Measures, stated: _Stated, asked: ChoiceSettings
) -> tuple[bool, float] | None:
    """Whether the paths of the choice prove the policy here, and its p-value; ``None``: it is on no path."""
    terms, policy = stated.terms, stated.file.policy
    if terms.get("path") in (None, "learned") or not isinstance(policy, Rule):
        return None
    template, *levels = terms.get("own_path") or [None]
    own = [] if template is None else [OwnPath(template, tuple(levels))]
    axis = complete.costs(asked.cost_model).axis(asked.cost, {})
    first = whole(terms.get("min_rounds", 1), "guarantee.min_rounds", 1)
    paths = [*paths_of(labelled, axis.name, min_rounds=first, own=own)]
    tests = PathTests(complete, labelled, replace(asked, cost=axis.name), paths)
    promise = Promise(
        max_loss=asked.max_loss,
        confidence=asked.confidence,
        loss=asked.loss,
        max_wrong_stops=stated.wrong_stops(asked),
    )
    return walk_again(tests, policy.rule, promise, promise.delta)


def _measured(
    part: Measures, paid_by: Measures, stated: _Stated, asked: ChoiceSettings, error: float
) -> tuple[Kept, Array, dict[str, Any]]:
    """The policy beside the full budget, its loss and cost (n_questions, 2), and its figures.

    A rule that tosses a coin loses and costs what it does on average over the coin, as its choice says.
    """
    file, sides = stated.file, coin_sides(stated.file.policy)
    members = [NamedPolicy.of(Rule(rule=f"round >= {part.traces.n_rounds}"), "full")]
    for number, policy in enumerate((file.policy, *(side for _, side in sides))):
        members.append(NamedPolicy.of(policy, str(number), file.max_rounds))
    candidates = [Candidate(policy=one, group="path", answer=asked.answer) for one in members]
    kept = Kept.of(part, candidates, asked)
    paid = kept.costs if paid_by is part else Kept.of(paid_by, candidates, asked).costs
    half, bound = kept.half(np.arange(part.traces.n_questions)), asked.max_loss or 0.0
    losses = half.losses(np.arange(len(members)), asked.loss)
    chances = np.array([0.0, float(not sides), *(chance for chance, _ in sides)])
    columns = np.stack([losses @ chances, chances @ kept.costs], axis=1)
    # a coin beside what cannot lose is not tossed: its loss is a share of the other side's
    share = sides[0][0] if sides and (kept.stops[3] == kept.stops[0]).all() else 1.0
    tested = half.p_values(
        columns[:, :1] / share, asked.loss, bound / share, error, whole=not sides or share < 1.0
    )
    if (most := stated.wrong_stops(asked)) is not None:
        changed = (half.losses(np.arange(len(members)), "wrong-stop") @ chances)[:, None]
        also = half.p_values(changed, "wrong-stop", most, error, whole=not sides)
        tested = np.maximum(tested, also)
    means = per_unit(columns[:, :1], kept.units)
    draws = resampled_means(means, resamples=asked.resamples, seed=asked.seed)
    before, after = paid[0].mean(), (chances @ paid).mean()
    figures = {
        "questions": len(columns),
        "saved": float(1.0 - after / before) if before else None,
        "cost": kept.axis.name,
        "loss": mean_interval(
            means[:, 0], draws[:, 0], -float(asked.loss == "signed"), size=equally_many(kept.units)
        ),
        "p_value": float(tested[0]),
    }
    return kept, columns, figures


def _most_lost(kept: Kept) -> str:
    """The questions that lost most, of a record that nobody cut."""
    rows, stops = np.arange(len(kept.last)), kept.stops[1]
    own = kept.scores[rows, kept.last - 1] - kept.scores[rows, np.minimum(stops, kept.last) - 1]
    lost = [
        f"{kept.ids[row]:.80} ({percent(own[row])} at round {stops[row]})"
        for row in np.argsort(-own, kind="stable")[:_MOST_LOST].tolist()
        if own[row] > 0.0 and kept.seen is None
    ]
    return f"lost most points: {', '.join(lost)}" if lost else ""


def _verdicts(file: Path) -> dict[str, Any]:
    try:
        document = strict_json(read_plain(file).decode("utf-8"))
        check_version(document, "suffice_promises", _VERSION)
        return dict(document["promises"])
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        said = error.message if isinstance(error, DataError) else f"no stored verdicts: {error}"
        raise DataError(f"{said}; or delete it and store new ones", file=str(file)) from error


def _outdated(
    held: Mapping[str, Any], verdict: Mapping[str, Any], made: Mapping[str, Any]
) -> Iterator[str]:
    """Why a stored verdict does not stand for this one."""
    if moved := _moved(held or made, verdict["loop"]):
        yield f"the record is of another loop, {moved}"
    if not held:
        yield "no verdict is stored"
    elif held.get("policy") != verdict["policy"]:
        yield "the policy changed since its verdict"
    elif held.get("record") != verdict["record"]:
        now = counted(verdict["questions"], "question")
        yield f"the record changed since its verdict, from {held.get('questions')} to {now}"


def _moved(held: Mapping[str, Any], loop: Any) -> str:
    """How a loop differs from the one that a file states; empty: not at all."""
    found = differences([("then", {"runs": held.get("loop")}), ("now", {"runs": loop})])
    return in_words(found) if found else ""
