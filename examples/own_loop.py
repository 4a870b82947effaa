"""Stop a loop of your own: retrieve, answer, ask the controller, go on or stop.

The retriever is a real one; the model stands in for yours. Replace `ask_model` by your own call.
"""

from __future__ import annotations

import suffice
from suffice.contracts import GenerationRequest
from suffice.retrieval.bm25 import BM25Index
from suffice.testing.models import ScriptedModel

NOTES = {
    "Observatory": "The observatory on the hill was founded in 1904 by Ada Marsh.",
    "Harbour": "The harbour was rebuilt in 1921 after the storm.",
    "Ada Marsh": "Ada Marsh, born in Lund, drew star maps.",
    "Mill": "The old mill is a museum now.",
}
QUESTION = "Who founded the observatory?"

model = ScriptedModel(
    ["Answer: Lund", "Answer: Ada Marsh", "Answer: Ada Marsh.", "Answer: Ada Marsh"]
)


def ask_model(question: str, passages: list[suffice.Passage]) -> str:
    evidence = "\n".join(passage.text or "" for passage in passages)
    reply = model.generate(GenerationRequest(prompt=f"{evidence}\n{question}\n"))
    return reply.completions[0].text.removeprefix("Answer:").strip()


def main() -> suffice.Decision:
    index = BM25Index.build(
        suffice.Passage(id=title, title=title, text=text) for title, text in NOTES.items()
    )
    policy = suffice.Rule(rule="answer_repeats and not abstained")
    controller = suffice.Controller(policy, max_rounds=4).start(QUESTION)
    shown: list[suffice.Passage] = []
    for passage in index.retrieve(QUESTION, k=4):
        shown.append(passage)
        answer = ask_model(QUESTION, shown)
        decision = controller.observe(suffice.Round(answer=answer, passages=(passage,)))
        print(f"round {len(shown)}: {answer!r}; {decision.reason}")
        if decision.stop:
            break
    return decision


if __name__ == "__main__":
    main()
