"""Let a rule stop an agent of smolagents when its searches bring nothing new.

python examples/agents/smolagents_agent.py http://localhost:8080/v1 MODEL
"""

from __future__ import annotations

import sys

from smolagents import OpenAIServerModel, ToolCallingAgent, tool

import suffice
from suffice.integrations.smolagents import watched


@tool  # type: ignore[untyped-decorator]
def search(query: str) -> list:  # type: ignore[type-arg]
    """Search the notes.

    Args:
        query: What to look for.
    """
    notes = {
        "n1": "The observatory on the hill was founded in 1904 by Ada Marsh.",
        "n2": "Ada Marsh, born in Lund, drew star maps.",
    }
    words = set(query.lower().split())
    best = max(notes, key=lambda name: len(words & set(notes[name].lower().split())))
    return [{"id": best, "text": notes[best]}]


url, name = sys.argv[1:]
model = OpenAIServerModel(name, api_base=url, api_key="none")
watch = suffice.Watch(suffice.RulePolicy(rule="new_passages < 0.5"), mode="live", max_rounds=6)
agent = watched(ToolCallingAgent(tools=[search], model=model), watch)
print(agent.run("Who founded the observatory?"))
print(agent.suffice)
