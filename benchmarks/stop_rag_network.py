"""Stop-RAG's network: deciding against a bare forward pass, training against plain fine-tuning."""

from __future__ import annotations

import json
import random
import resource
import statistics
import subprocess
import sys
import time
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from suffice.policies.stop_rag.encoder import TextEncoder
from suffice.policies.stop_rag.encoding import Tokens
from suffice.policies.stop_rag.learning import train_network
from suffice.policies.stop_rag.network import QNetwork, build_network
from suffice.policies.stop_rag.settings import TrainSettings
from suffice.policies.stop_rag.states import StateTexts
from suffice.policies.stop_rag.text_model import TextScorer
from suffice.policies.stop_rag.training import Trajectories

ROUNDS, TRAINED, WORDS, STEPS = 6, 40, 90, 14
_SOME = (
    *("the", "river", "was", "named", "after", "an", "old", "town"),
    *("whose", "bridge", "had", "been", "built", "by", "two", "brothers"),
)


def questions(count: int, *, seed: int = 0) -> list[StateTexts]:
    """Questions with a paragraph of 90 words a round."""
    rng = random.Random(seed)

    def text(words: int) -> str:
        return " ".join(
            rng.choice(_SOME) + str(rng.randrange(9)) * (rng.random() < 0.1) for _ in range(words)
        )

    return [
        StateTexts(question=text(14), documents=tuple((text(WORDS),) for _ in range(ROUNDS)))
        for _ in range(count)
    ]


def deciding(mode: str) -> float:
    """Seconds of scoring every state of a loop over those of a bare forward pass on the same tokens."""
    encoder = TextEncoder.load("minilm")
    settings = TrainSettings(mode=mode, trained_layers=2)  # type: ignore[arg-type]
    network = build_network(encoder, settings)
    asked = questions(6)
    ratios = []
    with torch.inference_mode():
        for states in asked:
            scorer = TextScorer(network)
            started = time.perf_counter()
            for number in range(1, ROUNDS + 1):
                scorer.score_texts(states, number)
            ours = time.perf_counter() - started
            seen = [states.seen(number) for number in range(1, ROUNDS + 1)]
            tokenizer = network.tokenizer
            tokens = [
                tokenizer.read(states.question, text[-1:] if mode == "separate" else text)[0]
                for text in seen
            ]
            batches = [encoder.batch([token]) for token in tokens]
            started = time.perf_counter()
            for batch in batches:
                encoder.body(
                    input_ids=batch.ids,
                    attention_mask=batch.mask.long(),
                    token_type_ids=batch.types,
                )
            ratios.append(ours / (time.perf_counter() - started))
    return statistics.median(ratios[1:])


def trajectories(count: int, seed: int) -> Trajectories:
    rng = np.random.default_rng(seed)
    return Trajectories(
        states=questions(count, seed=seed),
        rewards=rng.integers(1, 9, (count, ROUNDS)) / 8,
        lengths=np.full(count, ROUNDS),
    )


def our_step(settings: TrainSettings) -> tuple[float, float]:
    """Seconds of a training step, and decision states a step holds."""
    times: list[float] = []
    train_network(
        trajectories(TRAINED, 0),
        trajectories(2, 1),
        settings,
        progress=lambda now: times.append(time.perf_counter()) if now.stage == "train" else None,
    )
    gaps = np.diff(times)
    return float(np.median(gaps[2:])), batch_size(settings) * (ROUNDS - 1.0)


def batch_size(settings: TrainSettings) -> int:
    """Trajectories a step of either training holds."""
    network = build_network(TextEncoder.load("minilm"), settings)
    tokens = [len(pair.ids) for pair in pairs(network, questions(TRAINED))]
    return settings.trajectories_a_step(ROUNDS, (ROUNDS - 1) * statistics.fmean(tokens))


def pairs(network: QNetwork, asked: list[StateTexts]) -> list[Tokens]:
    """Question and document of every round before the last."""
    return [
        tokens
        for each in asked
        for tokens in network.tokenizer.read(each.question, each.seen(ROUNDS - 1))
    ]


def plain_step(settings: TrainSettings) -> float:
    """Seconds of fine-tuning the whole encoder with one linear head on the same texts, in float32."""
    encoder = TextEncoder.load("minilm")
    network = build_network(encoder, settings)
    encoder.train_only(None)
    head = torch.nn.Linear(encoder.width, 2)
    parameters = [*encoder.body.parameters(), *head.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=5e-5)
    count = batch_size(settings)
    times = []
    for step in range(5):
        tokens = pairs(network, questions(count, seed=step))
        batch = encoder.batch(tokens)
        started = time.perf_counter()
        vectors = encoder.tokens(batch)
        pooled = (vectors * batch.mask.unsqueeze(-1)).sum(1) / batch.mask.sum(1, keepdim=True)
        loss = head(pooled).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        times.append(time.perf_counter() - started)
    return statistics.median(times[1:])


def _measure(what: str) -> dict[str, Any]:
    settings = replace(TrainSettings(), min_steps=STEPS, epochs=0.1)
    if what == "plain":
        seconds, states = plain_step(settings), 0.0
    else:
        layers = {"none": 0, "all": None}[what]
        trained = replace(settings, trained_layers=layers)
        seconds, states = our_step(trained)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    return {"seconds": seconds, "states": states, "peak": peak}


def _alone(what: str) -> dict[str, Any]:
    """Measured in a process of its own, so that peaks are its own."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.stop_rag_network", what],
        check=True,
        capture_output=True,
        text=True,
    )
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return figures


def main() -> dict[str, float]:
    names = {"none": "no layer", "all": "all layers"}
    plain = _alone("plain")
    ours = {what: _alone(what) for what in names}
    return {
        "deciding over a bare forward pass, separate (at most 1.2)": deciding("separate"),
        "deciding over a bare forward pass, joined (at most 1.2)": deciding("joined"),
        "states a second, the default": ours["none"]["states"] / ours["none"]["seconds"],
        **{
            f"{name} trained, over plain fine-tuning of the encoder on the same texts": plain[
                "seconds"
            ]
            / ours[what]["seconds"]
            for what, name in names.items()
        },
        **{f"peak memory, {name}, GB": ours[what]["peak"] for what, name in names.items()},
        "peak memory of plain fine-tuning, GB": plain["peak"],
    }


if __name__ == "__main__":
    print(json.dumps(_measure(sys.argv[1])))
