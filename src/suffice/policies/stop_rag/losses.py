"""What a batch is trained on: the losses, and whether there is anything to learn."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from suffice.errors import UsageError
from suffice.policies.stop_rag.encoder import torch_module
from suffice.policies.stop_rag.settings import Target
from suffice.policies.stop_rag.targets import q_lambda

__all__ = ["binary_loss", "check_training", "check_validation", "value_loss"]


def value_loss(
    values: tuple[Any, Any],
    earned: tuple[NDArray[np.float64], NDArray[np.int64]],
    known: NDArray[np.bool_],
    lam: float,
) -> Any:
    """Squared error of both heads, summed, mean over the states learned from."""
    torch = torch_module()
    stop, cont = values
    guess = [each.detach().double().cpu().numpy() for each in values]
    going_on = q_lambda(*earned, guess[0], guess[1], lam)
    where = torch.from_numpy(known).to(stop.device)

    def error(value: Any, target: NDArray[np.float64]) -> Any:
        wanted = torch.from_numpy(target[known]).to(stop.device, stop.dtype)
        return (value[where] - wanted).square()

    return (error(stop, earned[0]) + error(cont, going_on)).mean()


def binary_loss(
    values: tuple[Any, Any], labels: NDArray[np.float64], known: NDArray[np.bool_]
) -> Any:
    """Log-loss of the difference as the logit of "stopping is better" (equation 22)."""
    torch = torch_module()
    logits = values[0] - values[1]
    where = torch.from_numpy(known).to(logits.device)
    wanted = torch.from_numpy(labels[known]).to(logits.device, logits.dtype)
    return torch.nn.functional.binary_cross_entropy_with_logits(logits[where], wanted)


def check_training(
    lengths: NDArray[np.int64],
    target: Target,
    known: NDArray[np.bool_],
    labels: NDArray[np.float64],
) -> None:
    """Refuse trajectories that leave nothing to learn.

    Parameters
    ----------
    lengths
        (n,), rounds of each.
    target
        What is learned.
    known
        (n, T), the states learned from.
    labels
        (n, T), of target ``binary``.

    Raises
    ------
    UsageError
        When no trajectory has two rounds, no state is informative, or ``binary`` finds one class.
    """
    if not (lengths > 1).any():
        raise UsageError(
            "every training question has one round, so there is nothing to decide; record with "
            "--rounds 2 or more"
        )
    if not known.any():
        raise UsageError(
            "no state is left to learn from: the reward is 0 in every round of every training "
            "question; check the gold answers and samples, or score by another reward"
        )
    if target == "binary" and len(np.unique(labels[known])) < 2:
        kind = "better" if labels[known][0] else "never better"
        raise UsageError(
            f"target 'binary' needs both classes, and stopping is {kind} in all {int(known.sum())} "
            "training states; use target 'q-lambda' or 'mc', which learn how much better"
        )


def check_validation(lengths: NDArray[np.int64]) -> None:
    """Refuse validation trajectories (n,) that leave nothing to decide.

    Raises
    ------
    UsageError
        When none has two rounds.
    """
    if not (lengths > 1).any():
        raise UsageError(
            f"none of the {len(lengths)} validation questions has two rounds, so no threshold "
            "can be chosen; give more questions or a larger validation share"
        )
