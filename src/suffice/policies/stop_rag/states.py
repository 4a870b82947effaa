"""What the network sees of a loop: the question and, round by round, the documents it added.

Queries, answers and gold are left out, as published (paper 1, section 4.3).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from suffice.errors import UsageError
from suffice.signals.evidence import one_line
from suffice.trace.records import LoopView, Passage
from suffice.trace.tokens import passage_text

if TYPE_CHECKING:  # deciding live loads this module, and must not load pyarrow
    from suffice.trace.table import TraceSet

__all__ = ["StateTexts", "texts_of_traces", "texts_of_view"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StateTexts:
    """The states of one question: ``documents[t - 1]`` are the texts round t added.

    A passage counts once, where it was first added; one without title and text is left out, since
    there is nothing to read.
    """

    question: str
    documents: tuple[tuple[str, ...], ...]

    @property
    def n_rounds(self) -> int:
        """How many rounds, and so states."""
        return len(self.documents)

    def seen(self, number: int) -> tuple[str, ...]:
        """The documents of rounds 1 to ``number``, in order."""
        return tuple(text for texts in self.documents[:number] for text in texts)


def texts_of_view(view: LoopView) -> StateTexts:
    """The states of a loop so far; the last one is to be decided.

    >>> from suffice.trace.records import Round
    >>> rounds = (Round(answer="", passages=(Passage(id="1", title="Oslo", text="A city."),)),)
    >>> texts_of_view(LoopView("Where?", rounds))
    StateTexts(question='Where?', documents=(('Oslo A city.',),))
    """
    rounds = ([(each.id, _text(each)) for each in one.passages or ()] for one in view.rounds)
    return _states(view.question, rounds)


def texts_of_traces(traces: TraceSet) -> tuple[StateTexts, ...]:
    """The same for every recorded question, read by column.

    Raises
    ------
    UsageError
        When no passage is recorded at all.
    """
    if not traces.has("passages"):
        raise UsageError(
            f"the network reads the passages each round added, and {traces.origin.source} holds no "
            "column passages; record them, or learn from signals alone"
        )
    column = traces.table.column("passages").combine_chunks()
    counts = column.value_lengths().fill_null(0).to_pylist()
    inner = column.flatten()
    fields = (inner.field(name).to_pylist() for name in ("id", "title", "text"))
    passages = iter(
        [
            (name or "", _text(Passage(id=name or "", title=title or "", text=text)))
            for name, title, text in zip(*fields, strict=True)
        ]
    )
    rounds = iter([[next(passages) for _ in range(count)] for count in counts])
    return tuple(
        _states(question.text, [next(rounds) for _ in range(length)])
        for question, length in zip(traces.questions, traces.last_rounds.tolist(), strict=True)
    )


def _text(passage: Passage) -> str:
    return one_line(passage_text(passage))


def _states(question: str, rounds: Iterable[Sequence[tuple[str, str]]]) -> StateTexts:
    seen: set[str] = set()
    documents = []
    for added in rounds:
        new = []
        for name, text in added:
            if name not in seen and text:
                new.append(text)
            seen.add(name)
        documents.append(tuple(new))
    return StateTexts(question=one_line(question), documents=tuple(documents))
