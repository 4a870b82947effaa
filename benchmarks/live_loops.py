"""Seconds of a question in a live loop: plain, with the next round begun ahead, and as LangGraph, LlamaIndex
and FlashRAG's way run it; on the embedded model, and on a server that answers as a remote one does.

Takes some five minutes on two idle cores. Every way sends the same requests to a model of its own, so that
none finds the prompts of another in a cache, and the ways take turns at each question. LangGraph and
LlamaIndex take part where they are installed:

    python -m venv .venv-loops
    .venv-loops/bin/pip install -e '.[bm25,embedded,openai]' -r benchmarks/requirements-live_loops.txt
    .venv-loops/bin/python -m benchmarks.live_loops
"""

from __future__ import annotations

import argparse
import asyncio
import json
import select
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from typing import Any, Literal, TypedDict

from suffice.datasets.example import Example
from suffice.datasets.registry import load
from suffice.live.answering import Answered, Answering, answer
from suffice.live.loop import Loop
from suffice.llm.embedded import EmbeddedModel
from suffice.llm.endpoint import OpenAISettings
from suffice.llm.openai_compatible import OpenAICompatibleModel
from suffice.loops.answers.calls import AnswerCall, ask_greedy
from suffice.loops.answers.prompts import render_prompt
from suffice.loops.follow_up import IterativeSettings
from suffice.loops.ranked import CumulativeSettings
from suffice.loops.settings import LoopSettings
from suffice.policies.fixed import FixedPolicy
from suffice.policies.rules.policy import RulePolicy
from suffice.protocols import ChatModel, Generation, GenerationRequest, LoopNeeds, StopPolicy
from suffice.retrieval.retrievers import OwnParagraphs
from suffice.scoring import normalize_answer
from suffice.testing.models import ScriptedModel

QUESTIONS = 12
ROUNDS = 5
STABLE = RulePolicy(rule="answer_stable")
CUMULATIVE = CumulativeSettings(rounds=ROUNDS)
ITERATIVE = IterativeSettings(rounds=ROUNDS, samples=0)
# a small hosted model, as a client on the same continent sees it
NETWORK_S, PROMPT_TOKENS_A_SECOND, TOKENS_A_SECOND = 0.15, 10_000.0, 80.0


class ReadsAnswers(FixedPolicy):
    """Reads every answer, and does nothing with it."""

    @property
    def needs(self) -> LoopNeeds:
        return LoopNeeds(answers=True)


# --- ways ----------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Outcome:
    """What a way gave for a question: ``calls`` to the model, of which ``wasted`` for nothing."""

    answer: str
    rounds: int
    calls: int
    wasted: int = 0


Way = Callable[[ChatModel, Example], Outcome]


def ours(loop: LoopSettings, policy: StopPolicy, *, speculate: bool = False) -> Way:
    """Suffice's own loop."""

    def run(model: ChatModel, example: Example) -> Outcome:
        answered: Answered = answer(
            example.question.text,
            OwnParagraphs(example.passages),
            model,
            Loop.alone(policy, max_rounds=loop.rounds),
            Answering(loop=loop, speculate=speculate),
        )
        wasted = 0 if answered.wasted is None else answered.wasted.calls
        return Outcome(answered.answer, len(answered.rounds), answered.spent.calls or 0, wasted)

    return run


def searched(example: Example) -> tuple[Any, ...]:
    """The passages, ranked as ours does it."""
    return tuple(OwnParagraphs(example.passages).retrieve(example.question.text, 10))


def asked(model: ChatModel, example: Example, ranked: Sequence[Any], number: int) -> str:
    """The answer of a round of the cumulative loop, by the request that ours sends."""
    prompt = render_prompt(
        example.question.text, ranked[:number], api=model.api, name=CUMULATIVE.prompt
    )
    call = AnswerCall(prompt=prompt, question_id="ask", number=number)
    return ask_greedy(model, call, CUMULATIVE).answer_text


def stable(answers: Sequence[str]) -> bool:
    """Whether the last two are equal, as they are scored."""
    return len(answers) > 1 and normalize_answer(answers[-1]) == normalize_answer(answers[-2])


class State(TypedDict):
    """What LangGraph's nodes hand on."""

    ranked: tuple[Any, ...]
    answers: list[str]


def langgraph(model: ChatModel, example: Example) -> Outcome:
    """A node that searches, one that answers, and an edge that goes back while the answer changes."""
    from langgraph.graph import END, START, StateGraph

    def search(_: State) -> dict[str, Any]:
        return {"ranked": searched(example)}

    def reply(state: State) -> dict[str, Any]:
        answers = state["answers"]
        return {"answers": [*answers, asked(model, example, state["ranked"], len(answers) + 1)]}

    def go_on(state: State) -> str:
        answers = state["answers"]
        return END if stable(answers) or len(answers) == ROUNDS else "reply"

    graph = StateGraph(State)
    graph.add_node("search", search)
    graph.add_node("reply", reply)
    graph.add_edge(START, "search")
    graph.add_edge("search", "reply")
    graph.add_conditional_edges("reply", go_on)
    answers = graph.compile().invoke({"ranked": (), "answers": []})["answers"]
    return Outcome(answers[-1], len(answers), len(answers))


