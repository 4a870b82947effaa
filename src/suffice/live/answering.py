"""Answering of one question over a corpus under a policy."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from suffice.contracts import (
    AnswerSet,
    Certainty,
    ChatModel,
    Decision,
    Encoder,
    Message,
    Retriever,
    SetPolicy,
    StopPolicy,
    whole_text,
)
from suffice.errors import InternalError, SufficeError, UsageError, counted, unknown_name
from suffice.live.loop import Loop
from suffice.live.requirements import (
    ChosenPolicy,
    LoopOutput,
    check_confidence,
    check_policy,
    choose_policy,
    cluster_cosine,
    differences,
    has_confidence,
)
from suffice.live.watching import Budgets, Meter, Window, answer_round
from suffice.loops import LOOPS, make_pipeline
from suffice.loops.calls import put_alone, usage_sum
from suffice.loops.ranked import BudgetedSettings, CumulativeSettings
from suffice.loops.steps import EVERYTHING, LoopSettings, RoundReads, Step
from suffice.retrieval.retrievers import IndexMaker, Retrieval, corpus_retriever
from suffice.scoring import AnswerChoice
from suffice.signals.asking.judge_support import JUDGE_TOKENS, judge_tokens
from suffice.signals.known_signals import SignalSpec, given_by, resolve
from suffice.trace.rounds.records import (
    LoopView,
    Passage,
    Question,
    Round,
    StoppedBy,
    Usage,
    known_sum,
)

DECLINED = "no confident answer"
CANNOT_ANSWER = "cannot answer"


class NothingFound(UsageError):  # noqa: N818
    """The corpus has no passage for a question."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """An answer with the rounds behind it, and the decision after each.

    ``answer`` is that of round ``answer_round`` (from 1), or :data:`DECLINED`, or :data:`CANNOT_ANSWER`.
    ``rounds`` are all rounds of the loop, and ``decisions[t - 1]`` is the decision after round t.
    ``stopped_by`` is ``policy``, ``budget``, ``end`` (of the passages), or ``error`` (after at least one
    round), ``reason`` says why in words. ``confidence`` is the policy's in that round (``None``: undefined,
    or the policy has none); ``declined``: it was too low, or the policy's answer set is empty.

    ``answer_set`` is there if the policy promises one, ``usd`` the cost in dollars if there are prices.
    ``saved_rounds`` are left of the full budget, as far as passages were left. ``unasked`` counts rounds
    without a call for an answer, since nothing reads it: their ``answer`` is ``None``. ``notes`` are
    sentences that a reader must know about the loop.
    """

    answer: str
    rounds: tuple[Round, ...]
    decisions: tuple[Decision, ...]
    stopped_by: StoppedBy
    reason: str
    answer_round: int
    confidence: float | None
    declined: bool
    answer_set: AnswerSet | None = None
    usd: float | None = None
    saved_rounds: int = 0
    unasked: int = 0
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        held, numbered = (
            self.answer_set,
            enumerate(zip(self.decisions, self.rounds, strict=True), 1),
        )
        return {
            "answer": self.answer,
            "rounds": len(self.rounds),
            "answer_round": self.answer_round,
            "stopped_by": self.stopped_by,
            "reason": self.reason,
            "confidence": self.confidence,
            "declined": self.declined,
            "reasons": [
                {
                    "round": number,
                    "reason": decision.reason,
                    "values": dict(decision.values),
                    "confidence": decision.confidence,
                    "answer": None if self.declined else finished.answer,
                }
                for number, (decision, finished) in numbered
            ],
            "passages": [
                asdict(passage) for finished in self.rounds for passage in finished.passages or ()
            ],
            "usage": {**total_usage(self.rounds), "usd": self.usd},
            "saved_rounds": self.saved_rounds,
            "unasked": self.unasked,
            "answer_set": held and held.to_json(),
            "samples": held and [list(finished.samples or ()) for finished in self.rounds],
        }


def total_usage(rounds: Sequence[Round]) -> dict[str, int | None]:
    """Sum usage over the rounds; ``None`` where a round does not say."""
    usages = [finished.usage for finished in rounds]
    tokens = ("prompt_tokens", "cached_tokens", "completion_tokens")
    calls = ("llm_calls", "sample_calls", "judge_calls", "rerank_calls")
    names = (*calls, *tokens, *(f"sample_{name}" for name in tokens))
    sums = {name: known_sum([getattr(usage, name) for usage in usages]) for name in names}
    judging = {
        name: known_sum([judge_tokens(one, name) for one in usages]) for name in JUDGE_TOKENS
    }
    return sums | judging


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """Tokens of all calls of a question, with samples, judges and looks; ``None``: unknown for some call."""

    prompt: int | None = None
    cached: int | None = None
    completion: int | None = None

    @classmethod
    def of(cls, rounds: Sequence[Round]) -> Tokens:
        def total(part: str) -> int | None:
            name = f"{part}_tokens"
            further = ("sample", "judge", "look")
            parts = [getattr(finished.usage, name) for finished in rounds]
            parts += [
                getattr(finished.usage, f"{kind}_{name}")
                for finished in rounds
                for kind in further
                if getattr(finished.usage, f"{kind}_calls")
            ]
            return known_sum(parts)

        return cls(prompt=total("prompt"), cached=total("cached"), completion=total("completion"))


def reads_of(policy: StopPolicy, loop: LoopSettings, choice: AnswerChoice) -> RoundReads:
    """Return the parts of rounds that a policy reads before the end; replay charges them."""
    chooses = choice.rule != "latest"
    of_samples = loop.majority and policy.needs.samples > 0
    reads = policy.needs.answers or any(spec.answers for spec in policy.specs)
    return RoundReads(
        answers=chooses or of_samples or reads,
        at_end=chooses or policy.facts.coverage is not None or has_confidence(policy),
    )


def _with_answer(
    rounds: tuple[Round, ...], steps: Sequence[Step], tell: Callable[[str], None] | None
) -> tuple[tuple[Round, ...], SufficeError | None]:
    failed: SufficeError | None = None
    number = len(rounds)
    while True:
        try:
            last = steps[number - 1].answered(rounds[number - 1], tell)
        except InternalError:
            raise
        except SufficeError as error:
            failed, tell = failed or error, None  # what was told of it cannot be taken back
            number //= 2
            if not number:
                raise failed from None
        else:
            return (*rounds[: number - 1], last), failed


Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class AskSettings:
    """Settings of a question; ``None``: as the policy needs, else the loop's default.

    ``budgets`` are limits in addition to policy and rounds, ``decline_below`` is a confidence in [0, 1],
    ``choose`` the returned answer, ``loop`` further settings of the loop by field.
    """

    pipeline: str | None = None
    rounds: int | None = None
    samples: int | None = None
    seed: int = 42
    loop: Mapping[str, Any] = field(default_factory=dict)
    budgets: Budgets = field(default_factory=Budgets)
    choose: str = "latest"
    decline_below: float | None = None
    encoder: Encoder | None = None
    retrieval: Retrieval = field(default_factory=Retrieval)

    def __post_init__(self) -> None:
        AnswerChoice.parse(self.choose)
        if self.decline_below is not None and not 0.0 <= self.decline_below <= 1.0:
            raise UsageError(f"decline_below must be in [0, 1], found {self.decline_below!r}")
        if self.pipeline is not None and self.pipeline not in LOOPS:
            raise UsageError(unknown_name("pipeline", self.pipeline, LOOPS))

    def pipeline_for(self, policy: StopPolicy) -> str:
        return self.pipeline or policy.needs.pipeline or CumulativeSettings.pipeline

    def choice(self, policy: StopPolicy) -> AnswerChoice:
        return AnswerChoice.parse(self.choose).or_own(policy.needs.returns)

    def read_by(self, policy: StopPolicy) -> tuple[SignalSpec, ...]:
        """Return the signals that decide and that choose the answer."""
        name = self.choice(policy).signal
        return (*policy.specs, *([resolve(name, also=(name,))] if name else []))


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveLoop:
    """A policy in a loop that gives its inputs; ``encoder`` serves its signals and clusters."""

    policy: StopPolicy
    loop: LoopSettings
    model: ChatModel
    settings: AskSettings
    encoder: Encoder | None = None

    def __post_init__(self) -> None:
        settings = self.settings
        check_confidence(self.policy, choose=settings.choose, decline_below=settings.decline_below)

    @classmethod
    def of(
        cls, chosen: ChosenPolicy, model: ChatModel, settings: AskSettings, tell: Tell
    ) -> LiveLoop:
        """Settle the settings that depend on the model; ``tell`` gets notes on them."""
        loop, policy = _settled(chosen, model, settings, tell)
        asked = settings.samples
        needs = policy.needs
        if asked is not None and not loop.samples:
            tell(
                "samples have no effect: neither the policy nor a vote reads any, so none is drawn"
            )
        elif asked is not None and needs.other_samples and loop.samples != needs.samples > 0:
            fitted = "calibrated" if policy.facts.promise else "fitted"
            tell(
                f"the policy was {fitted} on {counted(needs.samples, 'sample')} a round; on {loop.samples} "
                f"{needs.other_samples}"
            )
        return cls(policy=policy, loop=loop, model=model, settings=settings)

    @property
    def encodes(self) -> bool:
        needs = self.policy.needs
        return needs.encoder or needs.clusters is not None

    def reaching(self, retrieval: Retrieval) -> Retrieval:
        """Return the same loop, with a pool of as many passages as its rounds may show."""
        return retrieval.reaching(self.loop.shown(self.loop.rounds))

    def with_models(
        self, encoder: Encoder | None, retrieval: Retrieval | None, tell: Tell
    ) -> LiveLoop:
        """Return the loop with all its models; ``tell`` gets differences from the loop of a promise."""
        encoder = encoder if self.encodes else None
        cosine = cluster_cosine(self.policy.needs.clusters, encoder)
        loop = replace(self.loop, cluster_cosine=cosine)
        # not asked when the policy reads none
        logprobs = not self.policy.needs.tokens or bool(
            getattr(self.model, "supports_logprobs", lambda: True)()
        )
        output = LoopOutput(
            settings=loop,
            logprobs=logprobs,
            encoder=encoder is not None,
            reranker=retrieval is None or retrieval.reranks,
        )
        check_policy(self.policy, output, self.settings.read_by(self.policy))
        here = {**asdict(loop), "model": self.model.name, "pipeline": loop.pipeline}
        if retrieval is not None:
            here |= retrieval.stated
        for difference in differences(self.policy, here):
            tell(f"the policy's promise may not hold here: {difference}")
        return replace(self, loop=loop, encoder=encoder)

    def answer(
        self,
        question: str,
        retriever: Retriever,
        *,
        watched: Loop | None = None,
        every_answer: bool = False,
        earlier: tuple[Message, ...] = (),
        follow: Callable[[Round, Decision], None] | None = None,
        tell: Callable[[str], None] | None = None,
    ) -> Answered:
        """Answer a question: run the loop until the policy, a budget or the passages end it.

        A round gets an answer if the policy or the answer choice reads it, or with ``every_answer``; else
        only the last round gets one, after the end. ``watched`` decides by this loop's policy. ``follow``
        gets every round, ``tell`` each piece of the answer.
        """
        if not question.strip():
            raise UsageError("the question is empty; type what you want to know")
        policy, settings = self.policy, self.settings
        question, least = whole_text(question), settings.decline_below
        choice = settings.choice(policy)
        live = watched or Loop.alone(policy, max_rounds=self.loop.rounds)
        window = live.spending.window if live.spending else Window.of(settings.budgets, None)
        meter = live.spending = Meter(self.model, settings.budgets, window)
        # the model itself is asked: its test call is no part of the answer
        loop = self.loop.settled(self.model)
        decisions: list[Decision] = []
        reads = EVERYTHING if every_answer else reads_of(policy, loop, choice)
        steps: list[Step] = []
        before: Usage | None = None

        def declines(decision: Decision) -> bool:
            return least is not None and (
                decision.confidence is None or decision.confidence < least
            )

        def ending(rounds: Iterable[Step]) -> tuple[StoppedBy, str]:
            for step in rounds:
                steps.append(step)
                finished = step.finished()
                if before is not None and step.number == 1:
                    usage = usage_sum(finished.usage, before)
                    finished = replace(finished, usage=usage)
                decision = live.observe(finished)
                decisions.append(decision)
                if follow is not None:
                    follow(finished, decision)
                if decision.stop:
                    return decision.stopped_by or "policy", decision.reason
            if not decisions:
                raise NothingFound("the corpus gave no passage for this question")
            if len(decisions) >= loop.rounds:
                return "budget", f"the budget of {counted(loop.rounds, 'round')} is spent"
            return "end", "pool exhausted: no passage is left to show"

        if earlier:
            question, before = put_alone(meter, earlier, question)
        if question != live.question:
            live.restate(question)
        try:
            pipeline = make_pipeline(meter, loop, self.encoder, policy.needs.filter)
            coming = pipeline.steps(Question(id="ask", text=question), retriever, reads)
            stopped_by, reason = ending(coming)
        except SufficeError as error:
            if isinstance(error, InternalError) or not decisions:
                raise
            stopped_by, reason = "error", str(error)
        read = live.rounds[: len(decisions)]
        left = 0 if stopped_by == "end" else max(0, loop.rounds - len(read))
        # an answer that may be withheld is not streamed
        withheld = isinstance(policy, SetPolicy) or declines(decisions[-1])
        rounds, failed = _with_answer(read, steps, None if withheld else tell)
        if failed is not None:
            stopped_by, reason = "error", str(failed)
        view, told = LoopView(question, rounds), tuple(decisions[: len(rounds)])
        chosen = answer_round(choice, view, told, live.signals) or len(rounds)
        declined = declines(decisions[chosen - 1])
        said = DECLINED if declined else rounds[chosen - 1].answer_text
        answer_set = None
        if isinstance(policy, SetPolicy):
            answer_set = policy.answer_set(rounds, stopped=stopped_by == "policy")
            if not answer_set.answers:
                said, declined = CANNOT_ANSWER, True
        silent = sum(finished.answer is None for finished in rounds)
        return Answered(
            answer=said,
            rounds=rounds,
            decisions=told,
            stopped_by=stopped_by,
            reason=reason,
            answer_round=chosen,
            confidence=decisions[chosen - 1].confidence,
            declined=declined,
            answer_set=answer_set,
            usd=meter.usd,
            saved_rounds=left,
            unasked=silent * (loop.samples if loop.majority else 1),
        )


def _settled(
    chosen: ChosenPolicy, model: ChatModel, settings: AskSettings, tell: Tell
) -> tuple[LoopSettings, StopPolicy]:
    needs, for_model = chosen.policy.needs, chosen.for_model
    certainty = settings.loop.get("certainty")
    settles = LOOPS[settings.pipeline_for(chosen.policy)].settles
    if "certainty" not in settles and for_model is None:
        return _loop_settings(chosen, settings), chosen.policy
    if certainty is None and for_model is None and needs.samples and not needs.tokens:
        certainty = "self_consistency"
    settled = BudgetedSettings(certainty=certainty or "auto").settled(model)
    tell(f"certainty: {settled.certainty}")
    if for_model is not None:
        sure_by: Certainty = "self_consistency" if settled.majority else "token_probability"
        chosen = replace(chosen, policy=for_model(sure_by))
    loop = _loop_settings(chosen, settings)
    if isinstance(loop, BudgetedSettings):
        wanted = loop.samples or settings.samples or settled.samples
        loop = replace(
            loop, certainty=settled.certainty, samples=wanted if settled.majority else loop.samples
        )
    return loop, chosen.policy


def _loop_settings(chosen: ChosenPolicy, settings: AskSettings) -> LoopSettings:
    wanted, name = chosen.policy.needs.samples, settings.pipeline_for(chosen.policy)
    kind = LOOPS[name]
    stated = set(settings.loop)
    if unknown := stated - {own.name for own in fields(kind)}:
        raise UsageError(f"the {name} pipeline has no setting {min(unknown)!r}")
    loop_fields: dict[str, Any] = {
        **settings.loop,
        **kind.writing({given_by(spec).name for spec in settings.read_by(chosen.policy)}),
        "rounds": settings.rounds or chosen.max_rounds or chosen.policy.facts.max_rounds,
        "seed": settings.seed,
        "samples": (settings.samples or wanted) if wanted else 0,
    }
    return kind(**{name: value for name, value in loop_fields.items() if value is not None})


def ask(
    question: str,
    passages: Sequence[Passage] | Retriever,
    model: ChatModel,
    *,
    policy: StopPolicy | str | Path | None = None,
    settings: AskSettings | None = None,
) -> Answered:
    """Answer a question; see :func:`suffice.ask`. The answer's ``notes`` hold what the user must know."""
    settings = AskSettings() if settings is None else settings
    notes: list[str] = []
    chosen = choose_policy(policy, pipeline=settings.pipeline)
    live = LiveLoop.of(chosen, model, settings, notes.append)
    if isinstance(passages, Retriever):
        live = live.with_models(settings.encoder, None, notes.append)
        return replace(live.answer(question, passages), notes=tuple(notes))
    live = live.with_models(settings.encoder, settings.retrieval, notes.append)
    searched = live.reaching(settings.retrieval)
    index = corpus_retriever(tuple(passages), searched, IndexMaker(encoder=searched.encoder))
    return replace(live.answer(question, index), notes=tuple(notes))
