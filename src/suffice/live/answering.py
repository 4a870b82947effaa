"""Answer one question over a corpus, stopping when a policy says so."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import asdict, dataclass, field, replace
from typing import Any, TypeVar

from suffice.concurrency import Aside, may_be_cut
from suffice.contracts import (
    AnswerSet,
    ChatModel,
    Decision,
    Encoder,
    GenerationRequest,
    Message,
    PassageFilter,
    Retriever,
    SetPolicy,
    StopPolicy,
    whole_text,
)
from suffice.errors import InternalError, SufficeError, UsageError
from suffice.live.budgets import Budgets, Meter, Tab
from suffice.live.loop import Loop, answer_round
from suffice.live.requirements import check_confidence, has_confidence
from suffice.loops.answers.calls import usage_of, usage_sum
from suffice.loops.ranked import CumulativeSettings
from suffice.loops.registry import make_pipeline
from suffice.loops.settings import LoopSettings
from suffice.loops.steps import EVERYTHING, RoundReads, Step
from suffice.scoring import AnswerChoice
from suffice.signals.asking.embedded_novelty import NOVELTY
from suffice.signals.asking.verdicts import JUDGE_TOKENS, judge_tokens
from suffice.signals.spec import given_by
from suffice.trace.rounds.records import LoopView, Question, Round, StoppedBy, Usage

_MOST_TOKENS = 96
_MOST_LETTERS = 1_000  # of a message, from its beginning
_INSTRUCTIONS = (
    "Rewrite the user's last message as one question that can be understood without the conversation. Put "
    "names in place of words such as he, it or there, and change nothing else.\n\n"
    "User: Who wrote Hedda Gabler?\n"
    "Assistant: Henrik Ibsen\n"
    "User: And where was he born?\n"
    "Question: Where was Henrik Ibsen born?"
)


def put_alone(model: ChatModel, earlier: Sequence[Message], question: str) -> tuple[str, Usage]:
    """The question as one that needs no conversation, by one greedy call, and what that cost.

    Where the reply holds none, the question stays as it is.
    """
    said = [*earlier, Message(role="user", content=question)]
    lines = [
        f"{turn.role.capitalize()}: {' '.join(turn.content.split())[:_MOST_LETTERS]}"
        for turn in said
    ]
    prompt = "\n".join([_INSTRUCTIONS, "", *lines, "Question:"])
    chats = model.api == "chat"
    reply = model.generate(
        GenerationRequest(
            prompt=(Message(role="user", content=prompt),) if chats else prompt,
            max_tokens=_MOST_TOKENS,
            stop=("\n\n",) if chats else ("\n",),
        )
    )
    first, _, _ = reply.completions[0].text.strip().partition("\n")
    usage = replace(usage_of(reply, calls=1), latency_s=reply.latency_s)
    return first.removeprefix("Question:").strip() or question, usage


# --- the next round, begun while a round is answered and decided about ----------------------------
_Made = TypeVar("_Made")
ToBeAsked = tuple[Step, Callable[[], Round]]
"""A round that the loop has come to, and what gives it with what is read of its answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wasted:
    """What was done for rounds that were not wanted."""

    rounds: int = 0
    calls: int = 0
    cut: int = 0
    tokens: int | None = 0


class Ahead:
    """The rounds of a loop: while round t is decided about, round t + 1 is searched and asked in a thread.

    Its errors and costs are raised and counted where it is reached.
    """

    def __init__(self, steps: Iterator[Step], meter: Meter) -> None:
        self._steps = steps
        self._meter = meter
        self._begun: list[_Begun] = []
        self._reached = 0

    def rounds(self) -> Iterator[ToBeAsked]:
        """The rounds in their order; the one after each is begun when it is given."""
        self._begin(None)
        while self._reached < len(self._begun):
            begun = self._begun[self._reached]
            self._reached += 1
            begun.tab.take()
            step = begun.step.result()
            if step is None:
                return
            if not step.last:
                self._begin(step)
            yield step, begun.asked.result

    def _begin(self, before: Step | None) -> None:
        self._begun.append(_Begun(self._steps, before, Tab(self._meter)))

    def close(self) -> Wasted:
        """Cut what is under way and wait for its end; what of it was never reached."""
        for begun in self._begun:
            begun.aside.cut()
        rest = [begun for begun in self._begun[self._reached :] if begun.came_to_something]
        for begun in rest:
            if begun.looked_up is not None:
                self._meter.add_lookups(begun.looked_up)
        tokens = [begun.tab.tokens for begun in rest]
        replied = sum(begun.tab.replied for begun in rest)
        calls = sum(begun.tab.begun for begun in rest)
        for begun in rest:
            begun.tab.take()  # paid all the same
        return Wasted(
            rounds=len(rest),
            calls=calls,
            cut=calls - replied,
            tokens=None if None in tokens else sum(filter(None, tokens)),
        )


