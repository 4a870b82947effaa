"""One training loop for every network and every target."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from suffice.errors import UsageError
from suffice.policies.method import FitRun
from suffice.policies.stop_rag.encoder import torch
from suffice.policies.stop_rag.stop_rag_settings import Schedule
from suffice.policies.stop_rag.targets import (
    Choice,
    binary_labels,
    binary_loss,
    choose_threshold,
    informative,
    q_lambda,
    value_loss,
)
from suffice.stats.units import Array

if TYPE_CHECKING:
    from suffice.policies.stop_rag.learning import TextLearner
    from suffice.policies.stop_rag.signal_network import SignalLearner

    Learner: TypeAlias = TextLearner | SignalLearner

Values = tuple[Any, Any]
"""Of stopping and of going on, tensors (b, T); 0 at no decision."""
_MOST_EVALUATIONS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Trajectories:
    """Recorded questions to learn from: rewards (n, T) in [0, 1], lengths (n,), and their states."""

    rewards: Array
    lengths: NDArray[np.int64]
    states: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Validation:
    """What the network was worth after ``step`` steps; ``loss`` is the mean since the evaluation before."""

    step: int
    loss: float
    choice: Choice


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """The best checkpoint's evaluation and the number of steps. The learner holds it."""

    best: Validation
    steps: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Learned:
    """A trained network, what validation found, and what did not fit its window."""

    network: Any
    fitted: Trained
    truncation: Mapping[str, int] | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingProgress:
    """How far a training is: ``read`` counts texts, ``train`` steps."""

    stage: Literal["read", "train"]
    done: int
    total: int
    loss: float | None = None
    evaluation: Validation | None = None

    @property
    def label(self) -> str:
        """What is counted."""
        return "read texts" if self.stage == "read" else "trained steps"

    @property
    def said(self) -> str:
        """How the last validation went; empty where there was none."""
        if self.evaluation is None:
            return ""
        choice = self.evaluation.choice
        return (
            f"step {self.done}: validation reward {choice.score:.3f} in {choice.mean_rounds:.2f} rounds, "
            f"loss {self.evaluation.loss:.4f}"
        )


def train(
    learner: Learner,
    data: tuple[Trajectories, Trajectories],
    settings: Schedule,
    run: FitRun | None = None,
) -> Trained:
    """Train, and leave in the learner the weights that did best on validation.

    A step takes whole trajectories: all their states are read in one forward, and targets are made of the
    heads' values of them without gradient and without dropout. About ten times (or once an epoch, where
    that is rarer) a threshold is chosen on validation; the weights with the best mean reward there are
    kept, of equal ones those with fewer rounds, then the later ones.

    Paper 1, section 4.2 and appendices B and C. Published: targets, loss, optimiser; the rest is ours.
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
                        stage="train",
                        done=training.step,
                        total=training.steps,
                        loss=loss,
                        evaluation=evaluation,
                    )
                )
        return training.finish()


class _Training:
    """Which trajectories are taken when, and what changes with every step."""

    def __init__(
        self, learner: Learner, data: tuple[Trajectories, Trajectories], settings: Schedule
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
        """The trajectories of the next step: each once an epoch, in an order of its own."""
        epoch, number = divmod(self.step, self._epoch)
        order = np.random.default_rng([self._settings.seed, epoch]).permutation(self._chosen)
        return order[number * self._batch : (number + 1) * self._batch]

    def advance(self) -> float:
        """One step; its loss."""
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
        """Choose a threshold, and keep the weights where they are the best so far."""
        rewards, lengths = self._validation.rewards, self._validation.lengths
        stop, cont = self._learner.validation_values((rewards.shape[0], rewards.shape[1]))
        choice = choose_threshold(stop - cont, rewards, lengths, ends=self._settings.ends)
        validation = Validation(step=self.step, loss=float(np.mean(self._losses)), choice=choice)
        self._losses = []
        if self._best is None or _worth(validation) >= _worth(self._best):
            self._best = validation
            tensors = self._learner.tensors()
            self._best_tensors = {name: tensor.clone() for name, tensor in tensors.items()}
        return validation

    def finish(self) -> Trained:
        """The best weights into the learner."""
        if self._best is None:
            raise UsageError("no step was taken, so there is nothing to choose from")
        self._learner.load_tensors(self._best_tensors)
        return Trained(best=self._best, steps=self.steps)


def _worth(validation: Validation) -> tuple[float, float]:
    return round(validation.choice.score, 12), -validation.choice.mean_rounds
