"""A promise in a project's tests: does the stored record still prove it of this very policy?"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from suffice.contracts import StopPolicy, strict_json
from suffice.costs.usage import COSTS
from suffice.errors import DataError, UsageError, counted, plain_file, unknown_name
from suffice.evaluation.choose import candidates as choosing
from suffice.evaluation.choose.bounds import Bound, allowed_in_words, p_values_of, plain
from suffice.evaluation.choose.candidates import Candidate, Kept
from suffice.evaluation.choose.choice import Choice
from suffice.evaluation.replay.named_policies import NamedPolicy
from suffice.evaluation.settings import USUAL_LOSS, ChoiceSettings
from suffice.measures.measures import Measures
from suffice.options import as_share
from suffice.policies.defaults import EVAL_SPLIT
from suffice.policies.policy_file import PolicyFile, check_version, load_policy, policy_hash
from suffice.policies.rules.policy import Rule
from suffice.results.as_json import as_json
from suffice.results.formats import percent
from suffice.results.table import Column, Described, Table, table_of
from suffice.results.tabular import Tabular
from suffice.scoring import METRICS
from suffice.signals.signal_table import refuse_lacking
from suffice.stats.fields import Fields
from suffice.stats.intervals import Interval, percentile_interval, resampled_means
from suffice.trace.durable import replace_file
from suffice.trace.rounds.trace_set import TraceSet, differences, in_words, loops_of, unit_keys
from suffice.trace.stored_file import EXAMPLE

_VERSION = 1
_SAMPLE, _MOST_LOST = 32, 10
_FRESH = "it was chosen on other questions, so all of these test it"
_COIN = re.compile(r"coin\(\) < ([\d.e-]+)")
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


def chosen_on(choice: Choice, policy: StopPolicy, traces: TraceSet) -> dict[str, Any]:
    """Return what the file of a chosen or guessed policy says of the questions that chose it.

    ``sample`` are keys of some of them, by which a record with the same questions is known.
    """
    beside = policy is choice.policy and not policy.facts.guarantee
    return {
        "questions": choice.parts["all"],
        "sample": " ".join(f"{key:.0f}" for key in np.unique(unit_keys(traces))[:_SAMPLE]),
        **{name: getattr(choice.settings, name) for name in _PARTS},
        "loop": loops_of(traces.origin.run),
        "policy": policy_hash(policy),
        "promise": choice.guarantee if beside else {},
    }


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
    """Yield record, policy file and terms of every ``[[promise]]``; paths start at the file's folder."""
    try:
        document = tomllib.loads(plain_file(file).read_text(encoding="utf-8"))
        promises = [dict(one) for one in document["promise"]] or [{}]
    except FileNotFoundError:
        raise DataError("no such file; to write one, type: suffice init", file=str(file)) from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"no TOML with [[promise]]: {error}", file=str(file)) from error
    for number, stated in enumerate(promises, start=1):
        try:
            places = [stated.pop(name) for name in ("record", "policy")]
            record, policy = beside(file.parent, places[0]), file.parent / places[1]
            yield record, str(policy), promise_settings(**stated)
        except (UsageError, KeyError, TypeError, AttributeError) as error:
            said = error if isinstance(error, UsageError) else "needs record and policy, as texts"
            raise DataError(str(said), file=str(file), column=f"promise {number}") from error


def beside(folder: Path, record: str) -> str:
    """Return the place of a record that a file of this folder names."""
    named = record == EXAMPLE.stem and not (folder / record).exists()
    return record if named or "://" in record else str(folder / record)


