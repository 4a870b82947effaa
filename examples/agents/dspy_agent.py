"""DSPy's ReAct that stops when its searches bring nothing new, at any OpenAI-compatible server.

python examples/agents/dspy_agent.py http://127.0.0.1:8000/v1 --model NAME --record traces/
"""

from __future__ import annotations

import argparse

import dspy

import suffice
from suffice.integrations.dspy import watched

PASSAGES = {"d1": "The treaty was signed in Oslo.", "d2": "Oslo is the capital of Norway."}


def search(query: str) -> list[dict[str, str]]:
    """Passages about a question."""
    del query
    return [{"id": name, "text": text} for name, text in PASSAGES.items()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("--model", default="default")
    parser.add_argument("--key", default="none")
    parser.add_argument("--record")
    asked = parser.parse_args()
    dspy.configure(lm=dspy.LM(f"openai/{asked.model}", api_base=asked.url, api_key=asked.key))

    policy = suffice.Rule(rule="new_passages < 0.5")
    with suffice.Watch(policy, record=asked.record, mode="live") as watch:
        agent = watched(dspy.ReAct("question -> answer", tools=[search]), watch)
        prediction = agent(question="Where was the treaty signed?")
    print(prediction.answer)
    print(prediction.suffice)


if __name__ == "__main__":
    main()
