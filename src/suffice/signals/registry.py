"""Every signal with a fixed name; a signal's module is imported when it is asked for."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, overload

from suffice.contracts import Signal
from suffice.errors import DataError, UsageError, did_you_mean, unknown_name
from suffice.signals.spec import VERDICTS, SignalSpec, given_by, share
from suffice.trace.rounds.records import LoopView, Round

if TYPE_CHECKING:
    from suffice.signals.asking.whole_record import Asking

# --- recorded by a loop or a policy, computed by nothing here ------------------------------------
LLM_STOP = share(
    name="llm_stop",
    summary="1 when the model, asked, wants to stop",
    answers=False,
    charges=(VERDICTS,),
    binary=True,
)
MALFORMED_ACTIONS = SignalSpec(
    name="malformed_actions",
    summary="replies so far that could not be read: actions, follow-up questions, verdicts",
    answers=False,
    low=0.0,
    direction="low",
)
Q_STOP = SignalSpec(name="q_stop", summary="learned value of stopping here")
Q_CONT = SignalSpec(name="q_cont", summary="learned value of going on")
REMAINING_SHARE = share(
    name="remaining_share",
    summary="share of the steps still to come",
    answers=False,
)


# where each is declared, under its name in capitals
_MODULES: dict[str, str] = {
    "answer_stable": "suffice.signals.answer_stability",
    "answer_token_margin": "suffice.signals.model_confidence",
    "margin_min": "suffice.signals.model_confidence",
    "margin_p10": "suffice.signals.model_confidence",
    "margin_mean": "suffice.signals.model_confidence",
    "margin_median": "suffice.signals.model_confidence",
    "overlap": "suffice.signals.novelty",
    "overlap_idf": "suffice.signals.novelty",
    "verbalized_confidence": "suffice.signals.model_confidence",
    "answer_in_evidence": "suffice.signals.evidence",
    "retrieval_z": "suffice.signals.retrieval_scores",
    "retrieval_z_robust": "suffice.signals.retrieval_scores",
    "retrieval_gap": "suffice.signals.retrieval_scores",
    "rerank_top_score": "suffice.signals.asking.reranking",
    "judge_support": "suffice.signals.asking.judge_support",
    "abstained": "suffice.signals.abstained",
    "token_probability": "suffice.signals.model_confidence",
    "self_consistency": "suffice.signals.samples",
    "evidence_consistency": "suffice.signals.asking.evidence_models",
    "rerank_variance": "suffice.signals.asking.reranking",
    "normalized_entropy": "suffice.signals.samples",
    "top_cluster_confidence": "suffice.signals.samples",
    "llm_stop": "suffice.signals.registry",
    "q_stop": "suffice.signals.registry",
    "q_cont": "suffice.signals.registry",
    "answer_similarity_f1": "suffice.signals.answer_stability",
    "answer_similarity_seq": "suffice.signals.answer_stability",
    "evidence_consistency_max": "suffice.signals.asking.evidence_models",
    "evidence_consistency_top1": "suffice.signals.asking.evidence_models",
    "rerank_mean": "suffice.signals.asking.reranking",
    "rerank_variance_raw": "suffice.signals.asking.reranking",
    "evidence_entailment": "suffice.signals.asking.evidence_models",
    "answer_stable_published": "suffice.signals.answer_stability",
    "answer_in_evidence_published": "suffice.signals.evidence",
    "candidate_agreement": "suffice.signals.candidates",
    "contradiction": "suffice.signals.candidates",
    "remaining_share": "suffice.signals.registry",
    "malformed_actions": "suffice.signals.registry",
    "new_passages": "suffice.signals.novelty",
    "query_repeats": "suffice.signals.novelty",
    "answer_repeats": "suffice.signals.answer_stability",
    "query_novelty": "suffice.signals.asking.embedded_novelty",
    "passage_novelty": "suffice.signals.asking.embedded_novelty",
}


class _Signals(Mapping[str, SignalSpec]):
    def __getitem__(self, name: str) -> SignalSpec:
        spec: SignalSpec = getattr(import_module(_MODULES[name]), name.upper())
        return spec

    def __contains__(self, name: object) -> bool:
        return name in _MODULES

    def __iter__(self) -> Iterator[str]:
        return iter(_MODULES)

    def __len__(self) -> int:
        return len(_MODULES)


SIGNALS: Mapping[str, SignalSpec] = _Signals()
_OWN: dict[str, SignalSpec] = {}  # those that the decorator made, in this process
Function = Callable[[str, Sequence[Round]], "float | None"]


@dataclass(frozen=True, slots=True)
class _OfPrefix:
    """A user's function at the last round of a view."""

    function: Function

    def __call__(self, view: LoopView) -> float:
        name = getattr(self.function, "__name__", "signal")
        where = f"signal {name!r} at round {len(view.rounds)} of {view.question!r:.60}"
        try:
            value = self.function(view.question, view.rounds)
        except Exception as error:
            raise DataError(f"{where} failed: {type(error).__name__}: {error}") from error
        if not isinstance(value, int | float | None):
            raise DataError(f"{where} gave {value!r:.40}; a number is wanted, None where undefined")
        return math.nan if value is None else float(value)


