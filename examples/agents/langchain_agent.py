"""A LangChain agent that is watched: recorded in shadow with a draft after each round, then stopped live.

pip install suffice langchain langchain-openai
python examples/agents/langchain_agent.py http://localhost:8000/v1
"""

from __future__ import annotations

import sys
import tempfile

from langchain.agents import create_agent
from langchain_core.documents import Document
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI

import suffice
from suffice.integrations.langchain import SufficeMiddleware

NOTES = ["Ibsen was born in Skien.", "Skien lies in Telemark.", "Telemark is a county in Norway."]


@tool(response_format="content_and_artifact")  # type: ignore[untyped-decorator]
def search(query: str) -> tuple[str, list[Document]]:
    """Search the notes."""
    words = set(query.lower().strip("?").split())
    best = sorted(NOTES, key=lambda note: -len(words & set(note.lower().strip(".").split())))[:2]
    return "\n".join(best), [Document(page_content=note, id=note[:8]) for note in best]


def run(url: str, watch: suffice.Watch, *, probe: bool) -> None:
    model = ChatOpenAI(base_url=url, api_key="none", model="default", logprobs=True)
    agent = create_agent(model, tools=[search], middleware=[SufficeMiddleware(watch, probe=probe)])
    answer = agent.invoke({"messages": "Where was Ibsen born?"})["messages"][-1]
    said = answer.response_metadata["suffice"]
    print(
        f"{answer.text} | {said['rounds']} rounds, stopped by {said['stopped_by']}: {said['reason']}"
    )


def main(url: str) -> None:
    policy = suffice.Rule(rule="new_passages < 0.5")
    with tempfile.TemporaryDirectory() as record:
        with suffice.Watch(policy, record=record) as watch:
            run(url, watch, probe=True)
        for question in suffice.read(record).records():
            print([finished.answer for finished in question.rounds])
    run(url, suffice.Watch(policy, mode="live"), probe=False)


if __name__ == "__main__":
    main(sys.argv[1])
