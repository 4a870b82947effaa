"""What a choice looked at, how to run what it chose, and where that is wrong."""

from __future__ import annotations

from suffice.replay.choose.choice import Choice
from suffice.report.page.section import Section, Shown, folded, listed, plain
from suffice.results.formats import counted
from suffice.results.markup import element, join


def choice_section(choice: Choice) -> Shown:
    """The chosen policy's commands, then every candidate, then the questions it gets wrong."""
    _, candidates, *wrong = choice.tables()
    commands = [
        join([f"{what}: ", element("code", command)])
        for what, command in choice.live("policy.json")
    ]
    return Shown(
        finding=f"{choice.chosen.candidate.label}, of {counted(len(choice.ranked), 'candidate')}",
        blocks=[
            plain(
                f"Of {choice.tried}. What follows this section is measured on the questions that prove, "
                "which neither fitted nor ranked anything; losses and costs in the table here are of those "
                "that rank."
            ),
            element("h3", "To run it"),
            listed(commands),
            folded("All candidates", candidates.html()),
            *(folded(table.title, table.html()) for table in wrong),
            *([listed(choice.notes, small=True)] if choice.notes else []),
            *(
                [folded("What fits warned of", listed(choice.warned, small=True))]
                if choice.warned
                else []
            ),
        ],
    )


SECTION = Section(
    name="choice",
    heading="The choice",
    part="choice",
    show=lambda material: choice_section(material.parts["choice"]),
    opened=True,
)