def llamaindex(model: ChatModel, example: Example) -> Outcome:
    """A workflow with a step that searches and one that answers until the answer stays."""
    from workflows import Workflow, step
    from workflows.events import Event, StartEvent, StopEvent

    class Found(Event):  # type: ignore[misc]
        ranked: Any
        answers: Any

    class Loop(Workflow):  # type: ignore[misc]
        @step  # type: ignore[untyped-decorator]
        async def search(self, _: StartEvent) -> Found:
            return Found(ranked=searched(example), answers=[])

        @step  # type: ignore[untyped-decorator]
        async def reply(self, found: Found) -> Found | StopEvent:
            number = len(found.answers) + 1
            answers = [*found.answers, asked(model, example, found.ranked, number)]
            if stable(answers) or number == ROUNDS:
                return StopEvent(result=answers)
            return Found(ranked=found.ranked, answers=answers)

    # the step's annotations are names of this function
    for made in (Loop.search, Loop.reply):
        made.__globals__.update(Found=Found, StartEvent=StartEvent, StopEvent=StopEvent)

    async def run() -> list[str]:
        answers: list[str] = await Loop(timeout=None).run()
        return answers

    answers = asyncio.run(run())
    return Outcome(answers[-1], len(answers), len(answers))


def flashrag(model: ChatModel, examples: Sequence[Example], at_once: int) -> list[Outcome]:
    """Its iterative pipeline: every question to the full budget, all of them in each iteration."""
    answers = [""] * len(examples)
    for number in range(1, ROUNDS + 1):
        with ThreadPoolExecutor(at_once) as pool:
            answers = list(
                pool.map(
                    lambda example, number=number: asked(model, example, searched(example), number),
                    examples,
                )
            )
    return [Outcome(reply, ROUNDS, ROUNDS) for reply in answers]


def ways() -> dict[str, Way]:
    """Those of the cumulative loop that are installed."""
    there: dict[str, Way] = {
        "plain": ours(CUMULATIVE, STABLE),
        "ahead": ours(CUMULATIVE, STABLE, speculate=True),
    }
    if find_spec("langgraph") is not None:
        there["langgraph"] = langgraph
    if find_spec("workflows") is not None:
        there["llamaindex"] = llamaindex
    return there


CHOOSING: dict[str, Way] = {
    "iterative, plain": ours(ITERATIVE, STABLE),
    "iterative, ahead": ours(ITERATIVE, STABLE, speculate=True),
}
FIXED: dict[str, Way] = {
    "iterative, fixed-3, an answer a round": ours(ITERATIVE, ReadsAnswers(3)),
    "iterative, fixed-3, asked at the end": ours(ITERATIVE, FixedPolicy(3)),
    "iterative, fixed-3, asked at the end, ahead": ours(ITERATIVE, FixedPolicy(3), speculate=True),
}


# --- a server like a remote one ------------------------------------------------------------------
@dataclass(slots=True)
class Served:
    """What a server saw: requests, and those whose client left before the reply."""

    requests: int = 0
    left: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)


@contextmanager
def remote_server(served: Served) -> Iterator[str]:
    """Its URL: replies made of the prompt alone, after the time a hosted model takes."""
    scripted = ScriptedModel()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            stop = body.get("stop") or ()
            request = GenerationRequest(
                prompt=body["prompt"],
                max_tokens=body["max_tokens"],
                stop=(stop,) if isinstance(stop, str) else tuple(stop),
            )
            made = scripted.generate(request)
            prompt, completion = made.prompt_tokens or 0, made.completion_tokens or 0
            seconds = NETWORK_S + prompt / PROMPT_TOKENS_A_SECOND + completion / TOKENS_A_SECOND
            with served.lock:
                served.requests += 1
            if select.select([self.connection], [], [], seconds)[0]:
                with served.lock:
                    served.left += 1
                self.close_connection = True
                return
            usage = {"prompt_tokens": prompt, "completion_tokens": completion}
            choice = {"index": 0, "text": made.completions[0].text, "finish_reason": "stop"}
            reply = json.dumps({"choices": [choice], "usage": usage, "model": "remote"}).encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(reply)))
            self.end_headers()
            self.wfile.write(reply)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class Counting:
    """Passes requests on and adds up what the model had to do for them."""

    def __init__(self, model: ChatModel) -> None:
        self._model = model
        self._lock = threading.Lock()
        self.evaluated = 0
        self.generated = 0

    @property
    def name(self) -> str:
        return self._model.name

    @property
    def api(self) -> Literal["chat", "completion"]:
        return self._model.api

    def generate(self, request: GenerationRequest) -> Generation:
        made = self._model.generate(request)
        with self._lock:
            self.evaluated += (made.prompt_tokens or 0) - (made.cached_tokens or 0)
            self.generated += made.completion_tokens or 0
        return made


