"""Training of value networks: one loop for all, and the learner of a network over texts."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from suffice.errors import InternalError, UsageError, counted
from suffice.policies.method import FitRun
from suffice.policies.stop_rag.encoder import Batch, Encoded, TextEncoder, Tokens, torch
from suffice.policies.stop_rag.network import QNetwork, build_network
from suffice.policies.stop_rag.states import States
from suffice.policies.stop_rag.stop_rag_settings import Schedule, TrainSettings
from suffice.policies.stop_rag.targets import (
    Choice,
    binary_labels,
    binary_loss,
    check_learnable,
    choose_threshold,
    informative,
    q_lambda,
    value_loss,
)
from suffice.stats.units import Array

if TYPE_CHECKING:
    from suffice.policies.stop_rag.signal_network import SignalLearner

Values = tuple[Any, Any]
"""Values of stopping and of going on, tensors (b, T); 0 where nothing is decided."""
_MOST_EVALUATIONS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Trajectories:
    """Recorded questions to learn from: rewards (n, T) in [0, 1], lengths (n,), and their states."""

    rewards: Array
    lengths: NDArray[np.int64]
    states: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Validation:
    """The choice of a threshold after ``step`` steps; ``loss`` is the mean since the one before."""

    step: int
    loss: float
    choice: Choice


@dataclass(frozen=True, slots=True, kw_only=True)
class Learned:
    """A trained network, its best validation, its steps, and counts of texts beyond its window."""

    network: Any
    best: Validation
    steps: int
    truncation: Mapping[str, int] | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingProgress:
    label: Literal["read texts", "trained steps"]
    done: int
    total: int
    loss: float | None = None
    evaluation: Validation | None = None

    @property
    def said(self) -> str:
        """The last validation in words; may be empty."""
        if self.evaluation is None:
            return ""
        choice = self.evaluation.choice
        return (
            f"step {self.done}: validation reward {choice.score:.3f} in {choice.mean_rounds:.2f} rounds, "
            f"loss {self.evaluation.loss:.4f}"
        )


def train(
    learner: TextLearner | SignalLearner,
    data: tuple[Trajectories, Trajectories],
    settings: Schedule,
    run: FitRun | None = None,
) -> tuple[Validation, int]:
    """Train, load the weights that did best on validation, and return that validation and the steps.

    A step reads all states of some trajectories in one forward pass. Targets come from the heads' values
    without gradient and without dropout. About ten times, or once an epoch if that is rarer, validation
    chooses a threshold. The weights of the best mean reward win, then of fewer rounds, then the later ones.

    Paper 1, section 4.2 and appendices B and C. Published: targets, loss, optimizer; the rest is ours.
    """
    run, training = run or FitRun(), _Training(learner, data, settings)
    devices = [learner.device] if learner.device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(settings.seed)
        while training.step < training.steps:
            loss, evaluation = training.advance(), None
            if training.step % training.interval == 0 or training.step == training.steps:
                evaluation = training.evaluate()
            if run.progress:
                run.progress(
                    TrainingProgress(
                        label="trained steps",
                        done=training.step,
                        total=training.steps,
                        loss=loss,
                        evaluation=evaluation,
                    )
                )
        return training.finish()


class _Training:
    def __init__(
        self,
        learner: TextLearner | SignalLearner,
        data: tuple[Trajectories, Trajectories],
        settings: Schedule,
    ) -> None:
        self._learner, self._settings = learner, settings
        self._table, self._validation = data
        rewards, lengths = self._table.rewards, self._table.lengths
        self._known, self._labels = informative(rewards, lengths), binary_labels(rewards, lengths)
        self._chosen = np.flatnonzero(self._known.any(axis=1))
        most = settings.trajectories_a_step(int(lengths.max()), learner.tokens)
        self._batch = min(len(self._chosen), most)
        self._epoch = math.ceil(len(self._chosen) / self._batch)
        self.steps = max(math.ceil(settings.epochs * self._epoch), settings.min_steps)
        often = math.ceil(self.steps / _MOST_EVALUATIONS)
        self.interval = min(self.steps, max(self._epoch, often))
        rates = zip(learner.parameters(), (settings.learning_rate, settings.head_rate), strict=True)
        self._groups = [(parameters, rate) for parameters, rate in rates if parameters]
        self._optimizer = torch.optim.AdamW(
            [{"params": parameters, "lr": rate} for parameters, rate in self._groups],
            weight_decay=settings.weight_decay,
        )
        self.step = 0
        self._losses: list[float] = []
        self._best: Validation | None = None
        self._best_tensors: dict[str, Any] = {}

    def _rows(self) -> NDArray[np.int64]:
        """Return the trajectories of the next step; every epoch has its own order of all."""
        epoch, number = divmod(self.step, self._epoch)
        order = np.random.default_rng([self._settings.seed, epoch]).permutation(self._chosen)
        return order[number * self._batch : (number + 1) * self._batch]

    def advance(self) -> float:
        settings, rows = self._settings, self._rows()
        share = settings.rate_share(self.step, self.steps)
        for group, (_, rate) in zip(self._optimizer.param_groups, self._groups, strict=True):
            group["lr"] = rate * share
        rewards, known = self._table.rewards[rows], self._known[rows]
        learned, estimates = self._learner.batch_values(rows, (len(rows), rewards.shape[1]))
        if settings.target == "binary":
            loss = binary_loss(learned, self._labels[rows], known)
        else:
            lam = settings.lam(self.step, self.steps)
            q_stop, q_cont = (tensor.double().cpu().numpy() for tensor in estimates)
            going_on = q_lambda(rewards, self._table.lengths[rows], q_stop, q_cont, lam)
            loss = value_loss(learned, (rewards, going_on), known)
        self._optimizer.zero_grad()
        loss.backward()
        everything = [parameter for parameters, _ in self._groups for parameter in parameters]
        torch.nn.utils.clip_grad_norm_(everything, settings.clip_norm)
        self._optimizer.step()
        self.step += 1
        value = float(loss.detach())
        if not math.isfinite(value):
            raise UsageError(
                f"the loss is {value} at step {self.step} of {self.steps}; choose lower rates than "
                f"{settings.learning_rate:g} and {settings.head_rate:g}"
            )
        self._losses.append(value)
        return value

    def evaluate(self) -> Validation:
        """Choose a threshold, and keep the weights if they are the best so far."""
        rewards, lengths = self._validation.rewards, self._validation.lengths
        stop, cont = self._learner.validation_values(rewards.shape)
        choice = choose_threshold(stop - cont, rewards, lengths, ends=self._settings.ends)
        validation = Validation(step=self.step, loss=float(np.mean(self._losses)), choice=choice)
        self._losses = []
        if self._best is None or _worth(validation) >= _worth(self._best):
            self._best = validation
            tensors = self._learner.tensors()
            self._best_tensors = {name: tensor.clone() for name, tensor in tensors.items()}
        return validation

    def finish(self) -> tuple[Validation, int]:
        if self._best is None:
            raise InternalError("no step was taken")
        self._learner.load_tensors(self._best_tensors)
        return self._best, self.steps


def _worth(validation: Validation) -> tuple[float, float]:
    return round(validation.choice.score, 12), -validation.choice.mean_rounds


# --- a network over texts ------------------------------------------------------------------------
_READ_AT_ONCE = 32
_SCALE_TEXTS = 512  # texts whose spread the features are standardised by
_EVALUATED_AT_ONCE = 8  # trajectories


class TextLearner:
    """The training side of a :class:`QNetwork <suffice.policies.stop_rag.network.QNetwork>`."""

    def __init__(
        self,
        network: QNetwork,
        parts: tuple[States, States],
        *,
        cache_bytes: int,
        progress: Callable[[Any], None] | None = None,
    ) -> None:
        self.network = network
        self.encoded: Encoded = network.tokenizer.encode(
            replace(states, documents=states.documents[:-1]) for states in chain(*parts)
        )
        self._starts = (0, len(parts[0]))
        self._kept = _Kept(network, self.encoded.texts, cache_bytes, progress)
        self.device: Any = network.encoder.device
        sizes = [len(text.ids) for text in self.encoded.texts]
        reads = self.encoded.reads[: self._starts[1]]
        whole = [
            sum(sizes[place] for place in {p for one in states for p in one}) for states in reads
        ]
        self.tokens: float = sum(whole) / max(1, len(whole))
        self.parameters: Callable[[], tuple[list[Any], list[Any]]] = network.parameters
        self.tensors: Callable[[], dict[str, Any]] = network.tensors
        self.load_tensors: Callable[[dict[str, Any]], None] = network.load_tensors
        network.set_scale(self._sample())

    def batch_values(
        self, rows: NDArray[np.int64], shape: tuple[int, int]
    ) -> tuple[Values, Values]:
        """Return learned values and estimates of the training trajectories ``rows``; only heads drop out."""
        heads = self.network.heads
        pooled, decisions = self._states(rows + self._starts[0], shape, gradients=True)
        heads.eval()
        with torch.no_grad():
            estimates = self._values(pooled, decisions)
        heads.train()
        return self._values(pooled, decisions), estimates

    def validation_values(self, shape: tuple[int, int]) -> tuple[Array, Array]:
        """Return the values of all validation trajectories, each (n, T), without gradients."""
        self.network.heads.eval()
        kept: tuple[list[Any], list[Any]] = ([], [])
        with torch.no_grad():
            for start in range(0, shape[0], _EVALUATED_AT_ONCE):
                rows = np.arange(start, min(start + _EVALUATED_AT_ONCE, shape[0]))
                states = self._states(
                    rows + self._starts[1], (len(rows), shape[1]), gradients=False
                )
                for into, action_values in zip(kept, self._values(*states), strict=True):
                    into.append(action_values.double().cpu().numpy())
        return np.concatenate(kept[0]), np.concatenate(kept[1])

    def _states(
        self, rows: NDArray[np.int64], shape: tuple[int, int], *, gradients: bool
    ) -> tuple[Any, Any]:
        """Return the heads' inputs (S, X), and the places (b, T) of the S decisions."""
        reads = [self.encoded.reads[row] for row in rows]
        needed = sorted({place for states in reads for state in states for place in state})
        local = {place: number for number, place in enumerate(needed)}
        states = [state for one in reads for state in one]
        most = max(map(len, states), default=0)
        members = torch.full((len(states), max(1, most)), -1, dtype=torch.long)
        for row, state in enumerate(states):
            members[row, : len(state)] = torch.tensor([local[place] for place in state])
        seen = [number for row in rows for number in self.encoded.documents[row]]
        # halves the time where the hardware has it
        with _autocast(self.device, on=gradients and self.device.type == "cuda"):
            features = self._features(needed)
        network = self.network
        pooled = network.pool(
            network.read(features),
            members.to(self.device),
            torch.tensor(seen, dtype=torch.float32, device=self.device),
        )
        decisions = torch.zeros(shape, dtype=torch.bool)
        for row, one in enumerate(reads):
            decisions[row, : len(one)] = True
        return pooled, decisions.to(self.device)

    def _values(self, pooled: Any, decisions: Any) -> Values:
        dense = [torch.zeros(decisions.shape, device=self.device) for _ in range(2)]
        for into, values in zip(dense, self.network.values(pooled), strict=True):
            into[decisions] = values
        return dense[0], dense[1]

    def _features(self, places: Sequence[int]) -> Any:
        if not places:
            return torch.zeros((0, len(self.network.centre)), device=self.device)
        batch = self.network.encoder.batch([self.encoded.texts[place] for place in places])
        tokens = self._kept.tokens(places, batch)
        with _autocast(self.device, on=False):
            return self.network.features(batch, tokens.float())

    def _sample(self) -> Any:
        """Return features of an even sample of the texts, (P, F)."""
        count = len(self.encoded.texts)
        chosen = np.unique(np.linspace(0, count - 1, min(count, _SCALE_TEXTS)).astype(int))
        with torch.no_grad():
            blocks = [
                self._features(chosen[start : start + _READ_AT_ONCE].tolist())
                for start in range(0, len(chosen), _READ_AT_ONCE)
            ]
        return torch.cat(blocks) if blocks else self._features([])


