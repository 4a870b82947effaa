"""The mechanism of loops that rank once and show a growing head of the ranking, answering each time."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace

from suffice.pipelines.answer_calls import LoopSettings
from suffice.pipelines.answerer import Answerer, retrieved, timed
from suffice.protocols import ChatModel, Encoder, PassageFilter, Retriever
from suffice.trace.records import Question, Round

__all__ = ["GrowingLoop"]


class GrowingLoop:
    """Runs the loop over one question at a time; safe to use from several threads.

    Parameters
    ----------
    model, encoder
        See :class:`suffice.pipelines.answerer.Answerer`.
    settings
        How rounds are made.
    passage_filter
        Filters the ranking, once, before its head is shown. ``None``: all of it is shown.
    """

    def __init__(
        self,
        model: ChatModel,
        settings: LoopSettings,
        *,
        encoder: Encoder | None = None,
        passage_filter: PassageFilter | None = None,
    ) -> None:
        self._loop = settings
        self._answerer = Answerer(model, settings, encoder=encoder, passage_filter=passage_filter)

    def rounds(self, question: Question, retriever: Retriever) -> Iterator[Round]:
        """Rounds as they happen, up to the budget or until a round would add no passage.

        Where passages were found and the filter drops them all, round 1 answers without any.

        Raises
        ------
        BackendError
            When the model, the retriever or the encoder fails.
        """
        loop, answerer = self._loop, self._answerer
        started = time.perf_counter()
        ranked = tuple(
            retriever.retrieve(question.text, max(loop.candidates, loop.shown(loop.rounds)))
        )
        kept = answerer.kept(ranked)
        finished: tuple[Round, ...] = ()
        before = 0
        for number in range(1, loop.rounds + 1):
            shown = kept[: loop.shown(number)]
            if len(shown) == before and not (number == 1 and ranked):
                return
            latest = replace(answerer.answer(question, number, shown), passages=shown[before:])
            if number == 1:
                latest = retrieved(latest, question.text, ranked)
            latest = answerer.beside(question, (*finished, timed(latest, started)))
            finished, before = (*finished, latest), len(shown)
            yield latest
            started = time.perf_counter()

    def closed_book(self, question: Question) -> Round:
        """Round 0: the model's answer without passages, one greedy call.

        Raises
        ------
        BackendError
            When the model fails.
        """
        return self._answerer.closed_book(question)