class _Begun:
    """A round under way: come to, then asked."""

    def __init__(self, steps: Iterator[Step], before: Step | None, tab: Tab) -> None:
        self._steps = steps
        self._before = before
        self.tab = tab
        self.step: Future[Step | None] = Future()
        self.asked: Future[Round] = Future()
        self.aside = Aside(self._run)

    def _run(self) -> None:
        step = _into(self.step, self._come_to)
        if step is not None:
            _into(self.asked, step.asked)

    def _come_to(self) -> Step | None:
        if self._before is not None and self._before.then is not None:
            self._before.then.begin()  # is asked in any case, and paid by the round before
        self.tab.open()
        return next(self._steps, None)

    @property
    def looked_up(self) -> Usage | None:
        """What its search cost; ``None``: there was none so far."""
        done = self.step.done() and self.step.exception() is None
        step = self.step.result() if done else None
        return None if step is None else step.found.usage

    @property
    def came_to_something(self) -> bool:
        """Whether anything was done for it."""
        return self.tab.begun > 0 or self.looked_up is not None


def _into(future: Future[_Made], work: Callable[[], _Made]) -> _Made:
    """Do the work; the future has its result or its error, whatever it is: somebody may wait for it."""
    try:
        with may_be_cut():
            result = work()
    except BaseException as error:
        future.set_exception(error)
        raise
    future.set_result(result)
    return result


