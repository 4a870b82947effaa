"""``/v1/responses``: each round is a ``file_search_call``, and the answer the message after them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from pydantic import ConfigDict, Field

from suffice.serve.events import RoundEnded, Tokens
from suffice.serve.forms import (
    SYSTEM_UNREAD,
    Asked,
    Asking,
    Form,
    Open,
    Turn,
    as_line,
    check_extras,
    conversation_of,
    model_id,
    suffice_object,
    usage_object,
)
from suffice.serve.replies import Refusal
from suffice.serve.under_way import Done, Searching, Text, Told, UnderWay
from suffice.trace.rounds.records import Passage, Round

_ALLOWED: Mapping[str, tuple[Any, ...]] = {
    "previous_response_id": (),
    "conversation": (),
    "prompt": (),
    "background": (False,),
    "top_logprobs": (0,),
    "text.format": ({"type": "text"},),
}
_RESULTS = "file_search_call.results"


class TextForm(Open):
    """In which form the answer is wanted: as text."""

    format: dict[str, Any] | None = None


class Search(Open):
    """A search of an earlier answer, given back."""

    type: Literal["file_search_call"]


class Tool(Open):
    """What is searched with: the service's own search."""

    type: Literal["file_search"]


class ResponseRequest(Asking):
    """The question, or messages of which the user's last is the question."""

    model_config = ConfigDict(json_schema_extra={"example": {"input": "Where was Ibsen born?"}})

    input: str | list[Turn | Search] = Field(min_length=1)
    instructions: str | None = None
    include: list[str] | None = None
    tools: list[Tool] | None = None
    text: TextForm | None = None

    def asked(self) -> Asked:
        """The question; an answer of another source or form is refused."""
        form = None if self.text is None else self.text.format
        notes = check_extras({**(self.model_extra or {}), "text.format": form}, _ALLOWED)
        if self.instructions:
            notes = (SYSTEM_UNREAD, *notes)
        if isinstance(self.input, str):
            return Asked(question=self.input, notes=notes)
        turns = [item for item in self.input if isinstance(item, Turn)]
        return conversation_of(turns, "input", ("input_text", "output_text", "text"), notes)


