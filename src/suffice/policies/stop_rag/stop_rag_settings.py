"""Settings of a value network: the published numbers, and others that fit small data."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Annotated, Any, Literal, get_args

from suffice.errors import UsageError
from suffice.options import Option
from suffice.policies.method import Preset
from suffice.policies.stop_rag.states import REWARDS

Target = Literal["q-lambda", "mc", "q0", "binary"]
TARGETS: tuple[Target, ...] = get_args(Target)
Mode = Literal["separate", "joined"]
MODES: tuple[Mode, ...] = get_args(Mode)
Features = Literal["text", "signals"]
FEATURES: tuple[Features, ...] = get_args(Features)
PACKAGED_ENCODER = "minilm"
MIN_WINDOW = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    target: Target = "q-lambda"
    lambda_start: float = 1.0
    lambda_end: float = 0.1
    batch_states: int = 20
    batch_tokens: int | None = None
    epochs: float = 3.0
    min_steps: int = 400
    learning_rate: float = 1e-4
    head_rate: float = 1e-3
    warm_up: float = 0.1
    weight_decay: float = 0.01
    clip_norm: float = 30.0
    dropout: float = 0.1
    ends: bool = True
    seed: int = 42

    def __post_init__(self) -> None:
        if self.target not in TARGETS:
            raise UsageError(f"no target {self.target!r}; allowed: {', '.join(TARGETS)}")
        _at_least("min_steps", self.min_steps, 1)
        _at_least("seed", self.seed, 0)
        if not 0.0 < self.epochs < math.inf:
            raise UsageError(f"epochs must be above 0, found {self.epochs!r}")

    def trajectories_a_step(self, n_rounds: int, tokens: float) -> int:
        """Return the batch size for trajectories of ``n_rounds`` rounds and about so many tokens."""
        trajectories = round(self.batch_states / max(1, n_rounds - 1))
        if self.batch_tokens is not None and tokens > 0:
            trajectories = min(trajectories, int(self.batch_tokens / tokens))
        return max(1, trajectories)

    def lam(self, step: int, steps: int) -> float:
        """Return λ at a step, from 0."""
        if self.target != "q-lambda":
            return 0.0 if self.target == "q0" else 1.0
        fallen = half_cosine(step / max(1, steps - 1))
        return self.lambda_end + (self.lambda_start - self.lambda_end) * fallen

    def rate_share(self, step: int, steps: int) -> float:
        """Return the share of the largest learning rate at a step, from 0."""
        warm = self.warm_up * steps
        if step + 1 < warm:
            return (step + 1) / warm
        return half_cosine(min(1.0, max(0.0, (step - warm) / max(1.0, steps - warm))))


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainSettings(Schedule):
    """Settings of a network over question and documents."""

    batch_tokens: int | None = 4096
    min_steps: int = 3000
    head_rate: float = 3e-3
    encoder: str = PACKAGED_ENCODER
    mode: Mode = "separate"
    window: int | None = None
    trained_layers: int | None = 0
    head_width: int | None = None
    reader_width: int = 32
    cache_bytes: int = 1 << 30
    device: str = "auto"

    def __post_init__(self) -> None:
        Schedule.__post_init__(self)
        if self.mode not in MODES:
            raise UsageError(f"no mode {self.mode!r}; allowed: {', '.join(MODES)}")
        if not self.encoder:
            raise UsageError("name an encoder: minilm, a folder, or a model of the Hub")
        if self.window is not None:
            _at_least("window", self.window, MIN_WINDOW)
        if self.trained_layers is not None:
            _at_least("trained_layers", self.trained_layers, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalTrainSettings(Schedule):
    """Settings of a network over signals, with layers of this ``width``."""

    batch_states: int = 80
    min_steps: int = 1500
    head_rate: float = 3e-3
    width: int = 32


def half_cosine(share: float) -> float:
    """Fall from 1 at share 0 to 0 at share 1."""
    return 0.5 * (1.0 + math.cos(math.pi * share))


def _at_least(name: str, value: int, low: int) -> None:
    if value < low:
        raise UsageError(f"{name} must be at least {low}, found {value}")


SETTINGS: Mapping[Preset, TrainSettings] = MappingProxyType(
    {
        "published": TrainSettings(
            encoder="microsoft/deberta-v3-large",
            mode="joined",
            trained_layers=None,
            head_width=4096,
            batch_states=128,
            batch_tokens=None,
            min_steps=1,
            learning_rate=5e-5,
            head_rate=5e-5,
            ends=False,
        ),
        "corrected": TrainSettings(),
    }
)
"""The paper's numbers (appendix B), and numbers for a few hundred questions in minutes."""
EPOCHS: Mapping[str, float] = MappingProxyType(
    {"hotpotqa": 1.0, "2wikimultihopqa": 1.0, "musique": 3.0}
)
"""The paper's epochs by data set; 3 for others."""
SIGNAL_SETTINGS: Mapping[Preset, SignalTrainSettings] = MappingProxyType(
    {"published": SignalTrainSettings(ends=False), "corrected": SignalTrainSettings()}
)
"""The network over signals is ours; ``published`` tries other thresholds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StopRAGSettings:
    """Options of Stop-RAG."""

    target: Annotated[
        Target,
        Option(
            help="target to learn. q-lambda: the value of going on. mc and q0: the same with lambda 1 and "
            "0. binary: whether stopping is better."
        ),
    ] = "q-lambda"
    features: Annotated[
        Features,
        Option(
            help="input of the network. text: the question and the documents. signals: the signals of "
            "each round, a plain baseline."
        ),
    ] = "text"
    encoder: Annotated[
        str,
        Option(
            help="a transformers encoder, by folder or name on the Hub (default: minilm, the packaged "
            "all-MiniLM-L6-v2)",
            metavar="PATH_OR_NAME",
        ),
    ] = PACKAGED_ENCODER
    inputs: Annotated[
        tuple[str, ...] | None,
        Option(
            help="names for --features signals. all: adds costly ones and the record's own. (default: all "
            "that vary and cost no model call)",
            metavar="A,B,...|all",
        ),
    ] = None
    reward: Annotated[
        str,
        Option(
            help="score of sampled answers (default: f1, plain SQuAD F1)", choices=tuple(REWARDS)
        ),
    ] = "f1"
    mode: Annotated[
        Mode | None,
        Option(
            help="separate: reads each document with the question and pools them. joined: reads question "
            "and documents as one text. (default: separate, published joined)"
        ),
    ] = None
    window: Annotated[
        int | None,
        Option(
            help="most tokens in one input (default: 256, joined 2048, or the encoder's limit)",
            metavar="N",
            at_least=1,
        ),
    ] = None
    layers: Annotated[
        int | None,
        Option(
            help="number of the encoder's last layers to train (default: 0, published all)",
            metavar="N",
            at_least=0,
        ),
    ] = None
    epochs: Annotated[
        float | None,
        Option(
            help="passes over the questions (default: 3; published 1 on hotpotqa and 2wikimultihopqa)",
            metavar="E",
        ),
    ] = None
    min_steps: Annotated[
        int | None,
        Option(
            help="least number of optimizer steps (default: 3000, published 1, signals 1500)",
            metavar="N",
            at_least=1,
        ),
    ] = None
    seed: Annotated[
        int,
        Option(
            help="seed of the split into training and validation, and of the training", at_least=0
        ),
    ] = 42

    def __post_init__(self) -> None:
        if self.features not in FEATURES:
            raise UsageError(f"no features {self.features!r}; allowed: {', '.join(FEATURES)}")
        if self.reward not in REWARDS:
            raise UsageError(f"no reward {self.reward!r}; allowed: {', '.join(REWARDS)}")
        own = {"text": ("mode", "window", "layers"), "signals": ("inputs",)}
        for features, names in own.items():
            stated = [name for name in names if getattr(self, name) is not None]
            if stated and features != self.features:
                raise UsageError(f"{stated[0]} is for features {features!r}, not {self.features!r}")
        if self.features == "signals" and self.encoder != PACKAGED_ENCODER:
            raise UsageError("features 'signals' read no text and need no encoder; leave it out")

    def schedule(
        self, preset: Preset, dataset: object = None
    ) -> TrainSettings | SignalTrainSettings:
        """Return the preset's settings with these options; ``published`` knows some data sets."""
        options: dict[str, Any] = {"epochs": self.epochs, "min_steps": self.min_steps}
        base: TrainSettings | SignalTrainSettings = SIGNAL_SETTINGS[preset]
        if self.features == "text":
            base = replace(SETTINGS[preset], encoder=self.encoder)
            if preset == "published":
                base = replace(base, epochs=EPOCHS.get(str(dataset), base.epochs))
            options |= {"mode": self.mode, "window": self.window, "trained_layers": self.layers}
        stated = {name: value for name, value in options.items() if value is not None}
        return replace(base, target=self.target, seed=self.seed, **stated)
