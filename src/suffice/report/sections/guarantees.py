"""What certified policies promise, in words and numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from suffice.report.draw.marks import Marked, label, label_of, short_name_of
from suffice.report.page.section import Shown, plain, sentence
from suffice.results.formats import amount, count, p_value, percent
from suffice.results.markup import Html, element, join, shorten, visible
from suffice.scoring import METRICS

Terms = Mapping[str, Any]
_LONGEST = 300


def guarantees_section(guarantees: Sequence[Terms], policies: Sequence[Marked]) -> Shown:
    """One block a certified policy."""
    return Shown(
        finding=_finding(guarantees, policies),
        blocks=[
            plain(
                "A certified policy was chosen on one half of its questions and tested on the other. Its "
                "promise is about the mean over questions drawn like these, with the same model, prompt and "
                "retriever; it says nothing about a single question."
            ),
            *(_block(guarantee, policies) for guarantee in guarantees),
        ],
    )


def promises(guarantees: Sequence[Terms], policies: Sequence[Marked]) -> Iterator[Html]:
    """Every promise in a line: of certified policies, then of those that promise in their own words."""
    certified = {guarantee["policy"] for guarantee in guarantees}
    for guarantee in guarantees:
        yield join([label_of(guarantee["policy"], policies), " ", _promise(guarantee)])
    for policy in policies:
        if policy.facts.promise and policy.result.name not in certified:
            yield join([label(policy), " ", sentence(policy.facts.promise)])


def _finding(guarantees: Sequence[Terms], policies: Sequence[Marked]) -> str:
    first = guarantees[0]
    name = short_name_of(first["policy"], policies)
    more = f"; {len(guarantees) - 1} more" if len(guarantees) > 1 else ""
    if first["fell_back"]:
        return f"{name}: nothing certified, takes the full budget{more}"
    if not _stated(first) or first["confidence"] is None:
        return f"{name}: carries a promise{more}"
    return f"{name}: {_allowed(first)}, at confidence {100 * first['confidence']:g}%{more}"


def _block(guarantee: Terms, policies: Sequence[Marked]) -> Html:
    facts = (
        element("div", element("dt", name), element("dd", value))
        for name, value in _facts(guarantee)
    )
    return element(
        "div",
        element("h3", label_of(guarantee["policy"], policies)),
        element("p", element("code", shorten(visible(guarantee["rule"]), _LONGEST))),
        element("p", _promise(guarantee), class_="promise"),
        plain(_holds(guarantee)),
        element("dl", *facts, class_="facts"),
        class_="guarantee",
    )


def _stated(guarantee: Terms) -> bool:
    """Whether it is known what is promised."""
    return guarantee["max_loss"] is not None or bool(guarantee["bounds"])


def _allowed(guarantee: Terms) -> str:
    """All that is allowed, in words."""
    if not guarantee["bounds"]:
        return _loss_allowed(guarantee)
    together = ", both together" if len(guarantee["bounds"]) == 2 else ", all together"
    said = [_bound_allowed(bound, guarantee) for bound in guarantee["bounds"]]
    return f"{', '.join(said[:-1])} and {said[-1]}{together}" if len(said) > 1 else said[0]


def _bound_allowed(bound: Terms, guarantee: Terms) -> str:
    if bound["of"] == "cost":
        unit = f" {visible(guarantee['cost_label'])}" if guarantee["cost_label"] else ""
        return f"at most {amount(bound['at_most'])}{unit} a question"
    allowed = _loss_allowed({**guarantee, "loss": bound["of"], "max_loss": bound["at_most"]})
    return allowed if bound["of"] == "wrong-stop" else f"{allowed} against the full budget"


def _loss_allowed(guarantee: Terms) -> str:
    """The loss allowed, in words."""
    if guarantee["metric"] == METRICS["agreement"].key("em"):
        return (
            f"at most {percent(guarantee['max_loss'])}% of questions answered otherwise than by the full "
            "budget, so EM and F1 fall by no more; no gold answer was read,"
        )
    if guarantee["loss"] == "wrong-stop":
        return f"at most {percent(guarantee['max_loss'])}% of questions wrong though the full budget is right"
    metric = {"f1": "F1", "em": "EM", "acc": "Acc"}.get(guarantee["metric"] or "", "score")
    kind = " in drops that gains do not pay for" if guarantee["loss"] == "drop" else ""
    return f"at most {percent(guarantee['max_loss'])} points of expected {metric} lost{kind}"


def _promise(guarantee: Terms) -> str:
    if guarantee["fell_back"]:
        return "Nothing cheaper is proven, so the policy takes the full budget."
    if not _stated(guarantee) or guarantee["confidence"] is None:
        return "The policy file states a promise without its terms."
    return (
        f"With probability at least {100 * guarantee['confidence']:g}% over the questions it was tested on: "
        f"{_allowed(guarantee)}{'' if guarantee['bounds'] else ' against the full budget'}."
    )


def _holds(guarantee: Terms) -> str:
    source = "recorded traces that the file does not name"
    if guarantee["source"] is not None:
        split = "" if guarantee["split"] is None else f"split {visible(guarantee['split'])} of "
        source = f"{split}{shorten(visible(guarantee['source']), 120)}"
    elsewhere = (
        " These are other traces than those replayed here." if guarantee["elsewhere"] else ""
    )
    start = (
        "It was looked for on" if guarantee["fell_back"] else "It holds for questions drawn like"
    )
    return f"{start} those of {source}.{elsewhere}"


def _points(share: float) -> str:
    return f"{percent(share)} points"


_TERMS: Mapping[str, tuple[str, Callable[[Any], str]]] = {
    "path": ("Proven along path", str),
    "units": ("Questions", count),
    "tested": ("Tested", count),
    "certified": ("Certified", count),
    "correction": ("Corrected by", str),
    "family": ("Learned family", str),
    "members": ("Its members", count),
    "duplicates": ("Members that stop like another", count),
    "learn": ("Questions to learn", count),
    "test": ("Questions to test", count),
    "min_rounds": ("Stops no earlier than round", count),
    "p_value": ("p-value", p_value),
    "measured_loss": ("Measured mean loss", _points),
    "mean_cost": ("Cost a question", amount),
    "full_budget_cost": ("Cost at the full budget", amount),
    "cost_counted_to": ("A question's cost counts at most", amount),
    "cost_above": ("Tested questions that cost more", count),
    "questions_needed": ("Labelled questions needed for a cheaper policy", count),
}
"""The terms of a promise as they are called here."""
_BOUND_NAMES = MappingProxyType(
    {"signed": "Mean loss", "drop": "Mean drop", "wrong-stop": "Wrong stops", "cost": "Mean cost"}
)


def _facts(guarantee: Terms) -> Iterator[tuple[str, str]]:
    """What is known of the terms; of a policy that fell back nothing was proven or measured."""
    hidden = {"p_value", "measured_loss"} if guarantee["fell_back"] else set()
    for name, (heading, shown) in _TERMS.items():
        value = guarantee[name]
        if value is not None and name not in hidden:
            yield heading, shorten(visible(shown(value)), _LONGEST)
    for bound in () if guarantee["fell_back"] else guarantee["bounds"]:
        told = (
            amount(bound["measured"]) if bound["of"] == "cost" else percent(bound["measured"]) + "%"
        )
        yield _BOUND_NAMES.get(bound["of"], "Another bound"), f"measured {told}"
    for name, term in guarantee["more"].items():
        yield shorten(visible(name), 60), shorten(visible(term), _LONGEST)
