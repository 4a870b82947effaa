"""Watch a pydantic-ai agent in shadow, ask what a rule would have saved, then let the rule stop it.

python examples/agents/pydantic_ai_agent.py http://localhost:8080/v1 MODEL
"""

from __future__ import annotations

import sys
from tempfile import TemporaryDirectory

from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

import suffice
from suffice.integrations.pydantic_ai import suffice_capability

NOTES = {
    "n1": "The observatory on the hill was founded in 1904 by Ada Marsh.",
    "n2": "Ada Marsh, born in Lund, drew star maps.",
}
RULE = "new_passages < 0.5"


def search(query: str) -> list[dict[str, str]]:
    """Search the notes."""
    words = set(query.lower().split())
    best = max(NOTES, key=lambda name: len(words & set(NOTES[name].lower().split())))
    return [{"id": best, "text": NOTES[best]}]


url, name = sys.argv[1:]
model = OpenAIChatModel(name, provider=OpenAIProvider(base_url=url, api_key="none"))
with TemporaryDirectory() as folder:
    with suffice.Watch(suffice.Rule(rule=RULE), record=folder, max_rounds=6) as watch:
        agent = Agent(model, tools=[search], capabilities=[suffice_capability(watch, probe=True)])
        result = agent.run_sync("Who founded the observatory?")
        watch.label(result.run_id, gold_answers=["Ada Marsh"])
    print("shadow:", result.output, result.response.metadata["suffice"]["rounds"], "rounds")
    for policy in suffice.replay(folder, rules=[RULE, "answer_stable"]).policies:
        print(f"{policy.name}: {policy.mean_rounds:g} rounds, exact match {policy.em:.0%}")

watch = suffice.Watch(suffice.Rule(rule=RULE), mode="live", max_rounds=6)
agent = Agent(model, tools=[search], capabilities=[suffice_capability(watch)])
result = agent.run_sync("Who founded the observatory?")
said = result.response.metadata["suffice"]
print("live:", result.output, said["rounds"], "rounds;", said["reason"])