class _Kept:
    """The vectors of all tokens in float16, kept if the encoder is fixed and they fit."""

    def __init__(
        self,
        network: QNetwork,
        texts: Sequence[Tokens],
        cache_bytes: int,
        progress: Callable[[Any], None] | None,
    ) -> None:
        self._encoder, self._texts, self._fixed = network.encoder, texts, network.reads_alike
        self._vectors: dict[int, Any] = {}
        size = 2 * network.encoder.width * sum(len(text.ids) for text in texts)
        if not self._fixed or size > cache_bytes:
            return
        order = sorted(range(len(texts)), key=lambda place: len(texts[place].ids))
        for start in range(0, len(order), _READ_AT_ONCE):
            places = order[start : start + _READ_AT_ONCE]
            self._vectors |= self._read(places)
            if progress:
                done = start + len(places)
                progress(TrainingProgress(label="read texts", done=done, total=len(order)))

    def _read(self, places: Sequence[int]) -> dict[int, Any]:
        texts = [self._texts[place] for place in places]
        with torch.no_grad():
            vectors = self._encoder.tokens(self._encoder.batch(texts)).half()
        return {
            place: vectors[row, : len(text.ids)].clone()
            for row, (place, text) in enumerate(zip(places, texts, strict=True))
        }

    def tokens(self, places: Sequence[int], batch: Batch) -> Any:
        if not self._fixed:
            return self._encoder.tokens(batch)
        held = self._vectors or self._read(places)
        size = (*batch.ids.shape, self._encoder.width)
        vectors = torch.zeros(size, device=self._encoder.device)
        for row, place in enumerate(places):
            vectors[row, : len(held[place])] = held[place]
        return vectors