# --- answers --------------------------------------------------------------------------------------
DECLINED = "no confident answer"
CANNOT_ANSWER = "cannot answer"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answering:
    """How a question is answered. ``follow`` gets every round, ``tell`` each piece of the answer."""

    loop: LoopSettings = field(default_factory=CumulativeSettings)
    budgets: Budgets = field(default_factory=Budgets)
    encoder: Encoder | None = None
    passage_filter: PassageFilter | None = None
    choose: str = "latest"
    decline_below: float | None = None
    speculate: bool = False
    every_answer: bool = False
    earlier: tuple[Message, ...] = ()
    follow: Callable[[Round, Decision], None] | None = None
    tell: Callable[[str], None] | None = None

    def __post_init__(self) -> None:
        AnswerChoice.parse(self.choose)
        if self.decline_below is not None and not 0.0 <= self.decline_below <= 1.0:
            raise UsageError(
                f"a confidence to decline below lies in [0, 1], found {self.decline_below!r}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """Rounds, calls to the model and tokens of all calls, judges and samples included (``None``: unknown)."""

    rounds: int
    calls: int | None
    tokens: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """The answer with the rounds behind it.

    Parameters
    ----------
    answer
        Of round ``answer_round``, or :data:`DECLINED`, or :data:`CANNOT_ANSWER`.
    rounds
        As they happened.
    decisions
        ``decisions[t - 1]`` was taken after round t.
    stopped_by
        The policy, a budget, the end of the passages, or an error after at least one round.
    reason
        More about it.
    answer_round
        From 1.
    confidence
        The policy's in that round; ``None``: undefined, or a policy without one.
    declined
        Whether it was too low, or the policy's answer set holds no answer.
    answer_set
        Of a policy that promises the right answer among several; ``None``: another policy.
    usd
        What it cost; ``None`` without prices.
    spent, saved
        What the rounds cost, those wasted included, and what the loop would have cost beyond that at its
        full budget: the rounds left, each as dear as the last one, where there were passages for them.
    fixed
        What one call on the passages of the full budget would have cost, where the loop ranks once.
    unasked
        Calls for answers of earlier rounds that were not made, as nothing reads them: their ``answer`` is
        ``None``.
    wasted
        What of that was spent on a round that was begun and not wanted; ``None``: none was begun ahead.
    notes
        What a reader must know of the loop, in sentences.
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
    spent: Spent
    saved: Spent
    fixed: Spent | None = None
    unasked: int = 0
    wasted: Wasted | None = None
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The document of ``suffice ask --json``."""
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
                for number, (decision, finished) in enumerate(
                    zip(self.decisions, self.rounds, strict=True), start=1
                )
            ],
            "passages": [
                {
                    "id": passage.id,
                    "title": passage.title,
                    "text": passage.text,
                    "score": passage.score,
                    "rerank_score": passage.rerank_score,
                }
                for finished in self.rounds
                for passage in finished.passages or ()
            ],
            "usage": {**total_usage(self.rounds), "usd": self.usd},
            "saved": asdict(self.saved),
            "unasked": self.unasked,
            "wasted": None if self.wasted is None else asdict(self.wasted),
            "fixed": None if self.fixed is None else asdict(self.fixed),
            "answer_set": None if self.answer_set is None else self.answer_set.to_json(),
            "samples": None
            if self.answer_set is None
            else [list(finished.samples or ()) for finished in self.rounds],
        }


def total_usage(rounds: Sequence[Round]) -> dict[str, int | None]:
    """Sums over the rounds; ``None`` where one does not say."""
    usages = [finished.usage for finished in rounds]
    tokens = ("prompt_tokens", "cached_tokens", "completion_tokens")
    calls = ("llm_calls", "sample_calls", "judge_calls", "rerank_calls")
    names = (*calls, *tokens, *(f"sample_{name}" for name in tokens))
    sums = {name: _total([getattr(usage, name) for usage in usages]) for name in names}
    judging = {name: _total([judge_tokens(one, name) for one in usages]) for name in JUDGE_TOKENS}
    return sums | judging


def _total(values: Sequence[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


_TOKENS = ("prompt_tokens", "completion_tokens")


def _spent(rounds: Sequence[Round]) -> Spent:
    """What rounds cost; without a count of the calls or tokens that every round has, unknown."""
    usage = total_usage(rounds)
    further = sum(usage[f"{kind}_{name}"] or 0 for kind in ("sample", "judge") for name in _TOKENS)
    calls, tokens = usage["llm_calls"], [usage[name] for name in _TOKENS]
    return Spent(
        rounds=len(rounds),
        calls=None if calls is None else calls + (usage["judge_calls"] or 0),
        tokens=None if None in tokens else sum(filter(None, tokens)) + further,
    )


def _saved(rounds: Sequence[Round], left: int, *, grows: bool) -> Spent:
    """What so many rounds more would have cost, each as dear as the last; if a prompt ``grows``, unknown."""
    last = _spent(rounds[-1:])
    tokens = None if last.tokens is None or (grows and left) else left * last.tokens
    return Spent(
        rounds=left, calls=None if last.calls is None else left * last.calls, tokens=tokens
    )


def _fixed(rounds: Sequence[Round], budget: int) -> Spent:
    """One call with the passages of all ``budget`` rounds; its prompt grows as it grew so far."""
    asked = [one for one in rounds if one.answer is not None]
    answers = [_total([getattr(one.usage, name) for name in _TOKENS]) for one in asked]
    first, last, steps = answers[0], answers[-1], len(asked) - 1
    left = budget - len(rounds)
    tokens = None
    if first is not None and last is not None and (steps or not left):
        tokens = last + (round(left * (last - first) / steps) if left else 0)
    return Spent(rounds=budget, calls=1, tokens=tokens)


def answer(
    question: str,
    retriever: Retriever,
    model: ChatModel,
    live: Loop,
    settings: Answering,
) -> Answered:
    """Run the loop until the policy that ``live`` holds, a budget or the passages end it.

    A round is asked for an answer where something reads it: the policy, or the choice among answers. Else the
    last one alone is, when the loop has ended.
    """
    if not question.strip():
        raise UsageError("the question is empty; type what you want to know")
    question = whole_text(question)
    policy = live.policy
    if policy is None:
        raise UsageError("without a policy nothing stops the loop; give its watch one")
    check_confidence(policy, choose=settings.choose, decline_below=settings.decline_below)
    meter = Meter(model, settings.budgets)
    live.pay_by(meter)
    # the model itself is asked, since a probe is no part of the answer
    loop, _ = settings.loop.settled(model)
    decisions: list[Decision] = []
    if settings.choose == "latest":
        settings = replace(settings, choose=policy.needs.returns)
    reads = EVERYTHING if settings.every_answer else reads_of(policy, loop, choose=settings.choose)
    steps: list[Step] = []

    def ending(rounds: Iterable[ToBeAsked]) -> tuple[StoppedBy, str]:
        for step, ask in rounds:
            steps.append(step)
            finished = step.finished(ask())
            decision = live.observe(finished)
            decisions.append(decision)
            if settings.follow is not None:
                settings.follow(finished, decision)
            if decision.stop:
                return decision.stopped_by or "policy", decision.reason
        if not decisions:
            raise UsageError("the corpus gave no passage for this question")
        if len(decisions) >= loop.rounds:
            return "budget", f"the budget of {loop.rounds} rounds is spent"
        return "end", "pool exhausted: no passage is left to show"

    before: Usage | None = None
    if settings.earlier:
        question, before = put_alone(meter, settings.earlier, question)
    if question != live.question:
        live.restate(question)
    wasted = Wasted()
    try:
        pipeline = make_pipeline(meter, loop, settings.encoder, settings.passage_filter)
        coming = pipeline.steps(Question(id="ask", text=question), retriever, reads)
        if before is not None:
            coming = _paying(coming, before)
        if settings.speculate:
            ahead = Ahead(coming, meter)
            try:
                stopped_by, reason = ending(ahead.rounds())
            finally:
                wasted = ahead.close()
        else:
            stopped_by, reason = ending((step, step.asked) for step in coming)
    except SufficeError as error:
        if isinstance(error, InternalError) or not decisions:
            raise
        stopped_by, reason = "error", str(error)
    read = live.rounds[: len(decisions)]
    left = 0 if stopped_by == "end" else max(0, loop.rounds - len(read))
    # where it may be withheld, nobody is told of the last answer as it comes
    withheld = isinstance(policy, SetPolicy) or _declines(settings, decisions[-1])
    rounds, failed = _with_answer(read, steps, None if withheld else settings.tell)
    if failed is not None:
        stopped_by, reason = "error", str(failed)
    choice, view = AnswerChoice.parse(settings.choose), LoopView(question, rounds)
    chosen = answer_round(choice, view, decisions[: len(rounds)], live.signals) or len(rounds)
    declined = _declines(settings, decisions[chosen - 1])
    said = DECLINED if declined else rounds[chosen - 1].answer_text
    answer_set = None
    if isinstance(policy, SetPolicy):
        answer_set = policy.answer_set(rounds, stopped=stopped_by == "policy")
        if not answer_set.answers:
            said, declined = CANNOT_ANSWER, True
    silent, spent = sum(finished.answer is None for finished in rounds), _spent(rounds)
    return Answered(
        answer=said,
        rounds=rounds,
        decisions=tuple(decisions[: len(rounds)]),
        stopped_by=stopped_by,
        reason=reason,
        answer_round=chosen,
        confidence=decisions[chosen - 1].confidence,
        declined=declined,
        answer_set=answer_set,
        usd=meter.usd,
        spent=replace(
            spent,
            calls=_total([spent.calls, wasted.calls]),
            tokens=_total([spent.tokens, wasted.tokens]),
        ),
        saved=_saved(read, left, grows=bool(silent) and loop.ranks_once),
        fixed=_fixed(rounds, len(read) + left) if loop.ranks_once and before is None else None,
        unasked=silent * (loop.samples if loop.majority else 1),
        wasted=wasted if settings.speculate else None,
    )


def _paying(steps: Iterable[Step], before: Usage) -> Iterator[Step]:
    """The steps, the first of which has what was spent before it among its costs."""
    for step in steps:
        usage = usage_sum(step.found.usage, before) if step.number == 1 else step.found.usage
        yield replace(step, found=replace(step.found, usage=usage))


def reads_of(policy: StopPolicy, loop: LoopSettings, *, choose: str = "latest") -> RoundReads:
    """What a policy reads of a loop's rounds before it ends: what replay charges.

    A policy with a confidence is shown what it is made of at the end of a budget, too.
    """
    returned = AnswerChoice.parse(choose).or_own(policy.needs.returns)
    chooses = returned.rule != "latest"
    read = {given_by(spec).name for spec in policy.specs} | {returned.signal}
    of_samples = loop.majority and policy.needs.samples > 0
    return RoundReads(
        answers=chooses
        or of_samples
        or policy.needs.answers
        or any(spec.answers for spec in policy.specs),
        at_end=chooses or policy.facts.coverage is not None or has_confidence(policy),
        novelty=not read.isdisjoint(NOVELTY),
    )


def _declines(settings: Answering, decision: Decision) -> bool:
    least, confidence = settings.decline_below, decision.confidence
    return least is not None and (confidence is None or confidence < least)


def _with_answer(
    rounds: tuple[Round, ...], steps: Sequence[Step], tell: Callable[[str], None] | None
) -> tuple[tuple[Round, ...], SufficeError | None]:
    """The rounds with an answer of the last; where that fails, as too long a prompt does, of half as many."""
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