def check_promise(
    record: str, policy: str, settings: ChoiceSettings, *, renew: str, update: bool = False
) -> Checked:
    """Test a policy's promise on a record, and compare with the verdict stored beside the policy's file.

    It is one hypothesis, on labeled questions that the policy was not fitted on. A policy that was chosen on
    these questions also needs the promise that the choice proved. ``update`` stores the verdict if the
    promise is proven. ``renew`` is what to type for that.
    """
    place = Path(policy) / "policy.json" if Path(policy).is_dir() else Path(policy)
    file, notes = load_policy(place), []
    own, made = policy_hash(file.policy), file.chosen_on
    terms = file.policy.facts.guarantee or Fields(made, "chosen_on").of("promise", dict, {})
    if made.get("policy", own) != own:
        made, terms = {}, {}
        notes.append("the policy was edited after it was chosen, so its file's promise is void")
    promised = str(terms.get("metric")).removesuffix("_em")  # agreement of wrong stops
    metric = settings.metric or (promised if promised in METRICS else None)
    measures = Measures.of(record).by(metric)  # type: ignore[arg-type]  # known, as was looked up
    answer = terms.get("answer") or file.policy.needs.returns or choosing.LATEST
    cost = settings.cost or terms.get("cost")
    asked = replace(settings, metric=measures.metric.name, cost=cost, answer=answer)
    choosing.refuse_several_loops(measures)
    choosing.refuse_one_round(measures)
    complete, incomplete = choosing.without_gaps(measures, "checking", asked.f1_kind)
    labelled, left_out = choosing.labelled_only(complete, asked)
    refuse_lacking(file.policy.specs, labelled.traces)
    again = f"type: suffice choose {shlex.quote(record)} --max-loss {asked.max_loss:g} --out NEW"
    here = loops_of(measures.traces.origin.run)
    sample = {*str(made.get("sample", "")).split()}
    fresh = bool(sample) and sample.isdisjoint(f"{key:.0f}" for key in unit_keys(labelled.traces))
    reasons = []
    if not fresh and (made or terms):
        if moved := differences([("then", {"runs": made.get("loop")}), ("now", {"runs": here})]):
            reasons.append(f"it was chosen on another loop, {in_words(moved)}; {again}")
        if (proven := _another(terms, promised, asked)) is not None:
            reasons.append(f"the choice on these questions proved {proven}; {again}")
    part, note = (labelled, _FRESH) if fresh else _not_fitted(labelled, file, made, terms)
    figures, lost, fingerprint = _tested(part, file, asked)
    if figures["p_value"] > 1.0 - asked.confidence:
        reasons.append(f"not proven on {counted(figures['questions'], 'question')}; {again}")
    verdict = as_json({"policy": own, "record": fingerprint, "loop": here, **figures})
    at = os.path.relpath(record, place.parent) if Path(record).exists() else record
    name = f"{at} {asked.loss} {asked.max_loss:g} {asked.confidence:g} {asked.metric}"
    stored = place.with_suffix(".promises.json")
    verdicts = _verdicts(stored)
    if update and not reasons:
        document = {"suffice_promises": _VERSION, "promises": {**verdicts, name: verdict}}
        text = json.dumps(document, indent=1, sort_keys=True, allow_nan=False)
        replace_file(stored, f"{text}\n".encode())
    elif not reasons:
        why = _outdated(verdicts.get(name) or {}, verdict, made)
        reasons += [f"{one}; type: {renew}" for one in why]
    if reasons and lost:
        notes.append(f"lost most points: {lost}")
    return Checked(
        name=f"{policy} on {record}",
        max_loss=asked.max_loss or 0.0,
        confidence=asked.confidence,
        metric=measures.metric.name,
        reasons=tuple(reasons),
        notes=tuple(filter(None, (incomplete, *left_out, note, *notes))),
        **figures,
    )


def _another(terms: Mapping[str, Any], metric: str, asked: ChoiceSettings) -> str | None:
    """What a choice among many policies proved instead of the terms; ``None``: these, or stricter ones."""
    most, sure = terms.get("max_loss"), terms.get("confidence")
    if not isinstance(most, float) or not isinstance(sure, float) or terms.get("fell_back"):
        return "nothing of it (a guess)"
    kept = most <= (asked.max_loss or 0.0) and sure >= asked.confidence
    if kept and (terms.get("loss"), metric) == (asked.loss, asked.metric):
        return None
    return f"that it {allowed_in_words(terms)} ({100 * sure:g}% confidence)"


