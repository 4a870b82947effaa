"""What a choice looked at, and where what it chose is wrong."""

from __future__ import annotations

from suffice.replay.choose.choice import Choice
from suffice.report.page.section import Section, Shown, folded, listed, plain
from suffice.results.formats import counted


def choice_section(choice: Choice) -> Shown:
    """Every candidate, then the questions that the chosen one gets wrong."""
    _, candidates, *wrong = choice.tables()
    but = "" if choice.guess is None else ", but helped to pick the guess"
    return Shown(
        finding=f"{choice.chosen.candidate.label}, of {counted(len(choice.ranked), 'candidate')}",
        blocks=[
            plain(
                f"Of {choice.tried}. What follows this section is measured on the questions that prove, "
                f"which neither fitted nor ranked anything{but}; "
                "losses and costs in the table here are of those that rank."
            ),
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