def _autocast(device: Any, *, on: bool) -> AbstractContextManager[Any]:
    context: AbstractContextManager[Any] = torch.autocast(device.type, torch.bfloat16, enabled=on)
    return context


def train_network(
    training: Trajectories,
    validation: Trajectories,
    settings: TrainSettings,
    run: FitRun | None = None,
) -> Learned:
    """Build and train a network; the same inputs on the same machine give the same weights."""
    check_learnable(training.rewards, training.lengths, validation.lengths, settings.target)
    automatic = "cuda" if torch.cuda.is_available() else "cpu"
    device = automatic if settings.device == "auto" else settings.device
    encoder = TextEncoder.load(settings.encoder, device=device)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        network = build_network(encoder, settings)
    run = run or FitRun()
    parts = training.states, validation.states
    learner = TextLearner(network, parts, cache_bytes=settings.cache_bytes, progress=run.progress)
    best, steps = train(learner, (training, validation), settings, run)
    return Learned(
        network=network,
        best=best,
        steps=steps,
        truncation=learner.encoded.truncation,
        notes=_notes(training, validation, learner.encoded.truncation, network),
    )


def _notes(
    training: Trajectories, validation: Trajectories, cut: Mapping[str, int], network: QNetwork
) -> tuple[str, ...]:
    notes = []
    single = sum(int((part.lengths < 2).sum()) for part in (training, validation))
    if single:
        notes.append(
            f"not learned from {counted(single, 'question')} of one round, where nothing is decided"
        )
    window = network.shape.window
    if cut["states_cut"]:
        notes.append(
            f"{cut['states_cut']} of {cut['states']} states lost documents or parts of them to the window "
            f"of {window} tokens"
        )
    if cut["questions_cut"]:
        notes.append(
            f"cut {cut['questions_cut']} of {counted(cut['questions'], 'question')} to fit the window of "
            f"{window} tokens"
        )
    return tuple(notes)
