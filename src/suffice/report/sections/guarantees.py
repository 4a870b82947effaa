"""What certified policies promise, in words and numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from suffice.replay.choose.guarantees import Guarantee
from suffice.report.draw.marks import Marked, label, label_of, short_name_of
from suffice.report.page.section import Section, Shown, plain, sentence
from suffice.results.formats import UNKNOWN, amount, count, counted, p_value, percent, signed
from suffice.results.markup import Html, element, join, shorten, visible
from suffice.scoring import METRICS

_LONGEST = 300


def guarantees_section(guarantees: Sequence[Guarantee], policies: Sequence[Marked]) -> Shown:
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


SECTION = Section(
    name="guarantees",
    heading="Guarantees",
    part="guarantees",
    show=lambda material: guarantees_section(material.parts["guarantees"], material.policies),
)


def promises(guarantees: Sequence[Guarantee], policies: Sequence[Marked]) -> Iterator[Html]:
    """Every promise in a line: of certified policies, then of those that promise in their own words."""
    certified = {guarantee.policy for guarantee in guarantees}
    for guarantee in guarantees:
        yield join([label_of(guarantee.policy, policies), " ", _promise(guarantee)])
    for policy in policies:
        if policy.facts.promise and policy.result.name not in certified:
            yield join([label(policy), " ", sentence(policy.facts.promise)])


def _finding(guarantees: Sequence[Guarantee], policies: Sequence[Marked]) -> str:
    first = guarantees[0]
    name = short_name_of(first.policy, policies)
    more = f"; {len(guarantees) - 1} more" if len(guarantees) > 1 else ""
    if first.fell_back:
        return f"{name}: nothing certified, takes the full budget{more}"
    if first.max_loss is None or first.confidence is None:
        return f"{name}: carries a promise{more}"
    return f"{name}: {_allowed(first)}, at confidence {100 * first.confidence:g}%{more}"


def _block(guarantee: Guarantee, policies: Sequence[Marked]) -> Html:
    facts = (
        element("div", element("dt", name), element("dd", value))
        for name, value in _facts(guarantee)
    )
    return element(
        "div",
        element("h3", label_of(guarantee.policy, policies)),
        element("p", element("code", shorten(visible(guarantee.rule), _LONGEST))),
        element("p", _promise(guarantee), class_="promise"),
        plain(_holds(guarantee)),
        element("dl", *facts, class_="facts"),
        class_="guarantee",
    )


def _allowed(guarantee: Guarantee) -> str:
    """The loss allowed, in words."""
    if guarantee.metric == METRICS["agreement"].key("em"):
        return (
            f"at most {percent(guarantee.max_loss)}% of questions answered otherwise than by the full "
            "budget, so EM and F1 fall by no more; no gold answer was read,"
        )
    if guarantee.loss == "wrong-stop":
        return f"at most {percent(guarantee.max_loss)}% of questions wrong though the full budget is right"
    metric = {"f1": "F1", "em": "EM", "acc": "Acc"}.get(guarantee.metric or "", "score")
    kind = " in drops that gains do not pay for" if guarantee.loss == "drop" else ""
    return f"at most {percent(guarantee.max_loss)} points of expected {metric} lost{kind}"


def _promise(guarantee: Guarantee) -> str:
    if guarantee.fell_back:
        why = f" {sentence(guarantee.reason)}" if guarantee.reason else ""
        return f"Nothing cheaper could be certified, so the policy takes the full budget.{why}"
    if guarantee.max_loss is None or guarantee.confidence is None:
        return "The policy file states a promise without its terms."
    return (
        f"With probability at least {100 * guarantee.confidence:g}% over the questions it was tested on: "
        f"{_allowed(guarantee)} against the full budget."
    )


def _holds(guarantee: Guarantee) -> str:
    source = "recorded traces that the file does not name"
    if guarantee.source is not None:
        split = "" if guarantee.split is None else f"split {visible(guarantee.split)} of "
        source = f"{split}{shorten(visible(guarantee.source), 120)}"
    elsewhere = " These are other traces than those replayed here." if guarantee.elsewhere else ""
    start = "It was looked for on" if guarantee.fell_back else "It holds for questions drawn like"
    return f"{start} those of {source}.{elsewhere}"


def _facts(guarantee: Guarantee) -> list[tuple[str, object]]:
    facts: list[tuple[str, object]] = []
    if guarantee.reason and not guarantee.fell_back:
        facts.append(("Result", sentence(guarantee.reason)))
    facts += [
        ("Family", _family(guarantee)),
        ("Tested", _tested(guarantee)),
        ("Halves", f"{_questions(guarantee.learn)} to learn, {_questions(guarantee.test)} to test"),
    ]
    if not guarantee.fell_back:
        facts += [
            ("p-value", p_value(guarantee.p_value)),
            ("Mean loss on the learning half", _points(guarantee, guarantee.loss_on_learning_half)),
            ("Mean loss on the testing half", _points(guarantee, guarantee.loss_on_testing_half)),
        ]
    if guarantee.mean_cost is not None:
        unit = f" {visible(guarantee.cost_label)}" if guarantee.cost_label else ""
        facts.append(
            (
                "Cost a question",
                f"{amount(guarantee.mean_cost)}{unit}, {amount(guarantee.full_budget_cost)} at the full "
                "budget",
            )
        )
    if guarantee.questions_needed is not None:
        needed = f"about {count(guarantee.questions_needed)} labelled ones for a cheaper policy"
        facts.append(("Questions needed", needed))
    facts += [
        (shorten(visible(name), 60), shorten(visible(value), _LONGEST))
        for name, value in guarantee.more.items()
    ]
    return facts


def _points(guarantee: Guarantee, loss: float | None) -> str:
    if loss is None:
        return UNKNOWN
    if guarantee.loss == "signed":
        return f"{signed(loss)} points (a gain where negative)"
    return f"{percent(loss)}%" if guarantee.loss == "wrong-stop" else f"{percent(loss)} points"


def _questions(number: float | None) -> str:
    return UNKNOWN if number is None else counted(int(number), "question")


def _family(guarantee: Guarantee) -> str:
    name = UNKNOWN if guarantee.family is None else shorten(visible(guarantee.family), 60)
    alike = (
        f", {count(guarantee.duplicates)} of them stop like another" if guarantee.duplicates else ""
    )
    return f"{name}: {count(guarantee.members)} members{alike}"


def _tested(guarantee: Guarantee) -> str:
    how = "" if guarantee.correction is None else f" ({shorten(visible(guarantee.correction), 60)})"
    return f"{count(guarantee.tested)}{how}, {count(guarantee.certified)} certified"
