"""Ask one question under a policy: the loop it needs is made, and what it must not run on is refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from suffice.concurrency import computes_here
from suffice.contracts import (
    Certainty,
    ChatModel,
    Decision,
    Encoder,
    Message,
    Retriever,
    StopPolicy,
)
from suffice.errors import UsageError, unknown_name
from suffice.live.answering import Answered, Answering, answer
from suffice.live.budgets import Budgets
from suffice.live.chosen import ChosenPolicy, choose_policy
from suffice.live.loop import Loop
from suffice.live.requirements import (
    LoopOutput,
    check_confidence,
    check_policy,
    cluster_cosine,
    differences,
)
from suffice.loops.ranked import (
    BudgetedSettings,
    CumulativeSettings,
    settle_certainty,
)
from suffice.loops.registry import LOOPS
from suffice.loops.settings import LoopSettings
from suffice.retrieval.retrievers import IndexMaker, Retrieval, corpus_retriever
from suffice.trace.rounds.records import Passage, Round

Tell = Callable[[str], None]
_TAKES_PROCESSORS = (
    "the model computes on this machine's processors, where a round begun ahead takes them from the round "
    "under way: at best some percent sooner, beside other programs a third later, for up to 1.6 times the "
    "work, and answers may differ where others are nearly as likely; leave --speculate off here"
)


# --- which loop -------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True, kw_only=True)
class AskSettings:
    """How a question is asked; what is ``None`` is as the policy needs it, else as the loop has it.

    Parameters
    ----------
    pipeline
        The loop's name, one of :data:`suffice.loops.registry.LOOPS`; else ``cumulative``.
    rounds
        The budget; ``None``: the one the policy was made for, else the loop's.
    samples
        Sampled answers a round, where the policy or a vote reads them.
    seed
        Of the samples.
    loop
        Further settings of the loop, by field, such as ``prompt``; see its class.
    budgets
        Limits beside policy and rounds.
    choose, decline_below, speculate
        See :class:`suffice.live.answering.Answering`.
    encoder
        For policies that compare answers with their evidence or cluster samples by meaning.
    retrieval
        How passages are searched, with its models.
    """

    pipeline: str | None = None
    rounds: int | None = None
    samples: int | None = None
    seed: int = 42
    loop: Mapping[str, Any] = field(default_factory=dict)
    budgets: Budgets = field(default_factory=Budgets)
    choose: str = "latest"
    decline_below: float | None = None
    speculate: bool = False
    encoder: Encoder | None = None
    retrieval: Retrieval = field(default_factory=Retrieval)

    def __post_init__(self) -> None:
        Answering(
            choose=self.choose, decline_below=self.decline_below
        )  # refused before models are loaded
        if self.pipeline is not None and self.pipeline not in LOOPS:
            raise UsageError(unknown_name("pipeline", self.pipeline, LOOPS))

    def pipeline_for(self, policy: StopPolicy) -> str:
        """The loop's name under a policy."""
        return self.pipeline or policy.needs.pipeline or CumulativeSettings.pipeline


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveLoop:
    """A policy in a loop that gives it what it needs.

    ``encoder`` is what its signals and clusters need, where they need one.
    """

    policy: StopPolicy
    loop: LoopSettings
    model: ChatModel
    settings: AskSettings
    encoder: Encoder | None = None

    @classmethod
    def of(
        cls, chosen: ChosenPolicy, model: ChatModel, settings: AskSettings, tell: Tell
    ) -> LiveLoop:
        """Settle what hangs on the model; ``tell`` hears what was settled and what has no effect."""
        check_confidence(
            chosen.policy, choose=settings.choose, decline_below=settings.decline_below
        )
        loop, policy = _settled(chosen, model, settings, tell)
        _tell_samples(policy, settings.samples, loop.samples, tell)
        if settings.speculate and computes_here(model):
            tell(_TAKES_PROCESSORS)
        return cls(policy=policy, loop=loop, model=model, settings=settings)

    @property
    def encodes(self) -> bool:
        """Whether it has a use for an encoder, beside the retriever's."""
        needs = self.policy.needs
        return needs.encoder or needs.clusters is not None

    def reaching(self, retrieval: Retrieval) -> Retrieval:
        """The same, with a pool of as many passages as its rounds may show."""
        return retrieval.reaching(self.loop.shown(self.loop.rounds))

    def with_models(
        self, encoder: Encoder | None, retrieval: Retrieval | None, tell: Tell
    ) -> LiveLoop:
        """The loop with all it needs.

        ``retrieval`` is how its passages are found; ``None``: nobody knows, and what they carry is not
        checked. ``tell`` hears where this is not the loop that the policy's promise was calibrated on.
        """
        encoder = encoder if self.encodes else None
        cosine = cluster_cosine(self.policy.needs.clusters, encoder)
        loop = replace(self.loop, cluster_cosine=cosine)
        check_policy(
            self.policy,
            LoopOutput(
                settings=loop,
                logprobs=self._logprobs,
                encoder=encoder is not None,
                reranker=retrieval is None or retrieval.reranks,
            ),
        )
        here = {**asdict(loop), "model": self.model.name, "pipeline": loop.pipeline}
        if retrieval is not None:
            here |= retrieval.stated
        for difference in differences(self.policy, here):
            tell(f"the policy's promise may not hold here: {difference}")
        return replace(self, loop=loop, encoder=encoder)

    @property
    def _logprobs(self) -> bool:
        """Whether the model gives log-probabilities; not asked when the policy reads none."""
        if not self.policy.needs.tokens:
            return True
        return bool(getattr(self.model, "supports_logprobs", lambda: True)())

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
        """Answer a question, stopping when the policy says so; see :func:`answer`.

        ``watched`` decides by this loop's policy; ``None``: a loop without a record does. For the others see
        :class:`Answering`.
        """
        return answer(
            question,
            retriever,
            self.model,
            watched or Loop.alone(self.policy, max_rounds=self.loop.rounds),
            Answering(
                loop=self.loop,
                budgets=self.settings.budgets,
                encoder=self.encoder,
                passage_filter=self.policy.needs.filter,
                choose=self.settings.choose,
                decline_below=self.settings.decline_below,
                speculate=self.settings.speculate,
                every_answer=every_answer,
                earlier=earlier,
                follow=follow,
                tell=tell,
            ),
        )


