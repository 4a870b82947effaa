"""What certified policies promise, in words and numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from suffice.report.draw.marks import Marked, label, label_of, short_name_of
from suffice.report.page.section import Shown, plain, sentence
from suffice.results.formats import UNKNOWN, amount, count, counted, p_value, percent, signed
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


def _facts(guarantee: Terms) -> list[tuple[str, object]]:
    facts: list[tuple[str, object]] = []
    if guarantee["path"] is not None:
        facts.append(
            ("Proven along", f"path {visible(guarantee['path'])}, {_questions(guarantee['units'])}")
        )
    facts.append(("Tested", _tested(guarantee)))
    if guarantee["learn"] is not None:
        halves = (
            f"{_questions(guarantee['learn'])} to learn, {_questions(guarantee['test'])} to test"
        )
        facts += [("Learned family", _family(guarantee)), ("Its halves", halves)]
    if guarantee["min_rounds"] is not None:
        facts.append(("Stops no earlier than", f"round {count(guarantee['min_rounds'])}"))
    if not guarantee["fell_back"]:
        facts.append(("p-value", p_value(guarantee["p_value"])))
    if guarantee["bounds"] and not guarantee["fell_back"]:
        facts += [_bound_fact(bound, guarantee) for bound in guarantee["bounds"]]
    elif not guarantee["fell_back"]:
        facts.append(("Measured mean loss", _points(guarantee, guarantee["measured_loss"])))
    if guarantee["mean_cost"] is not None:
        unit = f" {visible(guarantee['cost_label'])}" if guarantee["cost_label"] else ""
        facts.append(
            (
                "Cost a question",
                f"{amount(guarantee['mean_cost'])}{unit}, {amount(guarantee['full_budget_cost'])} at the "
                "full budget",
            )
        )
    if guarantee["questions_needed"] is not None:
        needed = f"about {count(guarantee['questions_needed'])} labelled ones for a cheaper policy"
        facts.append(("Questions needed", needed))
    facts += [
        (shorten(visible(name), 60), shorten(visible(value), _LONGEST))
        for name, value in guarantee["more"].items()
    ]
    return facts


_BOUND_NAMES = MappingProxyType(
    {"signed": "Mean loss", "drop": "Mean drop", "wrong-stop": "Wrong stops", "cost": "Mean cost"}
)


def _bound_fact(bound: Terms, guarantee: Terms) -> tuple[str, str]:
    of_bound = {**guarantee, "loss": bound["of"]}
    mean = (
        amount(bound["measured"]) if bound["of"] == "cost" else _points(of_bound, bound["measured"])
    )
    said = f"measured {mean}"
    if bound["of"] == "cost" and guarantee["cost_counted_to"] is not None:
        above = count(guarantee["cost_above"] or 0)
        most = amount(guarantee["cost_counted_to"])
        said += f"; a question counts {most} at most, {above} tested cost more"
    return _BOUND_NAMES.get(bound["of"], "Another bound"), said


def _points(guarantee: Terms, loss: float | None) -> str:
    if loss is None:
        return UNKNOWN
    if guarantee["loss"] == "signed":
        return f"{signed(loss)} points (a gain where negative)"
    return f"{percent(loss)}%" if guarantee["loss"] == "wrong-stop" else f"{percent(loss)} points"


def _questions(number: float | None) -> str:
    return UNKNOWN if number is None else counted(int(number), "question")


def _family(guarantee: Terms) -> str:
    name = UNKNOWN if guarantee["family"] is None else shorten(visible(guarantee["family"]), 60)
    alike = (
        f", {count(guarantee['duplicates'])} of them stop like another"
        if guarantee["duplicates"]
        else ""
    )
    return f"{name}: {count(guarantee['members'])} members{alike}"


def _tested(guarantee: Terms) -> str:
    how = (
        ""
        if guarantee["correction"] is None
        else f" ({shorten(visible(guarantee['correction']), 60)})"
    )
    return f"{count(guarantee['tested'])}{how}, {count(guarantee['certified'])} certified"
