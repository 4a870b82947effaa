"""What ``suffice fit`` takes for each method."""

from __future__ import annotations

import argparse
from typing import Any

from suffice.cli.options import grid, names, natural, number, numbers, positive
from suffice.policies.ab_rag.policy import CERTAINTIES, SUPPORTS
from suffice.policies.defaults import TEMPLATE
from suffice.policies.micp.policy import STOP_ON
from suffice.policies.micp.stage2 import OBJECTIVES
from suffice.policies.stop_rag.settings import FEATURES, MODES, TARGETS
from suffice.policies.stop_rag.states import REWARDS
from suffice.replay.choose.certified import CORRECTIONS, LOSSES, METRICS
from suffice.replay.choose.families import FAMILIES
from suffice.scoring import F1_KINDS
from suffice.signals.samples import CLUSTERINGS


def add_ab_rag(parser: argparse.ArgumentParser) -> None:
    """Options of ab-rag."""
    group = parser.add_argument_group(
        "ab-rag", "what its confidence is made of, and where it stops"
    )
    group.add_argument(
        "--certainty",
        choices=CERTAINTIES,
        help="S1 (default: token_probability where the trace holds tokens, else self_consistency)",
    )
    group.add_argument(
        "--support",
        choices=SUPPORTS,
        help="S2 of the corrected preset (default: the first of these that the trace gives)",
    )
    group.add_argument(
        "--threshold",
        type=number,
        metavar="TAU",
        help="stop at this confidence (default: published 0.6, corrected chosen on the split)",
    )


def add_micp(parser: argparse.ArgumentParser) -> None:
    """Options of micp."""
    group = parser.add_argument_group(
        "micp",
        "fitted on the splits optimize and calibrate where the traces have both, else, or with another "
        "--split than tune, on a division of that",
    )
    group.add_argument(
        "--alpha",
        type=number,
        metavar="A",
        help="promise: the answer set holds the right answer with probability 1 - A (default: 0.1)",
    )
    group.add_argument(
        "--alpha-retrieval",
        type=number,
        metavar="A",
        help="share of right passages that the passage filter may drop (default: 0.1)",
    )
    group.add_argument(
        "--objective",
        choices=OBJECTIVES,
        help="what the division of the error budget minimises: composite (rounds, and stopping where "
        'questions can be answered), mean rounds, or answer-rate ("Can\'t Answer" least often; default: '
        "composite)",
    )
    group.add_argument(
        "--allocation",
        type=numbers,
        metavar="A1,A2,...",
        help="error levels of rounds 1 to T-1 by hand, instead of a search",
    )
    group.add_argument(
        "--share",
        type=number,
        metavar="S",
        help="of a divided --split, how much divides the budget (default: a third)",
    )
    add_micp_shared(group)


def add_micp_shared(group: Any) -> None:
    """Options of micp that its study takes too; what is not given is ``None``."""
    group.add_argument(
        "--rounds", type=positive, metavar="T", help="the full budget (default: 3, or as recorded)"
    )
    group.add_argument(
        "--weight", type=number, metavar="L", help="lambda of the composite objective (default: 1)"
    )
    group.add_argument(
        "--steps", type=positive, metavar="N", help="parts the budget is divided in (default: 10)"
    )
    group.add_argument(
        "--stop-on",
        choices=STOP_ON,
        help="stop on the samples' normalised entropy, or on the confidence of the largest cluster "
        "(default: entropy)",
    )
    group.add_argument(
        "--penalty",
        type=number,
        metavar="L",
        help="a cluster's confidence is its share minus L times the entropy (default: 0)",
    )
    group.add_argument(
        "--clusters",
        choices=CLUSTERINGS,
        help="samples that normalise alike, or clusters by meaning as suffice signals --cluster-cosine "
        "stored them (default: string)",
    )
    group.add_argument(
        "--match-f1",
        type=number,
        metavar="F",
        help="a sample of at least this F1 is right (default: exact match)",
    )


def add_stop_rag(parser: argparse.ArgumentParser) -> None:
    """Options of stop-rag; what is not given is the preset's."""
    group = parser.add_argument_group(
        "stop-rag",
        "learned on --split from sampled answers; checkpoint and threshold are chosen on the split "
        "validation where the traces have it, else on 20%% of --split",
    )
    group.add_argument(
        "--target",
        choices=TARGETS,
        help="what the value of going on is learned towards: q-lambda, mc and q0 (its lambda of 1 and 0), "
        "or binary, whether stopping is better at all (default: q-lambda)",
    )
    group.add_argument(
        "--features",
        choices=FEATURES,
        help="what the network reads: the text of question and documents, or the signals of each round "
        "alone, the plain baseline (default: text)",
    )
    group.add_argument(
        "--encoder",
        metavar="PATH_OR_NAME",
        help="an encoder that transformers reads, by folder or name on the Hub (default: minilm, the "
        "packaged all-MiniLM-L6-v2)",
    )
    group.add_argument(
        "--inputs",
        type=names,
        metavar="A,B,...",
        help="with --features signals (default: all that vary and cost no further call)",
    )
    group.add_argument(
        "--reward",
        choices=tuple(REWARDS),
        help="how sampled answers are scored (default: f1, plain SQuAD F1)",
    )
    _add_training(group)


