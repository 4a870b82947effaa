"""``suffice fit``: calibrate or train a policy."""

from __future__ import annotations

import argparse
from typing import Any

from suffice.cli.options import add_json, add_traces, open_traces
from suffice.cli.output import print_json, say
from suffice.policies.file import policy_document, policy_hash, save_policy
from suffice.policies.fitting import FIT_SPLIT
from suffice.policies.methods import METHODS, fit_method

__all__ = ["add_command"]


def add_command(commands: Any) -> None:
    """Declare the command."""
    listed = "; ".join(f"{name}: {method.summary}" for name, method in METHODS.items())
    parser = commands.add_parser(
        "fit",
        help="calibrate or train a policy on the tune split",
        description=f"Calibrates or trains a policy on recorded rounds. Methods: {listed}.",
    )
    parser.add_argument("method", metavar="POLICY", choices=sorted(METHODS), help="which method")
    add_traces(parser)
    parser.add_argument(
        "--out",
        required=True,
        metavar="PATH",
        help="a .json file, or a directory that gets policy.json",
    )
    parser.add_argument(
        "--preset",
        choices=("corrected", "published"),
        default="corrected",
        help="as the paper's code ran it, or with its defects mended (default: corrected)",
    )
    parser.add_argument(
        "--split", default=FIT_SPLIT, help=f"which questions (default: {FIT_SPLIT})"
    )
    add_json(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Fit and write the policy file."""
    traces = open_traces(arguments, say)
    policy = fit_method(arguments.method, traces, arguments.preset, arguments.split)
    written = save_policy(policy, arguments.out, max_rounds=traces.n_rounds)
    document = policy_document(policy)
    if arguments.json:
        print_json({"out": str(written), "hash": policy_hash(policy), "policy": document})
    else:
        print(f"wrote {written}")
        print(f"  rule   {document['rule']}")
        fitted = document["fitted_on"]
        print(f"  fitted on {fitted['labelled']} labelled questions of split {fitted['split']}")
        print(f"  use    suffice replay {arguments.traces} --policy {written}")
    return 0
