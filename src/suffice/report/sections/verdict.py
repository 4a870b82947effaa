"""The first screen: whether deciding pays here, what is saved, what is promised, and what to beware of."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from suffice.replay.choose.choice import Choice
from suffice.replay.run.results import ReplayResult
from suffice.report.draw.marks import Marked, label
from suffice.report.page.section import Material, listed, plain, stacked
from suffice.report.sections.charts import score_charts, stops_chart
from suffice.report.sections.guarantees import promises
from suffice.results.formats import counted
from suffice.results.markup import Html, element, join

_MOST_SAVING = 4
_READING = (
    "Points are percentage points, brackets 95% intervals. Figures are of questions that neither fitted nor "
    "ranked a candidate. A candidate that never says stop runs all rounds."
)
_FEW = 100  # labelled questions below which a banner says so


def first_screen(material: Material) -> Html:
    """What a reader must know before any figure."""
    result, policies = material.data.result, material.policies
    if (choice := material.parts["choice"]) is not None:
        return _chosen(material, choice)
    parts = (
        ("Does looping pay here?", element("p", result.verdict, class_="promise")),
        ("What is saved", _saved(result, policies)),
        ("What is promised", _promised(material)),
    )
    return join([*_banners(material), _boxes(parts, "verdict")])


def _chosen(material: Material, choice: Choice) -> Html:
    """The four questions, how to run what was chosen, and it and the guess in pictures."""
    result = material.data.result
    said = [
        (answer.question, element("p", element("b", answer.short), " ", answer.more))
        for answer in choice.answers()
    ]
    commands = [
        join([f"{what}: ", element("code", command)])
        for what, command in choice.live("policy.json", "guess.json")
    ]
    shown = {one.candidate.policy.name for one in (choice.chosen, choice.guess) if one is not None}
    policies = [
        policy
        for policy in material.policies
        if policy.result.name in shown or not policy.result.adaptive
    ]
    charts = []
    if result.frontier is not None and len(result.frontier.known) > 1:
        drawn = [one for one in policies if one.result.name in shown or one.baseline]
        charts = [*score_charts(result, policies)[:1], stops_chart(result, drawn)]
    return join(
        [
            _boxes(said, "verdict four"),
            element("div", element("h2", "To run it"), listed(commands), class_="verdict run"),
            plain(_READING, small=True),
            *_banners(material),
            stacked(charts),
        ]
    )


def _boxes(parts: Iterable[tuple[str, Html]], class_: str) -> Html:
    blocks = (element("div", element("h2", name), content) for name, content in parts)
    return element("div", *blocks, class_=class_)


def _banners(material: Material) -> Iterator[Html]:
    """What makes the figures worth less than they look."""
    for text in dict.fromkeys((*material.data.warnings, *_warnings(material.data.result))):
        yield element("p", text, class_="banner", role="note")


def _warnings(result: ReplayResult) -> Iterator[str]:
    yield from result.banners
    if result.metric.agreement:
        yield (
            "Scores are agreement with the full budget's own answer: no gold answer was read, and nothing "
            "here says whether answers are right."
        )
    elif not result.labelled:
        yield f"No question {result.metric.unscored}: nothing here says whether answers are right."
    if 0 < result.labelled < _FEW:
        width, label = result.width, result.metric.label
        seen = ""
        if width is not None:
            seen = f" Differences below about {100 * width:.0f} {label} points cannot be told from chance."
        yield (
            f"A small record: {counted(result.labelled, 'question')} {result.metric.scored}."
            f"{seen} Read it as an example, not as a result."
        )


def _saved(result: ReplayResult, policies: Sequence[Marked]) -> Html:
    adaptive = [policy for policy in policies if policy.result.adaptive]
    if not adaptive:
        return element("p", "Nothing: fixed budgets and oracles are all that was replayed.")
    items = [
        join([label(policy), " ", result.saving(policy.result), "."])
        for policy in adaptive[:_MOST_SAVING]
    ]
    more = len(adaptive) - _MOST_SAVING
    if more > 0:
        items.append(join([f"{more} more in the comparison below."]))
    return listed(items)


def _promised(material: Material) -> Html:
    said = list(promises(material.parts["guarantees"], material.policies))
    if said:
        return listed(said)
    return element(
        "p",
        "Nothing: no policy here carries a promise. ",
        element("code", "suffice fit certified"),
        " chooses one whose loss against the full budget is proven small.",
    )