def _settled(
    chosen: ChosenPolicy, model: ChatModel, settings: AskSettings, tell: Tell
) -> tuple[LoopSettings, StopPolicy]:
    """The loop's settings for the policy, and the policy for what the model gives."""
    needs, for_model, certainty = (
        chosen.policy.needs,
        chosen.for_model,
        settings.loop.get("certainty"),
    )
    settles = LOOPS[settings.pipeline_for(chosen.policy)].settles
    if "certainty" not in settles and for_model is None:
        return _loop_settings(chosen, settings), chosen.policy
    if certainty is None and for_model is None and needs.samples and not needs.tokens:
        certainty = "self_consistency"
    settled, why = settle_certainty(BudgetedSettings(certainty=certainty or "auto"), model)
    tell(f"certainty: {settled.certainty} ({why})")
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
    wanted = chosen.policy.needs.samples
    name = settings.pipeline_for(chosen.policy)
    kind = LOOPS[name]
    stated = set(settings.loop)
    if unknown := stated - {own.name for own in fields(kind)}:
        raise UsageError(f"the {name} pipeline has no setting {min(unknown)!r}")
    loop_fields: dict[str, Any] = {
        **settings.loop,
        **kind.writing(chosen.policy.signals),
        "rounds": settings.rounds or chosen.max_rounds or chosen.policy.facts.max_rounds,
        "seed": settings.seed,
        "samples": (settings.samples or wanted) if wanted else 0,
    }
    return kind(**{name: value for name, value in loop_fields.items() if value is not None})


def _tell_samples(policy: StopPolicy, asked: int | None, drawn: int, tell: Tell) -> None:
    """Say where a given number of samples has no effect, or is not what the policy was fitted on."""
    if asked is None:
        return
    needs = policy.needs
    if not drawn:
        tell("samples have no effect: neither the policy nor a vote reads any, so none is drawn")
    elif needs.other_samples and drawn != needs.samples > 0:
        fitted = "calibrated" if policy.facts.promise else "fitted"
        tell(
            f"the policy was {fitted} on {needs.samples} samples a round; on {drawn} "
            f"{needs.other_samples}"
        )


# --- for callers ------------------------------------------------------------------------------------
def ask(
    question: str,
    passages: Sequence[Passage] | Retriever,
    model: ChatModel,
    *,
    policy: StopPolicy | str | Path | None = None,
    settings: AskSettings | None = None,
) -> Answered:
    """Answer a question over passages or a retriever, stopping when the policy says so.

    The loop is what the policy needs: samples drawn and clustered as it was fitted on, its passage filter,
    the judge it reads, its budget. ``suffice ask`` runs the same loop. What a reader must know, such as
    where this is not the loop that a promise was calibrated on, stands in the answer's ``notes``.

    Parameters
    ----------
    question
        The question.
    passages
        What is searched, by the settings' ``retrieval``; or a retriever, over which it is the caller's
        to see that passages carry what the policy reads.
    model
        Answers.
    policy
        A policy, or what ``suffice ask --policy`` takes: a policy file, ``fixed-K``, the name of a method
        that needs no fitting, a rule's text. ``None``: the default rule.
    settings
        How; ``None``: as the policy needs it.

    Raises
    ------
    UsageError
        Before the model answers: a policy that must be fitted first, or that reads what this loop does not
        give, with what to use instead.
    BackendError, DataError
        As model, retriever and encoder raise them.

    Examples
    --------
    >>> from suffice.testing.models import ScriptedModel
    >>> shelf = [Passage(id="a", title="Oslo", text="Oslo is the capital of Norway.")]
    >>> model = ScriptedModel(["Answer: Oslo"])
    >>> ask("What is the capital of Norway?", shelf, model, policy="fixed-1").answer
    'Oslo'
    """
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
