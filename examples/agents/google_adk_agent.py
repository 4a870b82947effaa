"""Let a rule stop an agent of Google's ADK when its searches bring nothing new.

python examples/agents/google_adk_agent.py http://localhost:8080/v1 MODEL
"""

from __future__ import annotations

import asyncio
import sys

from google.adk.agents import LlmAgent
from google.adk.apps import App
from google.adk.models.lite_llm import LiteLlm
from google.adk.runners import InMemoryRunner

import suffice
from suffice.integrations.google_adk import suffice_plugin

NOTES = {
    "n1": "The observatory on the hill was founded in 1904 by Ada Marsh.",
    "n2": "Ada Marsh, born in Lund, drew star maps.",
}


def search(query: str) -> list[dict[str, str]]:
    """Search the notes."""
    words = set(query.lower().split())
    best = max(NOTES, key=lambda name: len(words & set(NOTES[name].lower().split())))
    return [{"id": best, "text": NOTES[best]}]


url, name = sys.argv[1:]
model = LiteLlm(model=f"openai/{name}", api_base=url, api_key="none")
agent = LlmAgent(name="asker", model=model, tools=[search])
watch = suffice.Watch(suffice.RulePolicy(rule="new_passages < 0.5"), mode="live", max_rounds=6)
app = App(name="asking", root_agent=agent, plugins=[suffice_plugin(watch)])
events = asyncio.run(InMemoryRunner(app=app).run_debug("Who founded the observatory?", quiet=True))
print(events[-1].content.parts[0].text)
print(events[-1].custom_metadata["suffice"])
