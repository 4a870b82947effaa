"""Planning agents: the gate that says act, look up, think again, ask or stop, and the agent around it."""

from suffice.loops.planning.agent import PlanningAgent
from suffice.policies.gate.gate import Gate
from suffice.policies.gate.gate_settings import GateCosts, GateSettings, PlanAction
from suffice.policies.gate.policy import GatePolicy
from suffice.trace.plan_traces import PlanTask, read_plans

__all__ = [
    "Gate",
    "GateCosts",
    "GatePolicy",
    "GateSettings",
    "PlanAction",
    "PlanTask",
    "PlanningAgent",
    "read_plans",
]