class SearchedResponse(Form):
    """A response; its events are in the order and form of OpenAI's."""

    endpoint = "responses"

    def __init__(self, under_way: UnderWay, body: ResponseRequest, asked: Asked) -> None:
        super().__init__(under_way, body, asked)
        self._results = _RESULTS in (body.include or ())
        self._created = time.time()
        self._output: list[dict[str, Any]] = []
        self._number = -1
        self._searching = self._speaking = False

    def document(self, done: Done) -> Mapping[str, Any]:
        """The response of an answered question."""
        searches = [
            self._search(number, found, "completed")
            for number, found in enumerate(done.answered.rounds, start=1)
        ]
        output = [*searches, self._message(done.answered.answer, "completed")]
        return self._document("completed", output, done)

    def _document(
        self, status: str, output: Sequence[Mapping[str, Any]], done: Done | None = None
    ) -> dict[str, Any]:
        document: dict[str, Any] = {
            "id": f"resp_{self.under_way.trace_id}",
            "object": "response",
            "created_at": self._created,
            "status": status,
            "model": model_id(self.under_way.served),
            "output": list(output),
            "error": None,
            "incomplete_details": None,
            "instructions": None,
            "metadata": {},
            "parallel_tool_calls": False,
            "temperature": None,
            "tool_choice": "auto",
            "tools": [],
            "top_p": None,
            "usage": None if done is None else _usage(done.tokens),
        }
        if done is not None:
            said = suffice_object(self.under_way, done.answered, self.asked)
            document["suffice"] = said
        return document

    def _search(self, number: int, found: Round | None, status: str) -> dict[str, Any]:
        """The search of a round."""
        queries = [] if found is None else [found.query or self.asked.question]
        passages = () if found is None else found.passages or ()
        results = [_result(passage, number) for passage in passages]
        return {
            "id": f"fs_{self.under_way.trace_id}_{number}",
            "type": "file_search_call",
            "status": status,
            "queries": queries,
            "results": results if self._results and found is not None else None,
        }

    def _message(self, text: str | None, status: str) -> dict[str, Any]:
        return {
            "id": f"msg_{self.under_way.trace_id}",
            "type": "message",
            "status": status,
            "role": "assistant",
            "content": [] if text is None else [_part(text)],
        }

    # --- as events -------------------------------------------------------------------------------
    def begin(self) -> Iterable[str]:
        """The response without an answer."""
        kinds = ("created", "in_progress")
        return [self._event(kind, response=self._document("in_progress", ())) for kind in kinds]

    def on(self, told: Told) -> Iterable[str]:
        """Searches that begin and end, pieces of the answer, and at its end all of it."""
        if isinstance(told, Searching | RoundEnded):
            if not self._searching:
                yield from self._begin_search()
            self._searching = isinstance(told, Searching)
            if isinstance(told, RoundEnded):
                yield from self._end_search(told.round)
        elif isinstance(told, Text | Done):
            if not self._speaking:
                if self._searching and isinstance(told, Text):  # it found nothing to show
                    yield from self._end_search(None)
                self._searching, self._speaking = False, True
                yield from self._begin_message()
            if isinstance(told, Text):
                yield self._of_text("output_text.delta", delta=told.piece, logprobs=[])
            else:
                yield from self._end(told)
        else:
            yield from super().on(told)

    def failed(self, refusal: Refusal) -> Iterable[str]:
        """What was found, and why it is not answered."""
        error = {"code": "server_error", "message": refusal.document["error"]["message"]}
        failed = {**self._document("failed", self._output), "error": error}
        yield self._event("failed", response=failed)

    def _event(self, kind: str, **fields: Any) -> str:
        self._number += 1
        name = f"response.{kind}"
        line = as_line({"type": name, "sequence_number": self._number, **fields})
        return f"event: {name}\ndata: {line}\n\n"

    def _begin_search(self) -> list[str]:
        item = self._search(len(self._output) + 1, None, "in_progress")
        at = {"output_index": len(self._output), "item_id": item["id"]}
        return [
            self._event("output_item.added", output_index=len(self._output), item=item),
            self._event("file_search_call.in_progress", **at),
            self._event("file_search_call.searching", **at),
        ]

    def _end_search(self, found: Round | None) -> list[str]:
        index = len(self._output)
        item = self._search(index + 1, found, "completed")
        self._output.append(item)
        return [
            self._event("file_search_call.completed", output_index=index, item_id=item["id"]),
            self._event("output_item.done", output_index=index, item=item),
        ]

    def _begin_message(self) -> list[str]:
        item = self._message(None, "in_progress")
        return [
            self._event("output_item.added", output_index=len(self._output), item=item),
            self._of_text("content_part.added", part=_part("")),
        ]

    def _of_text(self, kind: str, **fields: Any) -> str:
        at = {"item_id": self._message(None, "")["id"], "output_index": len(self._output)}
        return self._event(kind, **at, content_index=0, **fields)

    def _end(self, done: Done) -> list[str]:
        answer = done.answered.answer
        item = self._message(answer, "completed")
        index = len(self._output)
        lines = [
            self._of_text("output_text.done", text=answer, logprobs=[]),
            self._of_text("content_part.done", part=_part(answer)),
            self._event("output_item.done", output_index=index, item=item),
        ]
        self._output.append(item)
        document = self._document("completed", self._output, done)
        return [*lines, self._event("completed", response=document)]


def _part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _result(passage: Passage, number: int) -> dict[str, Any]:
    score = passage.score if passage.rerank_score is None else passage.rerank_score
    return {
        "file_id": passage.id,
        "filename": passage.title,
        "score": score,
        "text": passage.text,
        "attributes": {"round": number},
    }


def _usage(tokens: Tokens) -> dict[str, Any] | None:
    """Usage of all rounds; ``None``: not all is known."""
    usage = usage_object(tokens, ("input", "output"))
    if usage is not None:
        usage["input_tokens_details"]["cache_write_tokens"] = 0
        usage["output_tokens_details"] = {"reasoning_tokens": 0}
    return usage