@overload
def signal(function: Function, /) -> SignalSpec: ...
@overload
def signal(**declared: Any) -> Callable[[Function], SignalSpec]: ...
def signal(
    function: Function | None = None, /, **declared: Any
) -> SignalSpec | Callable[[Function], SignalSpec]:
    """Make a signal of a function of a question and its rounds so far, known to rules by its name.

    It is asked about every prefix of every question, in replay as in a loop under way, so it cannot look
    ahead. A value recorded under its name stands in its place. ``declared`` are fields of
    :class:`suffice.signals.spec.SignalSpec`, such as ``summary``, ``needs`` (columns), ``low`` and ``high``.

    Raises
    ------
    UsageError
        For a name that another signal has, or that no rule can write.

    Examples
    --------
    >>> @signal(low=0.0, answers=False)
    ... def rounds_so_far(question, rounds):
    ...     return len(rounds)
    >>> from suffice.policies.rules.policy import RulePolicy
    >>> RulePolicy(rule="rounds_so_far >= 3").specs[0] is rounds_so_far
    True
    """
    if function is None:
        return partial(_declared, declared)
    return _declared({}, function)


def _declared(declared: Mapping[str, Any], function: Function) -> SignalSpec:
    name = getattr(function, "__name__", "")
    if name in SIGNALS or not name.isidentifier():
        raise UsageError(
            f"a signal is named by its function, and {name!r} is taken or no name; rename it"
        )
    fields: dict[str, Any] = {"summary": "one's own", **declared}
    _OWN[name] = SignalSpec(name=name, compute=_OfPrefix(function), **fields)
    return _OWN[name]


@cache
def computed_signals() -> tuple[SignalSpec, ...]:
    """Those that a record gives without asking a model."""
    return tuple(spec for spec in SIGNALS.values() if not spec.recorded_only)


def askings() -> tuple[Asking, ...]:
    """How models are asked for signals, one for each way, in the order of the signals."""
    return tuple(dict.fromkeys(spec.asking for spec in SIGNALS.values() if spec.asking is not None))


def asked_by(asking: Asking) -> tuple[str, ...]:
    """Names of the signals that this asking gives, or that are computed of what it gives."""
    return tuple(name for name, spec in SIGNALS.items() if spec.asking == asking)


def is_usual(spec: Signal) -> bool:
    """Whether the signal means what its name says by default, without a policy's own settings."""
    return SIGNALS.get(spec.name, spec) == spec


_OWN_RECORDED = (
    "; one of your own is a function under @suffice.signal, or stands in the rounds' signals, "
    "Round(signals={NAME: VALUE}), and a rule in Python is told it: RulePolicy(rule=..., "
    "own_signals=(NAME,))"
)


def own_among(names: Iterable[str], recorded: Iterable[str]) -> tuple[str, ...]:
    """The user's own ``recorded`` signals that these are, or are made of, once each."""
    known = tuple(recorded)
    given = (given_by(resolve(name, also=known)).name for name in names)
    return tuple(dict.fromkeys(name for name in given if name in known and name not in SIGNALS))


def resolve(name: str, *, also: Iterable[str] = ()) -> SignalSpec:
    """The declaration of a signal; names in ``also`` are the user's own, recorded ones.

    A name with brackets is that of a signal made of another; see :mod:`suffice.signals.derived`.
    """
    if name in SIGNALS or name in _OWN:
        return SIGNALS[name] if name in SIGNALS else _OWN[name]
    if "(" in name:
        from suffice.signals.derived import DerivedName, derived_signal

        made_of_another = DerivedName.parse(name)
        if made_of_another is not None:
            return derived_signal(made_of_another, also)
    own = sorted(set(also))
    if name in own:
        return SignalSpec(name=name, summary="recorded by the user")
    known = dict.fromkeys([*sorted(SIGNALS), *_OWN, *own])
    how = "" if did_you_mean(name, known) else _OWN_RECORDED
    raise UsageError(f"{unknown_name('signal', name, known)}{how}")
