"""A Haystack agent that is watched: ``python haystack_agent.py http://localhost:8000/v1 model traces/``.

The model is any behind an OpenAI-compatible URL that calls tools.
"""

from __future__ import annotations

import sys
from typing import Annotated, Any

from haystack import Document
from haystack.components.agents import Agent
from haystack.components.generators.chat import OpenAIChatGenerator
from haystack.components.retrievers import InMemoryBM25Retriever
from haystack.dataclasses import ChatMessage
from haystack.document_stores.in_memory import InMemoryDocumentStore
from haystack.tools import tool
from haystack.utils import Secret

import suffice
from suffice.integrations.haystack import SufficeHook

store = InMemoryDocumentStore()
store.write_documents(
    [
        Document(content="The observatory on the hill was founded in 1904 by Ada Marsh."),
        Document(content="The harbour was rebuilt in 1921 after the storm."),
    ]
)
retriever = InMemoryBM25Retriever(store, top_k=1)


@tool(outputs_to_state={"documents": {"source": "documents"}})  # type: ignore[untyped-decorator]
def search(query: Annotated[str, "what to look for"]) -> dict[str, Any]:
    """Search the notes."""
    found: dict[str, Any] = retriever.run(query=query)
    return found


def main(url: str, model: str, record: str) -> Any:
    generator = OpenAIChatGenerator(
        api_key=Secret.from_token("none"),
        model=model,
        api_base_url=url,
        generation_kwargs={"logprobs": True},
    )
    rule = suffice.Rule(rule="new_passages < 0.5")  # a search that brings nothing new ends it
    with suffice.Watch(rule, record=record, mode="live", explore=0.05, max_rounds=8) as watch:
        hook = SufficeHook(watch, generator)
        agent = Agent(
            chat_generator=generator,
            tools=[search],
            hooks=hook.points,
            state_schema={"documents": {"type": list[Document]}},
        )
        question = ChatMessage.from_user("Who founded the observatory?")
        result = agent.run(messages=[question])
    last = result["last_message"]
    print(last.text, "|", result["exit_reason"], "|", last.meta["suffice"]["reason"])
    return result


if __name__ == "__main__":
    main(*sys.argv[1:4])
