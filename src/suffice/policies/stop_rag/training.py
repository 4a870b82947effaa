"""One training loop for every network and every target."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from suffice._optional import require
from suffice.errors import DataError, UsageError, first_line
from suffice.policies.stop_rag.encoder import PURPOSE, torch_module
from suffice.policies.stop_rag.settings import Schedule
from suffice.policies.stop_rag.targets import (
    Choice,
    binary_labels,
    binary_loss,
    check_training,
    check_validation,
    choose_threshold,
    informative,
    q_lambda,
    value_loss,
)
from suffice.trace.durable import replace_file

Run = Mapping[str, Any]
"""What identifies a training, as JSON: a checkpoint that says otherwise is refused."""
_KEY = "suffice"


def write_tensors(path: Path, tensors: Mapping[str, Any], header: Mapping[str, Any]) -> None:
    """A safetensors file whose metadata hold the header as JSON; written aside and renamed."""
    weights = require("safetensors.torch", extra="learn", purpose=PURPOSE)
    plain = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(dict(header), allow_nan=False, sort_keys=True)
    replace_file(path, weights.save(plain, metadata={_KEY: text}))


def read_tensors(path: Path, what: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Tensors and header of such a file."""
    weights = require("safetensors", extra="learn", purpose=PURPOSE)
    try:
        with weights.safe_open(str(path), framework="pt") as file:
            header = json.loads((file.metadata() or {})[_KEY])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except FileNotFoundError as error:
        raise DataError(f"there is no {what} here", file=str(path)) from error
    except KeyError as error:
        raise DataError(
            f"not {what} of this library: its header is missing", file=str(path)
        ) from error
    except (OSError, ValueError, RecursionError, weights.SafetensorError) as error:
        raise DataError(f"not {what}, or damaged ({first_line(error)})", file=str(path)) from error
    if not isinstance(header, dict):
        raise DataError(f"not {what} of this library", file=str(path))
    return tensors, header


class Checkpoint:
    """The file of a training; ``run`` is what it must agree on."""

    def __init__(self, path: Path, run: Run) -> None:
        self._path = path
        self._run: dict[str, Any] = json.loads(json.dumps(dict(run)))

    def write(self, saved: tuple[dict[str, Any], dict[str, Any]]) -> None:
        """Tensors, and the rest as JSON."""
        tensors, rest = saved
        write_tensors(self._path, tensors, {"schema": 1, "run": self._run, "state": rest})

    def read(self) -> tuple[dict[str, Any], dict[str, Any]] | None:
        """What :meth:`write` was given; ``None``: there is no such file."""
        if not self._path.exists():
            return None
        tensors, header = read_tensors(self._path, "a training's checkpoint")
        run, state = header.get("run"), header.get("state")
        if header.get("schema") != 1 or not isinstance(run, dict) or not isinstance(state, dict):
            raise DataError("not a training's checkpoint", file=str(self._path))
        differing = sorted(
            name for name in {*run, *self._run} if run.get(name) != self._run.get(name)
        )
        if differing:
            name = differing[0]
            raise DataError(
                f"this checkpoint is of another training: {name} was {_short(run.get(name))}, now "
                f"{_short(self._run.get(name))}; train with what it had, or choose an empty folder",
                file=str(self._path),
            )
        return tensors, state


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 40 else f"{text[:16]}..."


_MOST_EVALUATIONS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardTable:
    """Rewards (n, T) in [0, 1] and lengths (n,) of trajectories, in the order of the learner's states."""

    rewards: NDArray[np.float64]
    lengths: NDArray[np.int64]

    @property
    def shape(self) -> tuple[int, int]:
        """(n, T)."""
        return int(self.rewards.shape[0]), int(self.rewards.shape[1])


@dataclass(frozen=True, slots=True, kw_only=True)
class Validation:
    """What the network was worth after ``step`` steps; ``loss`` is the mean since the evaluation before."""

    step: int
    loss: float
    choice: Choice


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """The best checkpoint's evaluation, all of them, and the number of steps. The learner holds it."""

    best: Validation
    history: tuple[Validation, ...]
    steps: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchValues:
    """Values of stopping and of going on in a batch's states, tensors (b, T); 0 at no decision.

    ``learned`` with gradients and dropout, ``estimates``, which targets bootstrap from, without either.
    """

    learned: tuple[Any, Any]
    estimates: tuple[Any, Any]


