"""A LlamaIndex agent that is watched: ``python llamaindex_agent.py http://localhost:8000/v1 model traces/``.

The model is any behind an OpenAI-compatible URL that calls tools.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from llama_index.core.agent.workflow import FunctionAgent
from llama_index.llms.openai_like import OpenAILike

import suffice
from suffice.integrations.llamaindex import watched

NOTES = (
    "The observatory on the hill was founded in 1904 by Ada Marsh.",
    "The harbour was rebuilt in 1921 after the storm.",
)


def search(query: str) -> list[str]:
    """Search the notes."""
    return [note for note in NOTES if any(word in note for word in query.lower().split())]


async def main(url: str, model: str, record: str) -> Any:
    llm = OpenAILike(
        model=model,
        api_base=url,
        api_key="none",
        is_chat_model=True,
        is_function_calling_model=True,
        additional_kwargs={"logprobs": True, "stream_options": {"include_usage": True}},
    )
    rule = suffice.Rule(rule="new_passages < 0.5")  # a search that brings nothing new ends it
    with suffice.Watch(rule, record=record, mode="live", explore=0.05, max_rounds=8) as watch:
        agent = watched(FunctionAgent(tools=[search], llm=llm), watch)
        result = await agent.run("Who founded the observatory?")
    print(result, "|", result["suffice"]["reason"])
    return result


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:4]))
