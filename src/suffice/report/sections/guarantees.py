"""What certified policies promise, in words and numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from suffice.replay.choose.guarantees import Guarantee
from suffice.report.draw.marks import Marked, label, short_name
from suffice.report.page.section import Section, plain
from suffice.results.formats import UNKNOWN, amount, count, counted, p_value, percent, signed
from suffice.results.markup import Html, element, join, shorten, visible

_LONGEST = 300


def guarantees_section(found: Sequence[Guarantee], policies: Sequence[Marked]) -> Section:
    """One block a certified policy."""
    of_name = {each.result.name: each for each in policies}
    content = join(
        [
            plain(
                "A certified policy was chosen on one half of its questions and tested on the other. Its "
                "promise is about the mean over questions drawn like these, with the same model, prompt and "
                "retriever; it says nothing about a single question."
            ),
            *(_block(each, of_name) for each in found),
        ]
    )
    return Section(
        name="guarantees",
        heading="Guarantees",
        finding=_finding(found, of_name),
        content=content,
    )


def _finding(found: Sequence[Guarantee], of_name: Mapping[str, Marked]) -> str:
    first = found[0]
    name = short_name(of_name[first.policy]) if first.policy in of_name else first.policy
    more = f"; {len(found) - 1} more" if len(found) > 1 else ""
    if first.fell_back:
        return f"{name}: nothing certified, takes the full budget{more}"
    if first.max_loss is None or first.confidence is None:
        return f"{name}: carries a promise{more}"
    return f"{name}: {_allowed(first)}, at confidence {100 * first.confidence:g}%{more}"


def _block(each: Guarantee, of_name: Mapping[str, Marked]) -> Html:
    who = label(of_name[each.policy]) if each.policy in of_name else join([each.policy])
    facts = (
        element("div", element("dt", name), element("dd", value)) for name, value in _facts(each)
    )
    return element(
        "div",
        element("h3", who),
        element("p", element("code", shorten(visible(each.rule), _LONGEST))),
        element("p", _promise(each), class_="promise"),
        element("p", _holds(each), class_="plain"),
        element("dl", *facts, class_="facts"),
        class_="guarantee",
    )


def _allowed(each: Guarantee) -> str:
    """The loss allowed, in words."""
    if each.loss == "wrong-stop":
        return (
            f"at most {percent(each.max_loss)}% of questions wrong though the full budget is right"
        )
    metric = {"f1": "F1", "em": "EM", "acc": "Acc"}.get(each.metric or "", "score")
    kind = " in drops that gains do not pay for" if each.loss == "drop" else ""
    return f"at most {percent(each.max_loss)} points of expected {metric} lost{kind}"


def _promise(each: Guarantee) -> str:
    if each.fell_back:
        why = f" {_sentence(each.reason)}" if each.reason else ""
        return f"Nothing cheaper could be certified, so the policy takes the full budget.{why}"
    if each.max_loss is None or each.confidence is None:
        return "The policy file states a promise without its terms."
    return (
        f"With probability at least {100 * each.confidence:g}% over the questions it was tested on: "
        f"{_allowed(each)} against the full budget."
    )


def _sentence(text: str) -> str:
    shown = shorten(visible(text).strip(), _LONGEST)
    return f"{shown[:1].upper()}{shown[1:]}{'' if shown.endswith('.') else '.'}"


def _holds(each: Guarantee) -> str:
    source = "recorded traces that the file does not name"
    if each.source is not None:
        split = "" if each.split is None else f"split {visible(each.split)} of "
        source = f"{split}{shorten(visible(each.source), 120)}"
    elsewhere = " These are other traces than those replayed here." if each.elsewhere else ""
    start = "It was looked for on" if each.fell_back else "It holds for questions drawn like"
    return f"{start} those of {source}.{elsewhere}"


def _facts(each: Guarantee) -> list[tuple[str, object]]:
    facts: list[tuple[str, object]] = []
    if each.reason and not each.fell_back:
        facts.append(("Result", _sentence(each.reason)))
    facts += [
        ("Family", _family(each)),
        ("Tested", _tested(each)),
        ("Halves", f"{_questions(each.learn)} to learn, {_questions(each.test)} to test"),
    ]
    if not each.fell_back:
        facts += [
            ("p-value", p_value(each.p_value)),
            ("Mean loss on the learning half", _points(each, each.loss_on_learning_half)),
            ("Mean loss on the testing half", _points(each, each.loss_on_testing_half)),
        ]
    if each.mean_cost is not None:
        unit = f" {visible(each.cost_label)}" if each.cost_label else ""
        facts.append(
            (
                "Cost a question",
                f"{amount(each.mean_cost)}{unit}, {amount(each.full_budget_cost)} at the full budget",
            )
        )
    if each.questions_needed is not None:
        needed = f"about {count(each.questions_needed)} labelled ones for a cheaper policy"
        facts.append(("Questions needed", needed))
    facts += [
        (shorten(visible(name), 60), shorten(visible(value), _LONGEST))
        for name, value in each.more.items()
    ]
    return facts


def _points(each: Guarantee, loss: float | None) -> str:
    if loss is None:
        return UNKNOWN
    if each.loss == "signed":
        return f"{signed(loss)} points (a gain where negative)"
    return f"{percent(loss)}%" if each.loss == "wrong-stop" else f"{percent(loss)} points"


def _questions(number: float | None) -> str:
    return UNKNOWN if number is None else counted(int(number), "question")


def _family(each: Guarantee) -> str:
    name = UNKNOWN if each.family is None else shorten(visible(each.family), 60)
    alike = f", {count(each.duplicates)} of them stop like another" if each.duplicates else ""
    return f"{name}: {count(each.members)} members{alike}"


def _tested(each: Guarantee) -> str:
    how = "" if each.correction is None else f" ({shorten(visible(each.correction), 60)})"
    return f"{count(each.tested)}{how}, {count(each.certified)} certified"