class Learner(Protocol):
    """A network over the states of training and validation trajectories."""

    @property
    def digest(self) -> str:
        """What identifies the states."""
        ...

    @property
    def device(self) -> Any:
        """Where it computes."""
        ...

    @property
    def tokens(self) -> float:
        """Tokens of a training trajectory, on average; 0 where there are none."""
        ...

    def parameters(self) -> tuple[list[Any], list[Any]]:
        """What is trained at the encoder's rate, and at the heads' rate."""
        ...

    def tensors(self) -> dict[str, Any]:
        """The weights that training changes, by name."""
        ...

    def load_tensors(self, tensors: dict[str, Any]) -> None:
        """Take such weights over."""
        ...

    def batch_values(self, rows: NDArray[np.int64], shape: tuple[int, int]) -> BatchValues:
        """Those of the training trajectories ``rows``; ``shape`` is (b, T)."""
        ...

    def validation_values(
        self, shape: tuple[int, int]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Those of validation, without gradients and dropout, each (n, T)."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Which trajectories are taken when; ``known`` (n, T) states count, ``labels`` are for ``binary``."""

    chosen: NDArray[np.int64]
    batch: int
    steps: int
    interval: int
    seed: int
    known: NDArray[np.bool_]
    labels: NDArray[np.float64]

    @classmethod
    def make(cls, table: RewardTable, settings: Schedule, tokens: float) -> Plan:
        """The plan for these trajectories; raises UsageError when they leave nothing to learn."""
        known = informative(table.rewards, table.lengths)
        labels = binary_labels(table.rewards, table.lengths)
        chosen = np.flatnonzero(known.any(axis=1))
        check_training(table.lengths, settings.target, known, labels)
        most = settings.trajectories_a_step(int(table.lengths.max()), tokens)
        batch = min(len(chosen), most)
        epoch = math.ceil(len(chosen) / batch)
        steps = max(math.ceil(settings.epochs * epoch), settings.min_steps)
        return cls(
            chosen=chosen,
            batch=batch,
            steps=steps,
            interval=min(steps, max(epoch, math.ceil(steps / _MOST_EVALUATIONS))),
            seed=settings.seed,
            known=known,
            labels=labels,
        )

    def rows(self, step: int) -> NDArray[np.int64]:
        """The trajectories of a step, counted from 0: each once an epoch, in an order of its own."""
        epoch, number = divmod(step, math.ceil(len(self.chosen) / self.batch))
        order = np.random.default_rng([self.seed, epoch]).permutation(self.chosen)
        return order[number * self.batch : (number + 1) * self.batch]


class AdamW:
    """torch's AdamW, by its own function of a step.

    The class of that name loads a compiler, and sympy with it, which takes as long as torch itself and is
    used by nothing here. Each group is ``params`` and their ``lr``.
    """

    def __init__(self, groups: Sequence[dict[str, Any]], *, weight_decay: float) -> None:
        self.groups = groups
        self.state: dict[int, dict[str, Any]] = {}
        """By the number of a parameter, through all groups, what is kept of its gradients."""
        self._weight_decay = weight_decay

    def zero_grad(self) -> None:
        """Forget the gradients."""
        for group in self.groups:
            for parameter in group["params"]:
                parameter.grad = None

    def step(self) -> None:
        """Follow the gradients."""
        torch = torch_module()
        follow = require("torch.optim.adamw", extra="learn", purpose=PURPOSE).adamw
        number = 0
        for group in self.groups:
            followed, kept = [], []
            for parameter in group["params"]:
                if parameter.grad is not None:
                    followed.append(parameter)
                    kept.append(self._kept(number, parameter))
                number += 1
            with torch.no_grad():
                follow(
                    followed,
                    [parameter.grad for parameter in followed],
                    [one["exp_avg"] for one in kept],
                    [one["exp_avg_sq"] for one in kept],
                    [],
                    [one["step"] for one in kept],
                    amsgrad=False,
                    beta1=0.9,
                    beta2=0.999,
                    lr=group["lr"],
                    weight_decay=self._weight_decay,
                    eps=1e-8,
                    maximize=False,
                )

    def load(self, state: Mapping[int, Mapping[str, Any]]) -> None:
        """Go on from this :attr:`state`, wherever its tensors lie."""
        parameters = [parameter for group in self.groups for parameter in group["params"]]
        self.state = {
            number: {
                name: tensor if name == "step" else tensor.to(parameters[number].device)
                for name, tensor in kept.items()
            }
            for number, kept in state.items()
        }

    def _kept(self, number: int, parameter: Any) -> dict[str, Any]:
        if number not in self.state:
            torch = torch_module()
            self.state[number] = {
                "step": torch.tensor(0.0),
                "exp_avg": torch.zeros_like(parameter),
                "exp_avg_sq": torch.zeros_like(parameter),
            }
        return self.state[number]


class State:
    """What changes while training."""

    def __init__(self, learner: Learner, settings: Schedule, steps: int) -> None:
        self._settings = settings
        self._steps = steps
        rates = (settings.learning_rate, settings.head_rate)
        pairs = [
            (params, rate)
            for params, rate in zip(learner.parameters(), rates, strict=True)
            if params
        ]
        self._rates = [rate for _, rate in pairs]
        self._parameters = [parameter for params, _ in pairs for parameter in params]
        groups = [{"params": params, "lr": rate} for params, rate in pairs]
        self._optimizer = AdamW(groups, weight_decay=settings.weight_decay)
        self.step = 0
        self._losses: list[float] = []
        self._history: list[Validation] = []
        self._best: Validation | None = None
        self._best_tensors: dict[str, Any] = {}

    def advance(
        self, learner: Learner, table: RewardTable, rows: NDArray[np.int64], plan: Plan
    ) -> float:
        """One step; its loss."""
        torch = torch_module()
        share = self._settings.rate_share(self.step, self._steps)
        for group, rate in zip(self._optimizer.groups, self._rates, strict=True):
            group["lr"] = rate * share
        values = learner.batch_values(rows, (len(rows), table.shape[1]))
        lam = self._settings.lam(self.step, self._steps)
        if self._settings.target == "binary":
            loss = binary_loss(values.learned, plan.labels[rows], plan.known[rows])
        else:
            rewards = table.rewards[rows]
            q_stop, q_cont = (tensor.double().cpu().numpy() for tensor in values.estimates)
            going_on = q_lambda(rewards, table.lengths[rows], q_stop, q_cont, lam)
            loss = value_loss(values.learned, (rewards, going_on), plan.known[rows])
        self._optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self._parameters, self._settings.clip_norm)
        self._optimizer.step()
        self.step += 1
        value = float(loss.detach())
        if not math.isfinite(value):
            raise UsageError(
                f"the loss is {value} at step {self.step} of {self._steps}; choose lower rates than "
                f"{self._settings.learning_rate:g} and {self._settings.head_rate:g}"
            )
        self._losses.append(value)
        return value

    def evaluate(self, learner: Learner, table: RewardTable) -> Validation:
        """Choose a threshold, and keep the weights where they are the best so far."""
        stop, cont = learner.validation_values(table.shape)
        choice = choose_threshold(
            stop - cont, table.rewards, table.lengths, ends=self._settings.ends
        )
        validation = Validation(step=self.step, loss=float(np.mean(self._losses)), choice=choice)
        self._losses = []
        self._history.append(validation)
        if self._best is None or _worth(validation) >= _worth(self._best):
            self._best = validation
            self._best_tensors = {n: tensor.clone() for n, tensor in learner.tensors().items()}
        return validation

    def finish(self, learner: Learner) -> Trained:
        """The best weights into the learner."""
        if self._best is None:
            raise UsageError("no step was taken, so there is nothing to choose from")
        learner.load_tensors(self._best_tensors)
        return Trained(best=self._best, history=tuple(self._history), steps=self._steps)

    def to_checkpoint(self, learner: Learner) -> tuple[dict[str, Any], dict[str, Any]]:
        """Tensors, and the rest as JSON."""
        torch = torch_module()
        tensors = {f"now.{name}": tensor for name, tensor in learner.tensors().items()}
        tensors |= {f"best.{name}": tensor for name, tensor in self._best_tensors.items()}
        for number, kept in self._optimizer.state.items():
            tensors |= {f"optimizer.{number}.{name}": tensor for name, tensor in kept.items()}
        tensors["generator"] = torch.get_rng_state()
        rest = {
            "step": self.step,
            "history": [_evaluation_json(validation) for validation in self._history],
            "best": None if self._best is None else self._history.index(self._best),
        }
        return tensors, rest

    def resume(self, saved: tuple[dict[str, Any], dict[str, Any]] | None, learner: Learner) -> None:
        """Go on from a checkpoint, if there is one."""
        if saved is None:
            return
        torch = torch_module()
        tensors, rest = saved
        learner.load_tensors(_part(tensors, "now."))
        self._best_tensors = _part(tensors, "best.")
        kept: dict[int, dict[str, Any]] = {}
        for name, tensor in _part(tensors, "optimizer.").items():
            number, _, what = name.partition(".")
            kept.setdefault(int(number), {})[what] = tensor
        self._optimizer.load(kept)
        torch.set_rng_state(tensors["generator"])
        self.step = int(rest["step"])
        self._history = [_evaluation(entry) for entry in rest["history"]]
        self._best = self._history[rest["best"]]


