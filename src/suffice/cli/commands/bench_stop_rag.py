"""``suffice bench stop-rag``."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from suffice.bench.stop_rag.fits import Fit, FitProgress
from suffice.bench.stop_rag.found import VARIANTS, StopRAGStudy, StopRAGStudySettings
from suffice.bench.stop_rag.page import stop_rag_page
from suffice.bench.stop_rag.run import stop_rag_study
from suffice.bench.stop_rag.table import stop_rag_tables
from suffice.cli.options import (
    add_json,
    add_traces,
    names,
    natural,
    number,
    open_traces,
    positive,
)
from suffice.cli.output import ProgressLine, print_json, say
from suffice.policies.defaults import EVAL_SPLIT, FIT_SPLIT
from suffice.policies.method import PRESETS
from suffice.policies.stop_rag.fit import VALIDATION_SPLIT
from suffice.policies.stop_rag.settings import PACKAGED_ENCODER, StopRAGSettings
from suffice.scoring import F1_KINDS
from suffice.trace.durable import replace_file


def add_experiment(experiments: Any) -> None:
    """Declare the experiment."""
    parser = experiments.add_parser(
        "stop-rag",
        help="Stop-RAG on a record: every target and seed against fixed rounds and LLM-Stop",
        description="Evaluates Stop-RAG on a record that holds samples, as the paper does: trains a network "
        f"for every target in several seeds on split {FIT_SPLIT} (and {VALIDATION_SPLIT} where there is "
        "one), and compares them on another split with every fixed number of rounds, with asking the model, "
        "with a network over signals alone and with the oracle: scores, rounds, calls, precision and recall "
        "of what was retrieved, and paired differences of F1.",
    )
    add_traces(parser)
    parser.add_argument(
        "--variants",
        type=names,
        default=VARIANTS,
        metavar="A,B,...",
        help=f"of {', '.join(VARIANTS)} (default: all)",
    )
    parser.add_argument(
        "--seeds", type=positive, default=3, metavar="N", help="trainings a variant (default: 3)"
    )
    parser.add_argument(
        "--seed",
        type=natural,
        default=42,
        help="of the first training, each next one's is 1 more, and of the resampling (default: 42)",
    )
    _add_training(parser)
    parser.add_argument(
        "--split",
        default=EVAL_SPLIT,
        metavar="S",
        help=f"questions to score (default: {EVAL_SPLIT})",
    )
    parser.add_argument(
        "--f1",
        choices=F1_KINDS,
        default="hotpotqa",
        help="which F1, of answers and of rewards; the paper's is squad (default: hotpotqa)",
    )
    parser.add_argument(
        "--bootstrap", type=positive, default=1000, metavar="N", help="resamples (default: 1000)"
    )
    parser.add_argument(
        "--out",
        metavar="DIR",
        help="write stop_rag.json and stop_rag.html, a page with the figures, and keep every trained policy "
        "in DIR/VARIANT-SEED; run again, it goes on where it stopped",
    )
    add_json(parser)
    parser.set_defaults(run=_run)


def _add_training(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("training", "as in 'suffice fit stop-rag'")
    group.add_argument(
        "--preset",
        choices=PRESETS,
        default="corrected",
        help="settings for small data, or the paper's (default: corrected)",
    )
    group.add_argument(
        "--encoder",
        default=PACKAGED_ENCODER,
        metavar="PATH_OR_NAME",
        help=f"of networks over texts (default: {PACKAGED_ENCODER})",
    )
    group.add_argument("--epochs", type=number, metavar="E", help="passes over the questions")
    group.add_argument(
        "--min-steps", type=positive, metavar="N", help="optimiser steps at least, of every network"
    )


def _run(arguments: argparse.Namespace) -> int:
    steps = {"epochs": arguments.epochs, "min_steps": arguments.min_steps}
    settings = StopRAGStudySettings(
        variants=arguments.variants,
        seeds=arguments.seeds,
        seed=arguments.seed,
        preset=arguments.preset,
        split=arguments.split,
        text=StopRAGSettings(encoder=arguments.encoder, **steps),
        signals=StopRAGSettings(features="signals", **steps),
        f1_kind=arguments.f1,
        resamples=arguments.bootstrap,
        folder=None if arguments.out is None else Path(arguments.out),
    )
    study = stop_rag_study(open_traces(arguments, say), settings, _Watched().show)
    if arguments.json:
        print_json(study.to_json())
        for note in study.notes:
            say(note)
    else:
        print(stop_rag_tables(study))
    if arguments.out is not None:
        _write(study, Path(arguments.out))
    return 0


class _Watched:
    """One line on stderr for every fit, and the steps of the one under way."""

    def __init__(self) -> None:
        self._of: tuple[Fit, str] | None = None
        self._line = ProgressLine("")

    def show(self, now: FitProgress) -> None:
        """State how far a fit is."""
        fit = now.fit
        named = f"{fit.variant}, seed {fit.seed} ({fit.number} of {fit.of})"
        if now.training is None:
            say(f"{named}: {now.stage}")
            return
        if self._of != (fit, now.training.stage):
            self._of = (fit, now.training.stage)
            done = "texts read" if now.training.stage == "read" else "steps trained"
            self._line = ProgressLine(f"{named}: {done}")
        self._line.show(now.training.done, now.training.total)


def _write(study: StopRAGStudy, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    document = json.dumps(study.to_json(), allow_nan=False, ensure_ascii=False, indent=1)
    replace_file(folder / "stop_rag.json", f"{document}\n".encode())
    replace_file(folder / "stop_rag.html", stop_rag_page(study).encode())
    say(f"wrote {folder / 'stop_rag.json'} and {folder / 'stop_rag.html'}")
