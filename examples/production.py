"""An agent that answers once, at its end, gets a stopping policy with a promise, and keeps it honest.

Shadow, probe, label, choose, go live with exploration, estimate, alarm: `docs/production.md` tells the story.
Your agent stands in `agent`; the rest stays as it is. Run it with `--llm embedded`, or the base URL of any
OpenAI-compatible server.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

import suffice
from suffice.contracts import ChatModel
from suffice.datasets.files import Example
from suffice.datasets.generated import generate
from suffice.evaluation.replay.results import ReplayResult
from suffice.llm.connect import connect
from suffice.retrieval.bm25 import BM25Index
from suffice.testing.models import ScriptedModel

ROUNDS = 4
NO_CALL = suffice.Usage(llm_calls=0, retrievals=1)  # else what your round's calls reported
Search = Callable[[str, int], Sequence[suffice.Passage]]


def agent(loop: suffice.Loop, search: Search, model: ChatModel) -> None:
    """Yours: it searches until it is done, and answers once, from all it has read."""
    while not loop.done:
        passages = search(loop.question, len(loop.rounds))
        loop.observe(passages=passages, query=loop.question, usage=NO_CALL)
    reply = suffice.answer_probe(model)(loop.view)
    loop.answered(reply.answer, tokens=reply.tokens, usage=reply.usage)


def serve(watch: suffice.Watch, examples: Sequence[Example], model: ChatModel) -> None:
    """Questions of your users; afterwards somebody says what was right."""
    passages = {passage.id: passage for example in examples for passage in example.passages}
    index = BM25Index.build(passages.values())

    def search(question: str, round_number: int) -> Sequence[suffice.Passage]:
        return index.retrieve(question, k=2 * ROUNDS)[2 * round_number : 2 * round_number + 2]

    for example in examples:
        with watch.question(example.question.text, question_type=example.question.type) as loop:
            agent(loop, search, model)
        watch.label(loop.question_id, gold_answers=example.gold.answers)


def main(arguments: Sequence[str] | None = None) -> ReplayResult:
    parser = argparse.ArgumentParser(description="From shadow to live.")
    parser.add_argument("--llm", default="embedded", help="embedded, a base URL, or scripted")
    parser.add_argument("--questions", type=int, default=200, help="in shadow, and again live")
    parser.add_argument("--max-loss", type=float, default=0.05)
    parser.add_argument("--explore", type=float, default=0.05)
    parser.add_argument("--out", type=Path, default=Path("production"))
    chosen = parser.parse_args(arguments)
    model: ChatModel = ScriptedModel() if chosen.llm == "scripted" else connect(chosen.llm)
    out: Path = chosen.out

    # 1. shadow: nothing decides, every question runs to the full budget
    with suffice.Watch(record=out / "shadow", max_rounds=ROUNDS) as watch:
        serve(watch, list(generate(chosen.questions)), model)

    # 2. an answer per round, asked of the record at night
    suffice.traces.probe(out / "shadow", out / "probed", model)
    record = suffice.read(out / "probed")

    # 3. the cheapest policy whose loss against the full budget is proven; its page is `suffice choose`'s
    choice = suffice.choose(record, max_loss=chosen.max_loss)
    print("\n".join(choice.screen()), "\n")
    suffice.save_policy(choice.policy, out / "policy.json", max_rounds=ROUNDS)

    # 4. live; a share of the questions runs on, so that the record keeps telling what stopping costs
    #    (where nothing was proven the policy is the full budget, and nothing is stopped)
    explore = chosen.explore if choice.policy.facts.earliest < ROUNDS else 0.0
    with suffice.Watch(
        out / "policy.json",
        record=out / "live",
        mode="live",
        explore=explore,
        answer=choice.chosen.answer,
    ) as watch:
        serve(watch, list(generate(2 * chosen.questions))[chosen.questions :], model)

    # 5. what stopping costs since then, unbiased although most questions were cut
    suffice.traces.probe(out / "live", out / "live-probed", model)
    live = suffice.replay(out / "live-probed", out / "policy.json", baseline=f"fixed-{ROUNDS}")
    print(live.text())

    # 6. an alarm where the loss is shown to be more than was promised
    lost = live.policies[0].delta
    if lost is not None and lost.high < -chosen.max_loss:
        print(f"ALARM: stopping loses more than {chosen.max_loss:g}: {lost}")
    return live


if __name__ == "__main__":
    main()
