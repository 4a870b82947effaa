"""The policies in force, and concurrent answering under them, each question recorded."""

from __future__ import annotations

import asyncio
import logging
import time
import weakref
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field

from suffice.concurrency import awaited
from suffice.contracts import ChatModel, Encoder, GenerationRequest, Message, Retriever, StopPolicy
from suffice.errors import SufficeError, UsageError, counted, unknown_name
from suffice.live.answering import AskSettings, LiveLoop
from suffice.live.loop import Loop
from suffice.live.observing import Observer, QuestionEnded, tell
from suffice.live.privacy import Texts
from suffice.live.requirements import choose_policy
from suffice.live.watch import Watch
from suffice.live.watching import Watching, hash_of
from suffice.policies.policy_file import PolicyFile
from suffice.retrieval.retrievers import Retrieval
from suffice.scoring import AnswerChoice
from suffice.serve.guard import Refusal, ending, too_many
from suffice.serve.service_settings import LimitSettings, LoopSettings
from suffice.serve.under_way import UnderWay
from suffice.trace.rounds.records import Question

DEFAULT_POLICY = "default"
PREFIX = "suffice/"  # of policies, where clients name them as models
_LOG = logging.getLogger("suffice.serve")
_RETRY_S = 2.0  # after which a client that was sent away may ask again


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """Model and retriever that every policy answers with; ``retrieval`` describes the retriever."""

    model: ChatModel
    retriever: Retriever
    settings: AskSettings = field(default_factory=AskSettings)
    retrieval: Retrieval | None = None
    encoder: Encoder | None = None

    def ask_once(self, seconds: float) -> None:
        """Ask the model, and the encoder, for as little as can be; a BackendError where nobody answers."""
        prompt = (Message(role="user", content="Hi"),) if self.model.api == "chat" else "Hi"
        with awaited(time.monotonic() + seconds):
            self.model.generate(GenerationRequest(prompt=prompt, max_tokens=1))
            if self.encoder is not None:
                self.encoder.encode(["Hi"])


@dataclass(slots=True, kw_only=True, eq=False)
class Served:
    """A policy of the service; without ``live`` it only decides for loops of clients."""

    name: str
    file: PolicyFile
    hash: str | None
    live: LiveLoop | None
    watch: Watch
    follows: Watch  # of clients' loops
    notes: tuple[str, ...] = ()

    @property
    def max_rounds(self) -> int | None:
        """The full budget; ``None``: unknown, since a client's loop sets it."""
        return self.file.max_rounds if self.live is None else self.live.loop.rounds

    def loop(self, question: Question, max_rounds: int | None) -> Loop:
        """Make the loop of a question that is not recorded; ``None``: the budget of the policy's file."""
        choice = AnswerChoice.parse(self.file.policy.needs.returns)
        return Loop(Watching.of(self.file, max_rounds=max_rounds, choice=choice), question)


class Wanted(BaseModel, populate_by_name=True, frozen=True):
    """A request's policy and limits, from its headers; ``None``: those of the service."""

    policy: str | None = Field(
        default=None, alias="x-suffice-policy", description="which policy decides"
    )
    max_rounds: int | None = Field(
        default=None, alias="x-suffice-max-rounds", ge=1, description="at most so many rounds"
    )
    budget_usd: float | None = Field(
        default=None,
        alias="x-suffice-budget-usd",
        gt=0,
        lt=1e9,
        description="at most so many US dollars",
    )


class Places:
    """Places for questions answered at once, with a bounded queue; for one event loop."""

    def __init__(self, limits: LimitSettings) -> None:
        self._limits = limits
        self._free = asyncio.Semaphore(limits.questions)
        self.taken: int = 0  # questions under way
        self.waiting: int = 0

    async def enter(self) -> None:
        """Wait for a place; refuse the question (429) where the queue is full."""
        if self._free.locked() and self.waiting >= self._limits.queue:
            said = f"{self.taken} being answered, {self.waiting} waiting; ask again later"
            raise too_many(said, "queue_full", _RETRY_S)
        self.waiting += 1
        try:
            await self._free.acquire()
        finally:
            self.waiting -= 1
        self.taken += 1

    def leave(self) -> None:
        self.taken -= 1
        self._free.release()


