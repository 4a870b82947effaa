"""What a choice looked at, and where what it chose is wrong."""

from __future__ import annotations

from suffice.replay.choose.choice import Choice
from suffice.report.page.section import Section, Shown, folded, listed, plain


def choice_section(choice: Choice) -> Shown:
    """Every fitted candidate, then the questions that the chosen policy gets wrong."""
    tables = {table.name: table for table in choice.tables()}
    wrong = [tables[name] for name in ("wrong",) if name in tables]
    return Shown(
        finding=choice.title,
        blocks=[
            plain(
                f"{choice.tried}. Losses and costs in the table here are of the questions that rank; what "
                "follows this section is measured on the held-out questions that prove."
            ),
            folded("All fitted candidates", tables["candidates"].html()),
            *(folded(table.title, table.html()) for table in wrong),
            *([listed(choice.notes, small=True)] if choice.notes else []),
            *(
                [folded("Warnings of fits", listed(choice.warned, small=True))]
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
