"""One training loop for every network and every target."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np

from suffice.policies.stop_rag.checkpoint import Checkpoint, Run
from suffice.policies.stop_rag.encoder import torch_module
from suffice.policies.stop_rag.losses import check_validation
from suffice.policies.stop_rag.settings import Schedule
from suffice.policies.stop_rag.steps import Evaluation, Fitted, Learner, Plan, RewardTable, State

__all__ = ["Evaluation", "Fitted", "Learner", "Progress", "RewardTable", "train"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a training is: ``read`` counts texts, ``train`` steps."""

    stage: Literal["read", "train"]
    done: int
    total: int
    loss: float | None = None
    evaluation: Evaluation | None = None


def train(
    learner: Learner,
    data: tuple[RewardTable, RewardTable],
    settings: Schedule,
    run: Run,
    *,
    progress: Callable[[Progress], None] | None = None,
    checkpoint: Path | None = None,
) -> Fitted:
    """Train, and leave in the learner the weights that did best on validation.

    A step takes whole trajectories: all their states are valued in one forward, and targets are made of
    those values without gradient. About ten times (or once an epoch, where that is rarer) a threshold
    is chosen on validation; the weights with the best mean reward there are kept, of equal ones those
    with fewer rounds, then the later ones.

    Parameters
    ----------
    data
        Rewards of the training trajectories and of those of validation.
    run
        What else a checkpoint must agree on to be continued.
    progress
        Called after every step.
    checkpoint
        A file written at every evaluation and continued from: a killed training ends as it would have.

    Raises
    ------
    UsageError
        When there is nothing to learn or to validate on, or the loss is not finite any more.
    DataError
        When the checkpoint is damaged or of another training.

    Notes
    -----
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
            found = None
            if state.step % plan.interval == 0 or state.step == plan.steps:
                found = state.evaluate(learner, data[1])
                if file is not None:
                    file.write(state.to_checkpoint(learner))
            if progress:
                now = Progress(stage="train", done=state.step, total=plan.steps, loss=loss)
                progress(replace(now, evaluation=found))
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