class Service:
    """Answers questions under policies, over one model and one retriever, and decides for other loops."""

    def __init__(
        self,
        ground: Ground | None,
        policies: Mapping[str, StopPolicy | str | Path] | None = None,
        *,
        record: str | Path | None = None,
        explore: float = 0.0,
        texts: Texts = "all",
        limits: LimitSettings | None = None,
        loops: LoopSettings | None = None,
        observers: Sequence[Observer] = (),
    ) -> None:
        self.ground = ground
        self.limits: LimitSettings = limits or LimitSettings()
        self.loops: LoopSettings = loops or LoopSettings()
        self.observers: tuple[Observer, ...] = tuple(observers)
        self.ready: bool = True  # false while the service ends
        self.places: Places = Places(self.limits)
        self._recording: dict[str, Any] = {"record": record, "texts": texts}
        self._explore = explore
        self._watches: list[Watch] = []
        self._under_way: weakref.WeakSet[UnderWay] = weakref.WeakSet()
        sources: Mapping[str, StopPolicy | str | Path | None] = policies or {DEFAULT_POLICY: None}
        self.policies: Mapping[str, Served] = {  # the default first
            name: self._made(name, source) for name, source in sources.items()
        }

    @property
    def failing(self) -> bool:
        return any(watch.failing for watch in self._watches)

    @property
    def lost(self) -> tuple[int, int, str | None]:
        """The number of rounds missing in the record, of their questions, and the reason."""
        counts = [watch.counts for watch in self._watches]
        return (
            sum(one.lost_rounds for one in counts),
            sum(one.lost_questions for one in counts),
            next((watch.problem for watch in self._watches if watch.problem), None),
        )

    # --- policies ----------------------------------------------------------------------------------
    def served(self, name: str | None = None, *, code: str = "policy_not_found") -> Served:
        """Return the policy of this name, by default the first; an unknown name is refused (404)."""
        policies = self.policies
        if name in (None, "", PREFIX.rstrip("/")):
            return next(iter(policies.values()))
        name = str(name).removeprefix(PREFIX)
        if name not in policies:
            param = code.partition("_")[0]
            raise Refusal(404, unknown_name(param, name[:100], policies), code=code, param=param)
        return policies[name]

    def _made(self, name: str, source: StopPolicy | str | Path | None) -> Served:
        ground, notes, live = self.ground, list[str](), None
        try:
            pipeline = None if ground is None else ground.settings.pipeline
            chosen = choose_policy(source, pipeline=pipeline)
            if ground is not None:
                live = LiveLoop.of(chosen, ground.model, ground.settings, notes.append)
                live = live.with_models(ground.encoder, ground.retrieval, notes.append)
            policy = chosen.policy if live is None else live.policy
            file = PolicyFile(policy, chosen.max_rounds)
            follows = self._following(file, name)
            watch = follows
            if ground is not None and live is not None:
                watch = self._answering(name, live, ground)
        except SufficeError as error:
            raise UsageError(f"policy {name!r}: {error}") from error
        budget = chosen.max_rounds if live is None else live.loop.rounds
        if self._explored(file.policy, budget) < self._explore:
            notes.append(
                f"explores nothing: its budget of {counted(budget or 0, 'round')} ends first"
            )
        return Served(
            name=name,
            file=file,
            hash=hash_of(file.policy),
            live=live,
            watch=watch,
            follows=follows,
            notes=tuple(notes),
        )

    def _explored(self, policy: StopPolicy, budget: int | None) -> float:
        return self._explore if budget is None or policy.facts.earliest < budget else 0.0

    def _answering(self, name: str, live: LiveLoop, ground: Ground) -> Watch:
        run = {
            **asdict(live.loop),
            "pipeline": live.loop.pipeline,
            "model": ground.model.name,
            **({} if ground.retrieval is None else ground.retrieval.stated),
            "policy": name,
        }
        return self._watch(
            live.policy,
            mode="live",
            explore=self._explored(live.policy, live.loop.rounds),
            max_rounds=live.loop.rounds,
            budgets=ground.settings.budgets,
            answer=ground.settings.choose,
            run=run,
        )

    def _following(self, file: PolicyFile, name: str) -> Watch:
        mode = self.loops.mode
        return self._watch(
            file,
            mode=mode,
            explore=0.0 if mode == "shadow" else self._explored(file.policy, file.max_rounds),
            answer="latest" if self.ground is None else self.ground.settings.choose,
            run={"pipeline": "over HTTP"},
            spans=_Follower(self, name),
        )

    def _watch(self, policy: StopPolicy | PolicyFile, **settings: Any) -> Watch:
        watch = Watch(policy, **self._recording, **settings)
        self._watches.append(watch)
        return watch

    # --- questions ---------------------------------------------------------------------------------
    async def ask(
        self,
        question: str,
        wanted: Wanted,
        *,
        earlier: tuple[Message, ...] = (),
        streams: bool = False,
        hung_up: Callable[[], Awaitable[object]] | None = None,
    ) -> UnderWay:
        """Begin to answer a question when a place is free; the caller calls ``leave()`` at its end.

        ``earlier``: the messages before it, of which the last ``limits.turns`` are read. ``streams``: tell
        pieces of the answer as the model writes them. ``hung_up`` returns when the client hangs up.
        """
        if not self.ready:
            raise ending()
        if not question.strip():
            raise Refusal(400, "the question is empty", param="messages")
        if len(question) > self.limits.question_letters:
            raise Refusal(
                400,
                f"a question may have {self.limits.question_letters:,} letters, found {len(question):,}",
                code="context_length_exceeded",
                param="messages",
            )
        served, ground = self.served(wanted.policy, code="model_not_found"), self.ground
        if ground is None or served.live is None:
            raise Refusal(
                404,
                "no question is answered here, since there is nothing to search: this service decides about "
                "loops of others (POST /v1/decisions, /v1/loops); who runs it starts it with --corpus PATH",
                code="not_answered_here",
            )
        under_way = UnderWay(
            service=self,
            asked=question,
            served=served,
            live=_for_request(served.live, wanted),
            retriever=ground.retriever,
            watched=served.watch.question(question),
            earlier=earlier[max(0, len(earlier) - self.limits.turns) :],
            streams=streams,
        )
        self._under_way.add(under_way)
        await under_way.begin(hung_up)
        return under_way

    def refuse_all(self) -> None:
        """Refuse every question in progress, in the event loop's thread."""
        self.ready = False
        for under_way in list(self._under_way):
            under_way.end(ending())

    def tell(self, ended: QuestionEnded) -> None:
        tell(self.observers, lambda: ended)

    async def drain(self, seconds: float) -> bool:
        """Take no more questions and wait for those in progress; return whether all ended in time."""
        self.ready = False
        until = time.monotonic() + seconds
        places = self.places
        while (places.taken or places.waiting) and time.monotonic() < until:
            await asyncio.sleep(0.02)
        return not (places.taken or places.waiting)

    def close(self) -> None:
        self.ready = False
        for watch in self._watches:
            watch.close()


@dataclass(frozen=True, slots=True)
class _Follower:
    """Passes on what ends in clients' loops."""

    service: Service
    policy: str

    def on(self, ended: QuestionEnded) -> None:
        self.service.tell(replace(ended, endpoint="loops", policy=self.policy))


def _for_request(live: LiveLoop, wanted: Wanted) -> LiveLoop:
    rounds, usd = wanted.max_rounds, wanted.budget_usd
    if rounds is not None:
        if rounds > live.loop.rounds:
            raise Refusal(
                400,
                f"max_rounds must be from 1 to {live.loop.rounds} under this policy, found {rounds}",
                param="max_rounds",
            )
        live = replace(live, loop=replace(live.loop, rounds=rounds))
    if usd is not None:
        settings = live.settings
        least = usd if settings.budgets.usd is None else min(usd, settings.budgets.usd)
        try:
            budgets = replace(settings.budgets, usd=least)
        except UsageError as error:
            raise Refusal(400, f"budget_usd: {error}", param="budget_usd") from error
        live = replace(live, settings=replace(settings, budgets=budgets))
    return live
