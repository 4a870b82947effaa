"""Let a gate decide what a planning agent does next: act, look something up, think again, ask or stop.

The retriever is a real one; the model and the user stand in for yours. The plan trace it leaves can be
read back, and a gate can be fitted on such traces once somebody has judged the plans.
"""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory

import suffice
from suffice.contracts import GenerationRequest
from suffice.loops.planning.agent import AgentControl, PlanJob, PlanRecorderSettings, record_plans
from suffice.policies.gate.gate_settings import RiskModel
from suffice.retrieval.bm25 import BM25Index
from suffice.testing.models import ScriptedModel

HANDBOOK = {
    "Buckets": "Buckets that hold invoices must be locked for ten years: retain_invoices_017.",
    "Queues": "A queue keeps messages for four days unless told otherwise.",
    "Networks": "Subnets are made in every zone of a region.",
}
TASK = suffice.planning.PlanTask(
    id="invoices", goal="Create a bucket for invoices.", context="Region north.", total_steps=3
)
STEPS = {
    1: ("Create the bucket in region north", "Make a bucket called invoices"),
    2: ("Lock it as retain_invoices_017 says", "Lock it as retain_invoices_017 says"),
    3: ("Announce the bucket", "Announce the bucket"),
}
RESULT = {
    "constraints": ["retain_invoices_017"],
    "decisions": [
        {"constraint": "retain_invoices_017", "decision": "WILL_ENFORCE", "reason": "It applies."}
    ],
    "plan": "1) Create the bucket 2) Lock it as retain_invoices_017 says 3) Announce the bucket",
}


def reply(request: GenerationRequest, index: int) -> str:
    asked = str(request.prompt)
    if "one JSON object" in asked:
        return json.dumps(RESULT)
    number = next(number for number in STEPS if f"Write step {number} of" in asked)
    return STEPS[number][index]


def user(_: suffice.planning.PlanTask, question: str) -> str | None:
    print(f"  asked: {question}")
    return "Yes, go on."


def main() -> suffice.planning.Gate:
    index = BM25Index.build(
        suffice.Passage(id=title, title=title, text=text) for title, text in HANDBOOK.items()
    )
    # numbers as `suffice fit gate` finds them, and costs: a failed plan is as bad as ten retrievals
    settings = suffice.planning.GateSettings.corrected(
        RiskModel(disagreement=2.0, contradiction=2.0, remaining=0.5, intercept=3.0),
        suffice.planning.GateCosts(retrieval=1.0, failure=10.0, ask=1.5),
    )
    agent = suffice.planning.PlanningAgent(
        ScriptedModel(reply, api="chat"),
        AgentControl(name="careful", gate=settings),
        index,
        ask=user,
    )
    with TemporaryDirectory() as folder:
        out = Path(folder) / "plans"
        job = PlanJob(task=TASK, agent=agent, retriever="bm25", seed=42)
        record_plans([job], out, PlanRecorderSettings(run={"made": "by an example"}))
        run = suffice.planning.read_plans(out).records[0]
    for step in run.steps:
        print(f"step {step.number}: {step.action}, {step.reason}; {len(step.passages)} documents")
    print(f"{run.outcome.ended}: {run.outcome.plan}")
    return suffice.planning.Gate(settings)


if __name__ == "__main__":
    main()