def _worth(validation: Validation) -> tuple[float, float]:
    return round(validation.choice.score, 12), -validation.choice.mean_rounds


def _part(tensors: dict[str, Any], start: str) -> dict[str, Any]:
    return {
        name[len(start) :]: tensor for name, tensor in tensors.items() if name.startswith(start)
    }


def _evaluation_json(validation: Validation) -> dict[str, Any]:
    return {"step": validation.step, "loss": validation.loss, **asdict(validation.choice)}


def _evaluation(entry: dict[str, Any]) -> Validation:
    rest = {name: value for name, value in entry.items() if name not in ("step", "loss")}
    return Validation(step=entry["step"], loss=entry["loss"], choice=Choice(**rest))


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
    data: tuple[RewardTable, RewardTable],
    settings: Schedule,
    run: Run,
    *,
    progress: Callable[[TrainingProgress], None] | None = None,
    checkpoint: Path | None = None,
) -> Trained:
    """Train, and leave in the learner the weights that did best on validation.

    A step takes whole trajectories: all their states are read in one forward, and targets are made of the
    heads' values of them without gradient and without dropout. About ten times (or once an epoch, where
    that is rarer) a threshold is chosen on validation; the weights with the best mean reward there are
    kept, of equal ones those with fewer rounds, then the later ones.

    Paper 1, section 4.2 and appendices B and C. Published: targets, loss, optimiser; the rest is ours.
    """
    plan = Plan.make(data[0], settings, learner.tokens)
    check_validation(data[1].lengths)
    torch = torch_module()
    devices = [learner.device] if learner.device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(settings.seed)
        state = State(learner, settings, plan.steps)
        agreed = _agreement(learner, data, run)
        file = None if checkpoint is None else Checkpoint(checkpoint, agreed)
        if file is not None:
            state.resume(file.read(), learner)
        for loss in _steps(state, learner, data[0], plan):
            validation = None
            if state.step % plan.interval == 0 or state.step == plan.steps:
                validation = state.evaluate(learner, data[1])
                if file is not None:
                    file.write(state.to_checkpoint(learner))
            if progress:
                now = TrainingProgress(stage="train", done=state.step, total=plan.steps, loss=loss)
                progress(replace(now, evaluation=validation))
        return state.finish(learner)


def _steps(state: State, learner: Learner, table: RewardTable, plan: Plan) -> Iterator[float]:
    """The steps that are left; the loss of each, once it is taken."""
    while state.step < plan.steps:
        yield state.advance(learner, table, plan.rows(state.step), plan)


def _agreement(learner: Learner, data: tuple[RewardTable, RewardTable], run: Run) -> Run:
    """What a checkpoint must agree on, with the states and rewards learned from."""
    digest = hashlib.sha256(learner.digest.encode())
    for table in data:
        digest.update(np.ascontiguousarray(table.rewards, np.float64).tobytes())
        digest.update(np.ascontiguousarray(table.lengths, np.int64).tobytes())
    return {**run, "questions": digest.hexdigest()}