# --- measuring -----------------------------------------------------------------------------------
@dataclass(slots=True)
class Tally:
    """Seconds and outcomes of a way, question by question."""

    seconds: float = 0.0
    cpu_s: float = 0.0
    evaluated: int = 0
    generated: int = 0
    outcomes: list[Outcome] = field(default_factory=list)


def in_turn(
    models: dict[str, ChatModel], there: dict[str, Way], examples: Sequence[Example]
) -> dict[str, Tally]:
    """Every way at every question, another one first each time; a first question warms them up."""
    tallies = {name: Tally() for name in there}
    names = list(there)
    for number, example in enumerate(examples):
        for name in names[number % len(names) :] + names[: number % len(names)]:
            counting, tally = Counting(models[name]), tallies[name]
            begun, cpu = time.perf_counter(), time.process_time()
            outcome = there[name](counting, example)
            if number:
                tally.seconds += time.perf_counter() - begun
                tally.cpu_s += time.process_time() - cpu
                tally.evaluated += counting.evaluated
                tally.generated += counting.generated
                tally.outcomes.append(outcome)
    return tallies


def figures(where: str, tallies: dict[str, Tally], plain: str) -> dict[str, float]:
    """Seconds a question, how many times those of ``plain``, calls, and answers that are equal to its."""
    told: dict[str, float] = {}
    base = tallies[plain]
    for name, tally in tallies.items():
        count = len(tally.outcomes)
        same = sum(
            ours.answer == theirs.answer
            for ours, theirs in zip(tally.outcomes, base.outcomes, strict=True)
        )
        told[f"{where}: {name}: seconds a question"] = tally.seconds / count
        told[f"{where}: {name}: seconds over those of {plain!r}"] = tally.seconds / base.seconds
        for what, amount in (
            ("CPU seconds", tally.cpu_s),
            ("prompt tokens evaluated", tally.evaluated),
            ("tokens generated", tally.generated),
        ):
            if amount:
                told[f"{where}: {name}: {what} a question"] = amount / count
        told[f"{where}: {name}: calls a question"] = (
            sum(outcome.calls for outcome in tally.outcomes) / count
        )
        if any(outcome.wasted for outcome in tally.outcomes):
            wasted = sum(outcome.wasted for outcome in tally.outcomes) / count
            told[f"{where}: {name}: calls wasted a question"] = wasted
        told[f"{where}: {name}: share of answers equal"] = same / count
    return told


def measured(
    where: str, make: Callable[[ExitStack], ChatModel], examples: Sequence[Example], at_once: int
) -> Iterator[dict[str, float]]:
    """All figures with one kind of model, kind of loop by kind of loop."""
    for there in (ways(), CHOOSING, FIXED):
        plain = next(iter(there))
        with ExitStack() as stack:
            models = {name: make(stack) for name in there}
            tallies = in_turn(models, there, examples)
            if plain == "plain":
                own = make(stack)
                flashrag(own, examples[:1], at_once)
                begun = time.perf_counter()
                outcomes = flashrag(own, examples[1:], at_once)
                seconds = time.perf_counter() - begun
                tallies["flashrag's way, all at once"] = Tally(seconds=seconds, outcomes=outcomes)
        yield figures(where, tallies, plain)


def on_embedded(examples: Sequence[Example]) -> Iterator[dict[str, float]]:
    """On the model that comes with the package."""
    yield from measured(
        "embedded", lambda stack: stack.enter_context(EmbeddedModel.load()), examples, at_once=2
    )


def on_remote(examples: Sequence[Example]) -> Iterator[dict[str, float]]:
    """On a server as far away as a hosted one."""
    served = Served()
    settings = OpenAISettings(api="completion", api_key="none")
    with remote_server(served) as url:

        def remote(stack: ExitStack) -> ChatModel:
            return stack.enter_context(OpenAICompatibleModel(url, "remote", settings=settings))

        yield from measured("remote", remote, examples, at_once=8)
    yield {"remote: share of requests whose client left": served.left / served.requests}


PLACES = {"remote": on_remote, "embedded": on_embedded}


def main(questions: int = QUESTIONS) -> dict[str, float]:
    """Figures by name; a question more is asked to warm up."""
    examples = load("generated", limit=questions + 1)
    told: dict[str, float] = {}
    for place in PLACES.values():
        for part in place(examples):
            told |= part
    return told


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--questions", type=int, default=QUESTIONS)
    parser.add_argument("--only", choices=PLACES)
    chosen = parser.parse_args()
    asked_for = load("generated", limit=chosen.questions + 1)
    for wanted in (chosen.only,) if chosen.only else PLACES:
        for part in PLACES[wanted](asked_for):
            for figure, value in part.items():
                print(f"{value:12.4g}  {figure}", flush=True)