def _not_fitted(
    labelled: Measures, file: PolicyFile, made: Mapping[str, Any], terms: Mapping[str, Any]
) -> tuple[Measures, str]:
    """The questions that the policy was not fitted on, and how they are known."""
    fitted_on, traces = file.policy.facts.fitted_on, labelled.traces
    chosen, fitted = bool(made or terms), bool(fitted_on) or terms.get("path") == "learned"
    if chosen and not fitted:
        return labelled, ""
    if made.get("questions") == traces.n_questions:
        parts = {name: Fields(made, "chosen_on").of(name, kind) for name, kind in _PARTS.items()}
        parted, _ = choosing.in_parts(labelled, ChoiceSettings(**parts))
        return parted.only_split(choosing.PROVE), "tested on what its choice held out"
    if EVAL_SPLIT in traces.splits and fitted_on.get("split") != EVAL_SPLIT:
        why = "as the file of the policy does not say what it was chosen on"
        return labelled.only_split(EVAL_SPLIT), f"tested on split {EVAL_SPLIT}, {why}"
    if fitted:
        raise UsageError(
            f"{traces.origin.source} has no questions that are known to be new to the fitted policy; if all "
            f"are, type: suffice traces split {traces.at} --splits {EVAL_SPLIT}=1 --replace --out NEW"
        )
    return labelled, "valid if nobody picked the policy by looking at these questions"


def _tested(
    part: Measures, file: PolicyFile, asked: ChoiceSettings
) -> tuple[dict[str, Any], str, str]:
    """The figures of the policy, the questions that lost most, and a hash of what the figures rest on."""
    heads, sides = _sides(file.policy)
    full = Rule(rule=f"round >= {part.traces.n_rounds}")
    members = [NamedPolicy.of(full, "full")]
    for number, policy in enumerate((file.policy, *sides)):
        members.append(NamedPolicy.of(policy, str(number), file.max_rounds))
    candidates = [Candidate(policy=one, group="path", answer=asked.answer) for one in members]
    kept = Kept.of(part, candidates, asked)
    rows = np.arange(part.traces.n_questions)
    half, bound = kept.half(rows), Bound(of=asked.loss, most=asked.max_loss or 0.0)
    losses = half.losses(np.arange(1, len(members)), bound.of)
    # a rule that tosses a coin is tested by its expected loss, as its choice did
    tested = heads * losses[:, [1]] + (1.0 - heads) * losses[:, [2]] if sides else losses
    means = plain(tested, bound, half)
    draws = resampled_means(means, resamples=asked.resamples, seed=asked.seed)
    before, after = half.costs[:2].tolist()
    figures = {
        "questions": len(rows),
        "saved": 1.0 - after / before if before else None,
        "cost": kept.axis.name,
        "loss": percentile_interval(float(means.mean()), draws[:, 0]),
        "p_value": float(p_values_of(half, tested, bound, 1.0 - asked.confidence)[0]),
    }
    digest = hashlib.sha256(json.dumps(kept.ids).encode())
    for values in (kept.scores, kept.costs[:2], kept.stops[1]):
        digest.update(np.nan_to_num(values.round(9), nan=-1.0).tobytes())
    stops = kept.stops[1]
    own = kept.scores[rows, kept.last - 1] - kept.scores[rows, np.minimum(stops, kept.last) - 1]
    lost = [
        f"{kept.ids[row]:.80} ({percent(own[row])} at round {stops[row]})"
        for row in np.argsort(-own, kind="stable")[:_MOST_LOST].tolist()
        if own[row] > 0.0 and kept.seen is None
    ]
    return figures, ", ".join(lost), digest.hexdigest()[:16]


def _sides(policy: StopPolicy) -> tuple[float, list[Rule]]:
    """Of a rule that tosses one coin: the chance of heads, and its rules under heads and tails."""
    toss = _COIN.search(policy.rule) if isinstance(policy, Rule) else None
    if not isinstance(policy, Rule) or toss is None or policy.rule.count("coin()") != 1:
        return 1.0, []
    sides = (_COIN.sub(side, policy.rule) for side in ("round >= 1", "not round >= 1"))
    return float(toss[1]), [replace(policy, rule=side) for side in sides]


def _verdicts(file: Path) -> dict[str, Any]:
    try:
        document = strict_json(plain_file(file).read_text(encoding="utf-8"))
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
    then = {"runs": (held or made).get("loop")}
    if moved := differences([("then", then), ("now", {"runs": verdict["loop"]})]):
        yield f"the record is of another loop, {in_words(moved)}"
    if not held:
        yield "no verdict is stored"
    elif held.get("policy") != verdict["policy"]:
        yield "the policy changed since its verdict"
    elif held.get("record") != verdict["record"]:
        now = counted(verdict["questions"], "question")
        yield f"the record changed since its verdict, from {held.get('questions')} to {now}"
