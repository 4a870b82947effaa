"""Proofs along paths in plain Python: paths, questions, orders and bets one after the other."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence

import numpy as np

from suffice.evaluation.choose.proof import COINS, Along
from suffice.measures.measures import Measures


def rejected_by_hand(record: Measures, along: Along, losses: Sequence[float]) -> list[list[int]]:
    """How many hypotheses of every path are rejected, a list for each allowed loss."""
    scores = record.scores().compared
    ends = record.traces.last_rounds.tolist()
    ids = [*record.traces.question_ids]
    full = [float(scores[row, end - 1]) for row, end in enumerate(ends)]
    paths = []
    for path in range(len(along.names)):
        lost, before = [], [0.0] * len(ids)
        for number in range(len(along.costs(path)) // len(COINS)):
            policy = along.candidate(along.step(path, number * 4 + 3)).policy.policy
            assert policy is not None
            stops = np.minimum(record.wanted_rounds(policy), ends).tolist()
            after = [full[row] - float(scores[row, stop - 1]) for row, stop in enumerate(stops)]
            lost += [
                [(1 - coin) * b + coin * a for b, a in zip(before, after, strict=True)]
                for coin in COINS
            ]
            before = after
        paths.append(lost)
    shares = {}
    for loss in losses:
        of_loss = 0.05 * (0.4 if loss == 0.02 else 0.6 / 4)
        for path in range(len(paths)):
            shares[loss, path] = of_loss / len(paths)
    first = dict(shares)
    done = dict.fromkeys(shares, 0)
    while True:
        for (loss, path), share in [*shares.items()]:
            lost = paths[path]
            while done[loss, path] < len(lost) and (
                _p_value(lost[done[loss, path]], loss, first[loss, path], ids) <= share
            ):
                done[loss, path] += 1
        ended = [
            at for at in shares if done[at] == len(paths[at[1]]) and shares[at] > 0 and paths[at[1]]
        ]
        left = [at for at in shares if done[at] < len(paths[at[1]])]
        if not ended or not left:
            return [[done[loss, path] for path in range(len(paths))] for loss in losses]
        for at in left:
            shares[at] += shares[ended[0]] / len(left)
        shares[ended[0]] = 0.0


def _p_value(lost: Sequence[float], loss: float, level: float, ids: Sequence[str]) -> float:
    capitals, best = [], 1.0
    for order in range(10):
        rows = sorted(range(len(ids)), key=lambda row: _lot(f"order {order}", ids[row]))
        capital, total, squares, limit = 1.0, 0.0, 0.6, (loss + 1) / 2
        for seen, row in enumerate(rows):
            value = (lost[row] + 1) / 2
            missing = max(math.log(2 / level / capital), 0.0)
            stake = math.sqrt(2 * missing * (seen + 20) / (squares * (len(ids) - seen)))
            capital *= 1 + min(stake, 0.98 / (1 - limit)) * (limit - value)
            total += value
            squares += (value - total / (seen + 1)) ** 2
        capitals.append(capital)
        best = max(best, sum(capitals) / len(capitals))
    return 1 / best


def _lot(key: str, name: str) -> float:
    digest = hashlib.sha256(f"{key}:{name}".encode()).digest()
    return (int.from_bytes(digest[:8], "big") >> 11) / 2.0**53
