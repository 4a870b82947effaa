"""A planning agent: it drafts a plan step by step; its control may retrieve, ask or think again."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from time import perf_counter
from types import MappingProxyType
from typing import Annotated, Literal

from suffice.contracts import (
    ChatModel,
    ContradictionDetector,
    Generation,
    GenerationRequest,
    Judge,
    Retriever,
)
from suffice.errors import InternalError, UsageError, unknown_name
from suffice.loops.calls import NOTHING_ASKED, check_whole, sampling_seed, usage_of, usage_sum
from suffice.loops.planning.parsing import (
    PLAN_SCHEMA,
    ParsedPlan,
    PlanText,
    clarifying_question,
    joined_steps,
    parse_candidate,
    parse_plan,
    parse_yes_no,
)
from suffice.loops.record.session import Recorder, RecordSummary, SessionSettings, record_all
from suffice.options import Option
from suffice.policies.gate.gate import Gate, GateDecision, read_step
from suffice.policies.gate.gate_settings import MOST_STEPS, GateSettings, PlanAction, RiskModel
from suffice.signals.samples import MarkerDetector
from suffice.trace.plan_traces import (
    Candidate,
    PlanGold,
    PlanKey,
    PlanOutcome,
    PlanRecord,
    PlanStep,
    PlanTask,
    plan_writer,
)
from suffice.trace.rounds.records import Passage

Upfront = Literal["never", "first-step", "every-step"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentControl:
    name: str
    upfront: Upfront = "never"
    reviews: bool = False
    k: int = 6
    gate: GateSettings | None = None

    def __post_init__(self) -> None:
        if self.k < 1:
            raise UsageError(f"k must be at least 1, found {self.k}")
        if self.gate is not None and (self.upfront != "never" or self.reviews):
            raise UsageError("a gate decides when to retrieve; leave upfront and reviews out")


GATED = "confidence-gated"
AGENTS: Mapping[str, AgentControl] = MappingProxyType(
    {
        control.name: control
        for control in (
            AgentControl(name="vanilla"),
            AgentControl(name="fixed-top-k", upfront="first-step"),
            AgentControl(name="always-retrieve", upfront="every-step"),
            AgentControl(name="self-rag", reviews=True),
            AgentControl(name=GATED),
        )
    }
)
"""By name; ``confidence-gated`` still wants its gate: :func:`agent_control`."""


def agent_control(name: str, gate: GateSettings | None = None, *, k: int = 6) -> AgentControl:
    """Return a variant by name; ``gate`` is for ``confidence-gated``, ``None``: the published gate."""
    if name not in AGENTS:
        raise UsageError(unknown_name("agent", name, AGENTS))
    if name == GATED:
        return AgentControl(name=name, gate=GateSettings.published() if gate is None else gate)
    return replace(AGENTS[name], k=k)


AskUser = Callable[[PlanTask, str], str | None]
"""``ask(task, question)``: the user's answer, or ``None`` when there is none to be had."""

