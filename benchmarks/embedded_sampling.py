"""Samples of a round by the embedded model, over a greedy answer of their length and llama.cpp's server.

Prompts are those of a recording of generated questions, their evaluation is not counted. Times are CPU time
of this process, one thread, so that other programs disturb them little; the ways take turns.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from suffice.datasets.registry import load
from suffice.llm.embedded import EmbeddedModel, EmbeddedSettings, model_path
from suffice.llm.llama_api import quiet_params, start_server
from suffice.llm.wire import request_body
from suffice.pipelines.answers.prompts import render_prompt
from suffice.protocols import GenerationRequest

QUESTIONS = 4
SAMPLES = (3, 8)
STOP = ("\n\n", "\nQuestion:", "\nEvidence:")
SAMPLED = GenerationRequest(
    prompt="", temperature=0.8, top_p=0.95, max_tokens=24, stop=("\nConfidence", *STOP), seed=5
)


@dataclass(slots=True)
class Spent:
    seconds: float = 0.0
    tokens: int = 0

    @property
    def each(self) -> float:
        return self.seconds / max(self.tokens, 1)


def prompts() -> list[str]:
    """Round 3 of generated questions: three passages, in the shipped prompt."""
    return [
        str(
            render_prompt(
                example.question.text,
                example.passages[:3],
                api="completion",
                name="answer-first",
            )
        )
        for example in load("generated", limit=QUESTIONS)
    ]


def server(slots: int, threads: int = 1) -> Any:
    params = quiet_params(model_path(None), threads=threads, purpose="This benchmark")
    params.n_ctx, params.n_parallel = 8192, slots
    params.kv_unified = params.swa_full = True
    return start_server(params, check="")


def ask_server(opened: Any, request: GenerationRequest) -> int:
    """Tokens drawn, the first choice's only where there are several."""
    reply = opened.handle_completions(request_body(request) | {"top_k": 40, "min_p": 0.05})
    return int(reply["usage"]["completion_tokens"])


def timed(spent: Spent, work: Callable[[], int]) -> None:
    started = time.process_time()
    spent.tokens += work()
    spent.seconds += time.process_time() - started


def main() -> dict[str, float]:
    spent: defaultdict[str, Spent] = defaultdict(Spent)
    settings = EmbeddedSettings(replicas=1, threads=1)
    with EmbeddedModel.load(settings=settings) as model:
        theirs = server(max(SAMPLES))

        def ours(request: GenerationRequest) -> int:
            return model.generate(request).completion_tokens or 0

        for text in prompts():
            for n in SAMPLES:
                sampled = replace(SAMPLED, prompt=text + " " * (n % 2), n=n)
                greedy = replace(sampled, n=1, temperature=0, top_p=1, max_tokens=48, stop=STOP)
                for ask in (ours, lambda request: ask_server(theirs, request)):
                    ask(replace(greedy, max_tokens=1))  # evaluates the prompt
                timed(spent["greedy"], lambda greedy=greedy: ours(greedy))  # type: ignore[misc]
                timed(spent[f"ours {n}"], lambda sampled=sampled: ours(sampled))  # type: ignore[misc]
                timed(spent["server greedy"], lambda greedy=greedy: ask_server(theirs, greedy))  # type: ignore[misc]
                timed(
                    spent[f"server batch {n}"],
                    lambda sampled=sampled: ask_server(theirs, sampled),  # type: ignore[misc]
                )
                for number in range(n):
                    one = replace(sampled, n=1, seed=5 + number)
                    timed(spent[f"server one by one {n}"], lambda one=one: ask_server(theirs, one))  # type: ignore[misc]
    figures = {}
    for n in SAMPLES:
        sampled_spent, singly = spent[f"ours {n}"], spent[f"server one by one {n}"]
        length = sampled_spent.tokens / n  # of all questions' samples, an n-th
        most = {3: 1.4, 8: 2.0}[n]
        figures |= {
            f"{n} samples over a greedy answer of their length (at most {most})": (
                sampled_spent.seconds / (length * spent["greedy"].each)
            ),
            f"the same drawn one by one by llama.cpp's server, {n}": (
                singly.seconds / (singly.tokens / n * spent["server greedy"].each)
            ),
            f"the same as one batch by llama.cpp's server (n={n})": (
                spent[f"server batch {n}"].seconds
                / (singly.tokens / n * spent["server greedy"].each)
            ),
            f"one by one by the server over ours, {n} samples": singly.seconds
            / sampled_spent.seconds,
        }
    figures["milliseconds a greedy token, ours"] = 1e3 * spent["greedy"].each
    figures["milliseconds a greedy token, llama.cpp's server"] = 1e3 * spent["server greedy"].each
    return figures


def frequencies(draws: int) -> tuple[Counter[str], Counter[str]]:
    """Texts of two tokens, drawn together here and one by one by llama.cpp's server."""
    request = replace(SAMPLED, prompt=prompts()[0], max_tokens=3, seed=0)
    ours: Counter[str] = Counter()
    theirs: Counter[str] = Counter()
    with EmbeddedModel.load(settings=EmbeddedSettings(replicas=1, threads=1)) as model:
        for start in range(0, draws, 50):
            reply = model.generate(replace(request, n=50, seed=start))
            ours.update(completion.text for completion in reply.completions)
    opened = server(1)
    for seed in range(draws):
        body = request_body(replace(request, seed=seed)) | {"top_k": 40, "min_p": 0.05}
        theirs[opened.handle_completions(body)["choices"][0]["text"]] += 1
    return ours, theirs
