"""Learn a value network from trajectories: the entry that builds, trains and returns one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from suffice.errors import UsageError
from suffice.policies.stop_rag.encoder import TextEncoder, torch_module
from suffice.policies.stop_rag.encoding import Truncation
from suffice.policies.stop_rag.network import QNetwork, build_network
from suffice.policies.stop_rag.settings import Precision, TrainSettings
from suffice.policies.stop_rag.states import StateTexts
from suffice.policies.stop_rag.steps import Fitted, RewardTable
from suffice.policies.stop_rag.text_learner import TextLearner, computes_in_bfloat16
from suffice.policies.stop_rag.training import Progress, train

__all__ = ["TrainedNetwork", "Trajectories", "train_network"]

_PLACES = frozenset(
    {"encoder", "device", "cache_bytes", "precision"}
)  # change no result by themselves


@dataclass(frozen=True, slots=True, kw_only=True)
class Trajectories:
    """Recorded questions to learn from.

    Parameters
    ----------
    states
        (n,) texts.
    rewards
        (n, T) in [0, 1], defined for t <= T_i.
    lengths
        (n,), T_i; the number of rounds of ``states``.
    """

    states: Sequence[StateTexts]
    rewards: NDArray[np.float64]
    lengths: NDArray[np.int64]

    def __post_init__(self) -> None:
        counts = [each.n_rounds for each in self.states]
        if counts != np.asarray(self.lengths).tolist() or len(counts) != len(self.rewards):
            raise UsageError(
                f"states, rewards and lengths must be of the same questions: found {len(counts)} "
                f"states, {len(self.rewards)} rewards and {len(self.lengths)} lengths, or other rounds"
            )

    @property
    def table(self) -> RewardTable:
        """The rewards alone."""
        return RewardTable(rewards=self.rewards, lengths=self.lengths)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedNetwork:
    """A trained network, what validation found, and what did not fit its window.

    ``notes`` are sentences for people.
    """

    network: QNetwork
    fitted: Fitted
    truncation: Truncation
    notes: tuple[str, ...]


def train_network(
    training: Trajectories,
    validation: Trajectories,
    settings: TrainSettings,
    *,
    progress: Callable[[Progress], None] | None = None,
    checkpoint: Path | None = None,
) -> TrainedNetwork:
    """Build a network and train it; the same inputs on the same machine give the same weights.

    Parameters
    ----------
    training, validation
        Different questions. Those of one round decide nothing and are counted in the notes.
    settings
        How.
    progress
        Called while texts are read and after every step.
    checkpoint
        A file that is kept at every evaluation and continued from.

    Raises
    ------
    MissingExtra
        When the extra ``learn`` is not installed.
    UsageError
        When there is nothing to learn, or no such encoder.
    DataError
        When the checkpoint is damaged, or of another training.
    """
    torch = torch_module()
    device = _device(settings.device)
    encoder = TextEncoder.load(settings.encoder, device=device)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        network = build_network(encoder, settings)
    learner = TextLearner(
        network,
        (training.states, validation.states),
        cache_bytes=settings.cache_bytes,
        precision=_precision(settings.precision, encoder),
        on_read=None if progress is None else _reading(progress),
    )
    run = {name: each for name, each in asdict(settings).items() if name not in _PLACES}
    fitted = train(
        learner,
        (training.table, validation.table),
        settings,
        run | {"encoder": encoder.identity},
        progress=progress,
        checkpoint=checkpoint,
    )
    return TrainedNetwork(
        network=network,
        fitted=fitted,
        truncation=learner.truncation,
        notes=_notes(training, validation, learner.truncation, network),
    )


def _device(name: str) -> str:
    if name != "auto":
        return name
    return "cuda" if torch_module().cuda.is_available() else "cpu"


def _precision(asked: Precision, encoder: TextEncoder) -> Precision:
    if asked != "auto":
        return asked
    return "bfloat16" if computes_in_bfloat16(encoder.device) else "float32"


def _reading(progress: Callable[[Progress], None]) -> Callable[[int, int], None]:
    return lambda done, total: progress(Progress(stage="read", done=done, total=total))


def _notes(
    training: Trajectories, validation: Trajectories, cut: Truncation, network: QNetwork
) -> tuple[str, ...]:
    """What was left out or cut."""
    notes = []
    single = sum(int((each.lengths < 2).sum()) for each in (training, validation))
    if single:
        notes.append(f"{single} questions of one round decide nothing and were not learned from")
    window = network.shape.window
    if cut.states_cut:
        notes.append(
            f"{cut.share:.0%} of {cut.states} states lost documents or parts of them to the window of "
            f"{window} tokens"
        )
    if cut.questions_cut:
        notes.append(
            f"{cut.questions_cut} of {cut.questions} questions were cut to fit the window of {window} "
            "tokens"
        )
    return tuple(notes)
