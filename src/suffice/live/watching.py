"""What the loops of one watch share: settings, record, counts, and which answer each returns."""

from __future__ import annotations

import hashlib
import threading
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from suffice.contracts import Decision, StopPolicy
from suffice.errors import SufficeWarning, UsageError
from suffice.policies.policy_file import PolicyFile, load_policy, names_policy_file, policy_hash
from suffice.scoring import AnswerChoice, answer_form
from suffice.signals.known_signals import resolve
from suffice.signals.signal_table import SignalTable
from suffice.trace.rounds.records import LoopView
from suffice.trace.values import MOST_INT16, whole

if TYPE_CHECKING:
    from suffice.live.budgets import Budgets
    from suffice.live.privacy import Privacy
    from suffice.trace.loop_record import LoopRecord

Mode = Literal["shadow", "live"]


def hash_of(policy: StopPolicy | None) -> str | None:
    """What tells a policy from others; ``None`` for one without a file format."""
    try:
        return None if policy is None else policy_hash(policy)
    except UsageError:
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveSettings:
    """How loops are decided about; ``max_rounds`` ends them, ``full_budget`` is what is known of them.

    ``raises``: a policy that fails is an error of the loop, rather than counted and warned of.
    """

    policy: StopPolicy | None = None
    policy_hash: str | None = None
    mode: Mode = "live"
    explore: float = 0.0
    seed: int = 42
    max_rounds: int | None = None
    full_budget: int | None = None
    strict: bool = False
    raises: bool = False
    budgets: Budgets | None = None
    choice: AnswerChoice = field(default_factory=lambda: AnswerChoice.parse("latest"))

    @classmethod
    def of(
        cls,
        policy: StopPolicy | PolicyFile | str | Path | None,
        *,
        max_rounds: int | None = None,
        mode: Mode = "live",
        **further: Any,
    ) -> LiveSettings:
        """Those of a policy however it is named; live, a policy file's budget holds where none is given."""
        if isinstance(max_rounds, int) and max_rounds < 1:
            raise UsageError(f"max_rounds must be at least 1, found {max_rounds}")
        if max_rounds is not None:
            whole(MOST_INT16, max_rounds, "max_rounds")
        if isinstance(policy, str | PurePath):
            if names_policy_file(str(policy)):
                policy = load_policy(policy)
            else:  # loads the loops, which a file needs not
                from suffice.live.requirements import choose_policy

                policy = choose_policy(policy).policy
        full_budget = max_rounds
        if isinstance(policy, PolicyFile):
            full_budget = policy.max_rounds if max_rounds is None else max_rounds
            policy = policy.policy
        return cls(
            policy=policy,
            mode=mode,
            max_rounds=full_budget if mode == "live" else max_rounds,
            full_budget=full_budget,
            **further,
        )


@dataclass(slots=True, weakref_slot=True, eq=False, kw_only=True)
class Watching:
    """What all loops of one watch share: settings, record, counts and warnings given."""

    settings: LiveSettings
    writer: LoopRecord | None = None
    privacy: Privacy | None = None
    under_way: set[str] = field(default_factory=set)
    counts: dict[str, int] = field(default_factory=dict)
    said: set[str] = field(default_factory=set)
    lacking: set[str] = field(default_factory=set)  # signals checked for missing inputs
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def explores(self, name: str) -> bool:
        """Whether a question runs on, drawn by its id: asked again it is not drawn again."""
        drawn = hashlib.sha256(
            f"{self.settings.seed}:explore:{name}".encode(errors="surrogatepass")
        )
        return int.from_bytes(drawn.digest()[:8], "big") / 2**64 < self.settings.explore

    def count(self, what: str, number: int = 1) -> None:
        """So many more of a field of the watch's counts."""
        with self._lock:
            self.counts[what] = self.counts.get(what, 0) + number

    def warn(self, what: str, said: str) -> None:
        """Warn once of what may happen in every round."""
        if what not in self.said:
            self.said.add(what)
            warnings.warn(f"{said} (said once)", SufficeWarning, stacklevel=4)

    def close(self) -> None:
        """End the recording and say what it lost."""
        if self.writer is not None and (said := ended(self.writer)):
            self.said.add("record")
            self.warn("lost", said)
        self.complain()

    def complain(self) -> None:
        """Say what the record's writer cannot say."""
        if self.writer is not None and self.writer.problem is not None:
            self.warn(
                "record",
                f"loops are not recorded as they should be: {self.writer.problem}. The loops go on; what is "
                "not written by the end is lost and counted (lost_rounds)",
            )


def ended(writer: LoopRecord) -> str:
    """Close a record; what it lost, in words."""
    writer.close()
    lost = writer.lost
    if not lost.questions:
        return ""
    what = f"{lost.rounds:,} rounds of" if lost.rounds else "the ends of"
    said = f"{what} {lost.questions:,} questions are not in the record"
    return f"{said}: {writer.problem}"


def answer_round(
    choice: AnswerChoice,
    view: LoopView,
    decisions: Sequence[Decision],
    signals: Mapping[str, Sequence[float]],
) -> int | None:
    """The round, from 1, whose answer a loop returns, as replay chooses it; ``None``: none has one.

    Of the rounds with an answer and a defined value the one that is best by it, of equal ones the latest or
    the first; without any value the latest.
    """
    from suffice.stats.series import occurrences, running_best

    there = [number for number, held in enumerate(view.rounds, start=1) if held.answer is not None]
    if choice.rule == "latest" or not there:
        return there[-1] if there else None

    def read(name: str) -> list[float]:
        if name in signals:
            return [signals[name][number - 1] for number in there]
        spec = resolve(name, also=(name,))
        column = SignalTable.of_view(view, [spec], "").signal(spec.name)[0].tolist()
        return [column[number - 1] for number in there]

    if choice.rule == "majority":
        forms: dict[str, int] = {}
        given = [answer_form(view.rounds[number - 1].answer_text) for number in there]
        codes = [forms.setdefault(form, len(forms)) for form in given]
        abstain = np.array([read("abstained")]) != 0.0
        values = occurrences(np.where(abstain, np.nan, [codes]))
    elif choice.rule == "most-confident":
        values = np.array([[decisions[number - 1].confidence for number in there]], np.float64)
    else:
        values = np.array([read(choice.signal)])
        values = -values if choice.rule == "lowest" else values
    values = np.where(np.isfinite(values), values, np.nan)
    return there[int(running_best(values, first=choice.first)[0, -1]) - 1]
