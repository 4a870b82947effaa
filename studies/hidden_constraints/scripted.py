"""A planner without a language model, for runs that must cost nothing and always come out the same."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from studies.hidden_constraints.checker import CheckerJudge, names_token, satisfies
from studies.hidden_constraints.corpus.tasks import Benchmark, PlanningTask
from studies.hidden_constraints.judge import SYSTEM as JUDGE_SYSTEM
from suffice.contracts import Completion, Generation, GenerationRequest
from suffice.errors import UsageError
from suffice.loops.planning.parsing import joined_steps
from suffice.signals.samples import agreement

_LETTERS_A_TOKEN = 4
_HEAD = re.compile(r"Goal: (?P<goal>.*)\n(?:Context: (?P<context>.*)\n)?The plan has \d+ steps\.\n")
_NEXT = re.compile(r"Write step (\d+) of \d+")
_LINE = re.compile(r"Step (?P<number>\d+)(?:: (?P<step>.*)| was withdrawn)")
_JUDGED = re.compile(
    r'Hidden constraint: "(.*?)" Final plan: (.*) Question: Does the Plan', re.DOTALL
)
# second candidates where the step depends on what is not known yet; the one least like the first is given
_PAUSES = (
    "Pause here until someone has looked up what else holds",
    "Ask around whether anything more must happen beforehand",
    "Consult documentation, since something could be missing",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """What a prompt shows of a task: the steps taken, and whether its constraint was read."""

    task: PlanningTask
    steps: tuple[str, ...]
    informed: bool
    asked: str


class ScriptedPlanner:
    """A stand-in for a planning model and its judge; a :class:`suffice.contracts.ChatModel`.

    It knows the benchmark's tasks by goal and context; seed and temperature change nothing. It is *informed*
    when the task's token stands in the evidence of the prompt.

    - A step on which the constraint does not bear: all candidates are the outline's step, so SC = 1.
    - A step that depends on it: the outline's step, or, when informed, one that names token and requirement;
      the second candidate has other words, so that SC is at most 0.068 and the published gate fires.
    - The result: the steps as taken, and, when informed, enforcing the constraint.
    - Whether evidence is needed (self-RAG): YES after a dependent step when not informed.
    - A judge's question: as :func:`studies.hidden_constraints.checker.satisfies` says.
    """

    name = "scripted-planner"
    api: Literal["chat"] = "chat"
    endpoint = "scripted"
    concurrency = 1

    def __init__(self, benchmark: Benchmark) -> None:
        self._tasks = {(task.goal, task.context): task for task in benchmark.tasks}
        self._checker = CheckerJudge(task.constraint for task in benchmark.tasks)

    def generate(self, request: GenerationRequest) -> Generation:
        """The replies; a token counts as four letters."""
        if isinstance(request.prompt, str):
            raise UsageError("the scripted planner takes chat prompts, found a text")
        system = request.prompt[0].content
        asked = request.prompt[-1].content
        if system == JUDGE_SYSTEM:
            texts = [self._verdict(asked)] * request.n
        else:
            seen = self._read(asked)
            texts = [_reply(seen, index) for index in range(request.n)]
        return Generation(
            completions=tuple(Completion(text=text, finish_reason="stop") for text in texts),
            model=self.name,
            prompt_tokens=sum(len(message.content) for message in request.prompt)
            // _LETTERS_A_TOKEN,
            cached_tokens=0,
            completion_tokens=sum(len(text) // _LETTERS_A_TOKEN for text in texts),
            latency_s=0.0,
        )

    def _verdict(self, asked: str) -> str:
        judged = _JUDGED.match(asked)
        if judged is None:
            raise UsageError(f"no plan to judge in {asked[:80]!r}")
        verdict = self._checker.judge(judged[1], judged[2])
        ok = "YES" if verdict.ok else "NO"
        return json.dumps({"ok": ok, "reason": verdict.reason[:100], "confidence_pct": 100})

    def _read(self, prompt: str) -> _Seen:
        head = _HEAD.match(prompt)
        task = None if head is None else self._tasks.get((head["goal"], head["context"] or ""))
        if task is None or head is None:
            raise UsageError(
                f"the scripted planner knows {len(self._tasks)} tasks, not the one of {prompt[:80]!r}"
            )
        lived, _, asked = prompt[head.end() :].rpartition("\n\n")
        steps: list[str] = []
        informed = False
        for line in lived.splitlines():
            if line.startswith("Document ["):
                informed = informed or names_token(task.constraint, line)
            elif (line_match := _LINE.match(line)) is None:
                continue
            elif line_match["step"] is None:
                del steps[int(line_match["number"]) - 1]
            else:
                steps.append(line_match["step"])
        return _Seen(task=task, steps=tuple(steps), informed=informed, asked=asked)


def _reply(seen: _Seen, index: int) -> str:
    wanted = _NEXT.match(seen.asked)
    if wanted is not None:
        return _candidate(seen, int(wanted[1]), index)
    if "one JSON object" in seen.asked:
        return _result(seen)
    if "Answer YES or NO" in seen.asked:
        return "NO" if seen.informed or len(seen.steps) not in seen.task.depends else "YES"
    raise UsageError(f"the scripted planner does not know what to say to {seen.asked[:80]!r}")


def _candidate(seen: _Seen, number: int, index: int) -> str:
    task, token = seen.task, seen.task.constraint.token
    step = task.outline[min(number, task.depth) - 1]
    if number not in task.depends:
        return step
    if seen.informed:
        return (
            f"Obey {token}, whatever else happens"
            if index % 2
            else f"Apply {token}: {task.constraint.requirement}"
        )
    return min(_PAUSES, key=lambda pause: agreement([step, pause])) if index % 2 else step


def _result(seen: _Seen) -> str:
    constraint = seen.task.constraint
    steps: Sequence[str] = seen.steps or seen.task.outline
    if seen.informed and not satisfies(constraint, joined_steps(steps)).ok:
        late = {step for step in seen.task.depends if step <= len(steps)} or {len(steps)}
        also = f"and enforce {constraint.token}: {constraint.requirement}"
        steps = [
            f"{step.rstrip('.')} {also}" if number in late else step
            for number, step in enumerate(steps, start=1)
        ]
    reason = "The evidence says that it applies."
    decision = {"constraint": constraint.token, "decision": "WILL_ENFORCE", "reason": reason}
    return json.dumps(
        {
            "constraints": [constraint.token] if seen.informed else [],
            "decisions": [decision] if seen.informed else [],
            "plan": joined_steps(steps),
        }
    )
