"""What the hidden-constraint benchmark is made of: its settings, its tasks and their corpus."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Literal

from suffice.errors import UsageError
from suffice.options import Option
from suffice.trace.plan_traces import PlanGold, PlanTask
from suffice.trace.rounds.records import Passage

DEFAULT_GAP = 0.97
"""Where a lexical query with goal and context finds few of the constraint documents."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Constraint:
    """A control that a plan has to meet and that goal and context do not mention.

    A plan step meets the ``requirement`` when it has a word of every group of ``concepts``, not negated.
    """

    token: str
    requirement: str
    concepts: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanningTask:
    """A task with its hidden constraint, whose token 1 to 3 documents carry (``document_ids``).

    ``outline`` has ``depth`` steps that ignore the constraint; it bears on 1 or 2 of them, ``depends``.
    """

    id: str
    goal: str
    context: str
    depth: int
    small: bool
    constraint: Constraint
    document_ids: tuple[str, ...]
    depends: tuple[int, ...]
    outline: tuple[str, ...]

    @property
    def visible(self) -> PlanTask:
        """All an agent may see."""
        return PlanTask(id=self.id, goal=self.goal, context=self.context, total_steps=self.depth)

    @property
    def gold(self) -> PlanGold:
        """What only scoring and oracles read."""
        return PlanGold(constraints=(self.constraint.token,), passage_ids=self.document_ids)

    @property
    def query(self) -> str:
        """The canonical query: goal and context."""
        return f"{self.goal} {self.context}"


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarkSettings:
    """How a benchmark is drawn; the same seed gives the same benchmark on every machine.

    ``hard_small`` of the tasks, of smaller depth, form the subset hard-small. ``documents`` is the size of
    the shared corpus. With ``gap`` 0, in [0, 1], documents say the surroundings in the words of the context.
    """

    seed: Annotated[
        int, Option(name="benchmark-seed", metavar="S", at_least=0, help="of tasks and documents")
    ] = 42
    tasks: int = 50
    hard_small: int = 20
    documents: int = 450
    gap: Annotated[
        float,
        Option(
            metavar="G",
            help="how far the documents that matter are from their task in words, in [0, 1]",
        ),
    ] = DEFAULT_GAP

    def __post_init__(self) -> None:
        if not 0 <= self.hard_small <= self.tasks <= self.documents / 6:
            raise UsageError("hard_small must be at most tasks, and documents at least 6 a task")
        if not 0 <= self.gap <= 1:
            raise UsageError(f"gap must be a number in [0, 1], found {self.gap!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Benchmark:
    """Tasks and the corpus they share. The order of the documents tells nothing."""

    settings: BenchmarkSettings
    tasks: tuple[PlanningTask, ...]
    documents: tuple[Passage, ...]

    def subset(self, name: Literal["hard", "hard-small"]) -> tuple[PlanningTask, ...]:
        """The tasks of a subset, in order: ``hard`` has all of them."""
        return tuple(task for task in self.tasks if task.small or name == "hard")

    def write(self, folder: str | Path) -> None:
        """Write ``tasks.jsonl`` and ``documents.jsonl`` (UTF-8) for other programs to read."""
        target = Path(folder)
        target.mkdir(parents=True, exist_ok=True)
        tasks = (asdict(task) for task in self.tasks)
        documents = (
            {"id": document.id, "title": document.title, "text": document.text}
            for document in self.documents
        )
        for name, rows in (("tasks", tasks), ("documents", documents)):
            lines = (json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
            (target / f"{name}.jsonl").write_text("".join(lines), encoding="utf-8")
