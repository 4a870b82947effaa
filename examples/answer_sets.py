"""Give a set of answers with a promise: fit MiCP, run it in a loop of your own, watch whether it holds.

The sampled answers stand in for your model's; replace `sampled_records` by your recorded traces.
"""

from __future__ import annotations

import suffice
from suffice.policies.micp.policy import MiCPPolicy
from suffice.testing.traces import sampled_records, to_trace_set


def main() -> tuple[MiCPPolicy, float]:
    recorded = sampled_records(900)  # a third each in splits optimize, calibrate and eval
    traces = to_trace_set(recorded)
    policy = suffice.fit("micp", traces, alpha=0.1)
    assert isinstance(policy, MiCPPolicy)
    print(policy.facts.summary)

    controller = suffice.Controller(policy, max_rounds=policy.rounds)
    monitor = suffice.monitor.CoverageMonitor(0.1, n_calibration=300)
    covered = []
    for record in recorded:
        if record.question.split != "eval":
            continue
        controller.start(question_id=record.question.id)
        for finished in record.rounds:  # here your loop retrieves and samples answers
            decision = controller.observe(finished)
            if decision.stop:
                break
        found = policy.answer_set(controller.rounds, stopped=decision.stopped_by == "policy")
        # later somebody tells what was right: watch a sample of those answers
        right = any(each.answer in record.gold.answers for each in found.answers)
        drawn = {answer for each in record.rounds for answer in each.samples or ()}
        never = not drawn & set(record.gold.answers)
        covered.append(right or (found.cannot_answer and never))
        if monitor.update(covered[-1]):
            print(f"the promise no longer holds, noticed at answer {monitor.alarmed_at}")
            break
    share = sum(covered) / len(covered)
    print(f"{len(covered)} answer sets, {share:.3f} of them hold the right answer as promised")
    return policy, share


if __name__ == "__main__":
    main()
