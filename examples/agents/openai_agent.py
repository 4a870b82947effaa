"""Watch an agent of the OpenAI Agents SDK in shadow, ask what a rule would have saved, then let it stop.

python examples/agents/openai_agent.py http://localhost:8080/v1 MODEL
"""

from __future__ import annotations

import sys
from tempfile import TemporaryDirectory

from openai import AsyncOpenAI

import suffice
from agents import Agent, OpenAIChatCompletionsModel, function_tool, set_tracing_disabled
from suffice.integrations.openai_agents import SufficeRunner

NOTES = {
    "n1": "The observatory on the hill was founded in 1904 by Ada Marsh.",
    "n2": "Ada Marsh, born in Lund, drew star maps.",
}
QUESTION = "Who founded the observatory?"
RULE = "new_passages < 0.5"


@function_tool  # type: ignore[untyped-decorator]
def search(query: str) -> list[dict[str, str]]:
    """Search the notes."""
    words = set(query.lower().split())
    best = max(NOTES, key=lambda name: len(words & set(NOTES[name].lower().split())))
    return [{"id": best, "text": NOTES[best]}]


url, name = sys.argv[1:]
set_tracing_disabled(True)  # traces go to OpenAI otherwise
model = OpenAIChatCompletionsModel(name, AsyncOpenAI(base_url=url, api_key="none"))
agent = Agent("notes", model=model, tools=[search])
with TemporaryDirectory() as folder:
    with suffice.Watch(suffice.Rule(rule=RULE), record=folder, max_rounds=6) as watch:
        result = SufficeRunner(watch, probe=True).run_sync(agent, QUESTION)
        watch.label(result.suffice["question_id"], gold_answers=["Ada Marsh"])
    print("shadow:", result.final_output, result.suffice["rounds"], "rounds")
    for policy in suffice.replay(folder, rules=[RULE, "answer_stable"]).policies:
        print(f"{policy.name}: {policy.mean_rounds:g} rounds, exact match {policy.em:.0%}")

watch = suffice.Watch(suffice.Rule(rule=RULE), mode="live", max_rounds=6)
result = SufficeRunner(watch).run_sync(agent, QUESTION)
print("live:", result.final_output, result.suffice["rounds"], "rounds;", result.suffice["reason"])