def _add_training(group: Any) -> None:
    """How stop-rag's network reads and is trained."""
    group.add_argument(
        "--mode",
        choices=MODES,
        help="separate: each document is read with the question, and all are pooled; joined: question and "
        "documents are one text (default: separate, published joined)",
    )
    group.add_argument(
        "--window",
        type=positive,
        metavar="N",
        help="tokens read at once (default: 256, joined 2048, or the encoder's limit)",
    )
    group.add_argument(
        "--layers",
        type=natural,
        metavar="N",
        help="how many of the encoder's last layers are trained (default: 0, published all)",
    )
    group.add_argument(
        "--epochs", type=number, metavar="E", help="passes over the questions (default: 3)"
    )
    group.add_argument(
        "--min-steps",
        type=positive,
        metavar="N",
        help="optimiser steps at least (default: 3000, published 1, signals 1500)",
    )


def add_gate(parser: argparse.ArgumentParser) -> None:
    """Options of gate; costs are in any one unit."""
    group = parser.add_argument_group(
        "gate",
        "on question traces it stops a loop, on plan traces it guides a planning agent; it acts where its "
        "confidence exceeds 1 - C / L",
    )
    group.add_argument(
        "--retrieval-cost",
        type=number,
        metavar="C",
        help="of looking something up (default: 1; published thresholds where no cost is given)",
    )
    group.add_argument(
        "--failure-loss",
        type=number,
        metavar="L",
        help="of a wrong answer or a failed plan (default: 2, act when more likely right than wrong)",
    )
    group.add_argument(
        "--ask-cost",
        type=number,
        metavar="C",
        help="on plan traces: of asking the user, who is asked where c is below 1 - C / L and no retrieval "
        "is left (default: as a retrieval)",
    )
    group.add_argument(
        "--stop-cost",
        type=number,
        metavar="C",
        help="on plan traces: of ending early (default: never worth it)",
    )
    group.add_argument(
        "--detector",
        metavar="NAME",
        help="on plan traces: who found their contradictions (default: markers, the published words)",
    )


def add_certified(parser: argparse.ArgumentParser) -> None:
    """Options of certified."""
    group = parser.add_argument_group(
        "certified", "half of the split fits, orders and sets thresholds, the other half proves"
    )
    group.add_argument(
        "--family",
        choices=tuple(FAMILIES),
        default="rule",
        help="rule: OR and AND rules over the trace's signals; thresholds: one rule over a grid; fixed: "
        "every number of rounds (default: rule); each includes the full budget",
    )
    group.add_argument(
        "--max-loss",
        type=number,
        default=0.02,
        metavar="E",
        help="greatest expected loss against the full budget, above 0 and below 1 (default: 0.02)",
    )
    group.add_argument(
        "--confidence",
        type=number,
        default=0.95,
        metavar="P",
        help="probability that the promise holds (default: 0.95)",
    )
    group.add_argument(
        "--metric", choices=METRICS, default="f1", help="what must not be lost (default: f1)"
    )
    group.add_argument(
        "--loss",
        choices=LOSSES,
        default="signed",
        help="signed: full budget minus policy; drop: its positive part; wrong-stop: the share of "
        "questions answered wrong although the full budget is right (default: signed)",
    )
    group.add_argument(
        "--correction",
        choices=CORRECTIONS,
        default="fixed-sequence",
        help="for testing many members (default: fixed-sequence, safest first)",
    )
    _add_family(group)
    group.add_argument(
        "--f1", choices=F1_KINDS, default="hotpotqa", help="which F1 (default: hotpotqa)"
    )


def _add_family(group: Any) -> None:
    """What is in a family."""
    group.add_argument(
        "--rule",
        default=TEMPLATE,
        metavar="RULE",
        help=f"with --family thresholds: a rule with one '?' (default: {TEMPLATE})",
    )
    group.add_argument(
        "--grid",
        type=grid,
        metavar="LOW:HIGH:STEP|A,B,...",
        help="with --family thresholds (default: 0:0.95:0.05)",
    )
    group.add_argument(
        "--signals",
        type=names,
        metavar="A,B,...",
        help="with --family rule (default: all that the trace defines without asking a model)",
    )
    group.add_argument(
        "--levels",
        type=positive,
        default=9,
        metavar="N",
        help="with --family rule: thresholds a signal (default: 9)",
    )
    group.add_argument(
        "--max-signals",
        type=positive,
        default=2,
        metavar="N",
        help="with --family rule: signals a rule combines at most (default: 2)",
    )