_PUBLISHED_RISK = RiskModel()
_MARKERS = MarkerDetector()
_NO_USAGE = replace(NOTHING_ASKED, answer_calls=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanningSettings:
    """How a plan is drafted (paper 4, section 6.3)."""

    candidates: Annotated[
        int, Option(metavar="K", at_least=1, help="next steps to draw for a decision")
    ] = 2
    temperature: Annotated[float, Option(metavar="T", help="temperature of these draws")] = 0.6
    top_p: float = 1.0
    max_steps: int = MOST_STEPS
    retries: int = 2
    max_candidate_tokens: int = 48
    max_plan_tokens: Annotated[
        int, Option(metavar="N", at_least=1, help="most tokens of the final plan's JSON")
    ] = 512
    max_passage_chars: int = 2000
    json_schema: Annotated[
        bool, Option(help="do not make the server enforce the final plan's schema")
    ] = True

    def __post_init__(self) -> None:
        check_whole(self, "retries")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRun:
    steps: tuple[PlanStep, ...]
    outcome: PlanOutcome


class PlanningAgent:
    """An agent that plans tasks with one model, one retriever and one control.

    Candidates of a step depend on the seed, the task, the step and what the model was shown, not on
    the control: agents that saw the same are given the same candidates, and share replies in a cache.
    ``detector`` finds contradictions (``None``: the published markers). ``ask`` asks the user; without it an
    agent that wants to ask goes on without an answer.
    """

    def __init__(
        self,
        model: ChatModel,
        control: AgentControl,
        retriever: Retriever | None = None,
        *,
        settings: PlanningSettings | None = None,
        detector: ContradictionDetector | None = None,
        ask: AskUser | None = None,
    ) -> None:
        gate = control.gate
        if gate is None and control.name == GATED:
            raise UsageError(
                f"the agent {GATED} needs its gate: agent_control({GATED!r}) brings one"
            )
        if gate is not None:
            Gate(gate, detector)  # what is wrong with the pair is said now, not in the first run
        may_look = gate is not None and gate.budget != 0
        retrieves = control.upfront != "never" or control.reviews or may_look
        if retrieves and retriever is None:
            raise UsageError(f"the agent {control.name} retrieves; give it a retriever")
        self.model = model
        self.control = control
        self.retriever = retriever
        self.settings: PlanningSettings = PlanningSettings() if settings is None else settings
        self.detector = detector
        self.ask = ask

    def run(self, task: PlanTask, *, seed: int = 42) -> PlanRun:
        """Plan a task.

        The run ends when the plan has the task's steps, when the gate says STOP, or after ``max_steps``
        decisions; then the model writes the result. An unreadable result is asked for again; if none can be
        read, the drafted steps are the plan.
        """
        ran = self.run_unless(threading.Event(), task, seed=seed)
        if ran is None:
            raise InternalError("a run ended without a stop")
        return ran

    def run_unless(
        self, stop: threading.Event, task: PlanTask, *, seed: int = 42
    ) -> PlanRun | None:
        """Plan a task as :meth:`run`; return ``None`` if ``stop`` is set before the end."""
        return _Run(self, task, seed).through(stop)


class _Run:
    def __init__(self, agent: PlanningAgent, task: PlanTask, seed: int) -> None:
        self.agent, self.task, self.seed = agent, task, seed
        self.text = PlanText(task, agent.settings.max_passage_chars)
        self.plan: list[str] = []
        gate = agent.control.gate
        self.gate = None if gate is None else Gate(gate, agent.detector)
        self.usage = _NO_USAGE

    def through(self, stop: threading.Event) -> PlanRun | None:
        steps: list[PlanStep] = []
        ended = "max-steps"
        for number in range(1, self.agent.settings.max_steps + 1):
            if len(self.plan) >= self.task.total_steps:
                break
            steps.append(self._step(number))
            if steps[-1].action == PlanAction.STOP:
                ended = "stop"
                break
            if stop.is_set():
                return None
        if len(self.plan) >= self.task.total_steps:
            ended = "complete"
        return PlanRun(steps=tuple(steps), outcome=self._result(ended))

    def _step(self, number: int) -> PlanStep:
        self.usage = _NO_USAGE
        control = self.agent.control
        query: str | None = None
        passages: tuple[Passage, ...] = ()
        if control.upfront == "every-step" or (control.upfront == "first-step" and number == 1):
            query, passages = self._retrieve(control.k, self.plan[-1] if self.plan else "")
        drawn, again = self._candidates(number)
        texts = [candidate.text for candidate in drawn]
        decision = self._decide(texts, number)
        made = PlanStep(
            number=number,
            action=decision.action if query is None else PlanAction.RETRIEVE,
            candidates=drawn,
            reason=decision.reason if query is None else f"the agent {control.name} retrieves here",
            values=decision.values,
            k=control.k if query is not None else decision.k,
            query=query,
            passages=passages,
            sampled_again=again,
            blocked=decision.blocked,
        )
        made = self._carry_out(made, decision)
        if control.reviews and decision.action is not PlanAction.STOP:
            made = self._review(made)
        return replace(made, usage=self.usage)

    def _decide(self, candidates: Sequence[str], number: int) -> GateDecision:
        total = self.task.total_steps
        if self.gate is not None:
            return self.gate.act(candidates, self.plan, number, total)
        detector = self.agent.detector or _MARKERS
        seen = read_step(_PUBLISHED_RISK, detector, candidates, self.plan, total)
        return GateDecision(
            action=PlanAction.EXECUTE,
            reason=f"the agent {self.agent.control.name} executes every step",
            values=seen.values,
        )

    def _carry_out(self, made: PlanStep, decision: GateDecision) -> PlanStep:
        revise = self.gate is not None and self.gate.settings.revises
        best = next((candidate.text for candidate in made.candidates if candidate.text), "")
        action = decision.action
        if action is PlanAction.STOP:
            return made
        redraw = False
        if action is PlanAction.RETRIEVE:
            query, passages = self._retrieve(decision.k, best)
            made, redraw = replace(made, query=query, passages=passages), revise and bool(passages)
        elif action is PlanAction.REPLAN and revise and decision.conflict is not None:
            made = replace(made, dropped=self.plan.pop(decision.conflict))
            self.text.drop(decision.conflict + 1, made.dropped or "", self.plan)
            redraw = True
        elif action is PlanAction.ASK:
            made, redraw = self._clarify(made, revise=revise)
        if redraw:
            again = self._draw(made.number, 1, "again")
            made = replace(made, redrawn=again)
            best = again[0].text or best
        if best:
            self.plan.append(best)
            self.text.take(len(self.plan), best)
        return replace(made, chosen=best or None)

    def _clarify(self, made: PlanStep, *, revise: bool) -> tuple[PlanStep, bool]:
        """Ask the user; also return whether the step is drawn again with the answer."""
        total, number = self.task.total_steps, len(self.plan) + 1
        question = clarifying_question(
            number, total, [candidate.text for candidate in made.candidates]
        )
        reply = None if self.agent.ask is None else self.agent.ask(self.task, question)
        if reply is None or not reply.strip():
            return replace(made, question=question), False
        self.text.heard(question, reply.strip())
        return replace(made, question=question, reply=reply), revise

    def _review(self, made: PlanStep) -> PlanStep:
        """Ask the model whether it needs evidence; an unreadable reply means NO."""
        prompt = self.text.ask_review(self.agent.model)
        reply = self._generate(GenerationRequest(prompt=prompt, max_tokens=8, stop=("\n\n",)))
        verdict = reply.completions[0].text
        wanted = parse_yes_no(verdict)
        values = {**made.values, "verdict_read": float(wanted is not None)}
        made = replace(made, verdict=verdict, values=values)
        if not wanted:
            return made
        query, passages = self._retrieve(self.agent.control.k, made.chosen or "")
        return replace(
            made,
            action=PlanAction.RETRIEVE,
            reason="the model asked for evidence",
            k=self.agent.control.k,
            query=query,
            passages=passages,
        )

    def _candidates(self, number: int) -> tuple[tuple[Candidate, ...], int]:
        """Draw K candidates, the empty ones again; also return the number drawn again."""
        wanted = self.agent.settings.candidates
        drawn = self._draw(number, wanted, "")
        again = 0
        for attempt in range(1, self.agent.settings.retries + 1):
            empty = [at for at, candidate in enumerate(drawn) if not candidate.text]
            if not empty:
                break
            again += len(empty)
            fresh = iter(self._draw(number, len(empty), f"retry {attempt}"))
            drawn = tuple(candidate if candidate.text else next(fresh) for candidate in drawn)
        return drawn, again

    def _draw(self, number: int, n: int, tag: str) -> tuple[Candidate, ...]:
        settings = self.agent.settings
        reply = self._generate(
            GenerationRequest(
                prompt=self.text.ask_next(self.agent.model, len(self.plan) + 1),
                n=n,
                temperature=settings.temperature,
                top_p=settings.top_p,
                max_tokens=settings.max_candidate_tokens,
                seed=self._seed(number, tag),
                stop=("\n\n", f"\nStep {len(self.plan) + 2}"),
            )
        )
        texts = [completion.text for completion in reply.completions]
        return tuple(Candidate(text=parse_candidate(text), response=text) for text in texts)

    def _result(self, ended: str) -> PlanOutcome:
        """Ask for the final JSON object until it can be read."""
        self.usage = _NO_USAGE
        settings, text, attempt = self.agent.settings, "", 0
        parsed = ParsedPlan(plan="", failure="the model was not asked")
        for attempt in range(1, settings.retries + 2):
            reply = self._generate(
                GenerationRequest(
                    prompt=self.text.ask_result(self.agent.model),
                    # the same words would come again at temperature 0
                    temperature=0.0 if attempt == 1 else settings.temperature,
                    top_p=settings.top_p,
                    max_tokens=settings.max_plan_tokens,
                    seed=self._seed(0, f"result {attempt}"),
                    json_schema=PLAN_SCHEMA if settings.json_schema else None,
                )
            )
            text = reply.completions[0].text
            parsed = parse_plan(text)
            if parsed.parsed is not None:
                break
        return PlanOutcome(
            plan=joined_steps(self.plan) if parsed.parsed is None else parsed.plan,
            ended=ended,
            constraints=parsed.constraints,
            decisions=parsed.decisions,
            response=text,
            attempts=attempt,
            parsed=parsed.parsed,
            parse_failure=parsed.failure,
            usage=self.usage,
        )

    def _retrieve(self, k: int, last: str) -> tuple[str, tuple[Passage, ...]]:
        parts = (self.task.goal, self.task.context, last)
        query = " ".join(part for part in parts if part)
        retriever = self.agent.retriever
        if retriever is None:
            raise UsageError(f"the agent {self.agent.control.name} retrieves; give it a retriever")
        start = perf_counter()
        passages = tuple(retriever.retrieve(query, k))
        took = perf_counter() - start
        self.text.show(passages)
        self.usage = replace(
            self.usage,
            retrievals=(self.usage.retrievals or 0) + 1,
            latency_s=(self.usage.latency_s or 0.0) + took,
        )
        return query, passages

    def _generate(self, request: GenerationRequest) -> Generation:
        start = perf_counter()
        reply = self.agent.model.generate(request)
        took = perf_counter() - start
        # a kept reply says how long it took when it was drawn
        cost = replace(
            usage_of(reply, calls=request.n),
            latency_s=took if reply.latency_s is None else reply.latency_s,
        )
        self.usage = usage_sum(self.usage, cost)
        return reply

    def _seed(self, number: int, tag: str) -> int:
        return sampling_seed(self.seed, f"{self.task.id} {tag}".strip(), number)


UNREADABLE = "unreadable"  # begins the recorded word of a judge whose reply could not be read


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanJob:
    """One run to record. The gold record passes to the writer and the judge; the agent does not read it."""

    task: PlanTask
    agent: PlanningAgent
    retriever: str | None
    seed: int
    gold: PlanGold | None = None

    @property
    def key(self) -> PlanKey:
        return self.task.id, self.agent.control.name, self.retriever, self.seed


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRecorderSettings(SessionSettings):
    judge: Judge | None = None


def record_plans(
    jobs: Sequence[PlanJob], out: str | Path, settings: PlanRecorderSettings
) -> RecordSummary:
    """Record every run that ``out`` does not hold yet; see :func:`record_all`."""
    keys = [job.key for job in jobs]
    if len(set(keys)) < len(keys):
        twice = next(key for at, key in enumerate(keys) if key in keys[:at])
        raise UsageError(
            f"two jobs have the same run {twice} (task, agent, retriever, seed); give one of them"
        )
    with plan_writer(out, run=settings.run) as writer:
        recorder = Recorder(
            noun="runs", key=lambda job: job.key, record=partial(_recorded, settings.judge)
        )
        return record_all(jobs, recorder, writer, settings)


def _recorded(judge: Judge | None, job: PlanJob, stop: threading.Event) -> PlanRecord | None:
    ran = job.agent.run_unless(stop, job.task, seed=job.seed)
    if ran is None:
        return None
    outcome = ran.outcome
    if judge is not None and job.gold is not None and job.gold.constraints:
        # a plan succeeds when it satisfies every hidden constraint
        verdicts = [judge.judge(token, outcome.plan) for token in job.gold.constraints]
        said = [f"{verdict.parsed or UNREADABLE}: {verdict.reason}" for verdict in verdicts]
        outcome = replace(
            outcome, semantic=all(verdict.ok for verdict in verdicts), verdict="; ".join(said)
        )
    return PlanRecord(
        task=job.task,
        agent=job.agent.control.name,
        retriever=job.retriever,
        seed=job.seed,
        steps=ran.steps,
        outcome=outcome,
        gold=job.gold,
    )
