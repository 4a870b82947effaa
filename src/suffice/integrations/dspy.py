"""DSPy's ReAct, watched: its own extraction is the answer of every round. Needs ``dspy``."""

from __future__ import annotations

import copy
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from typing import Any

from suffice.concurrency import at_once, settled
from suffice.errors import UsageError
from suffice.integrations.agents import AgentRun, Framework, Reply, ToolResult, outcome, query_of
from suffice.live.loop import Probe
from suffice.live.reported import reported_tokens, reported_usage
from suffice.live.watch import Watch
from suffice.trace.rounds.records import Token, Usage

_DSPY = Framework(name="DSPy", package="dspy", tested="3.4.1")
_STEP = "_call_with_potential_trajectory_truncation"
_ASTEP = "_async_call_with_potential_trajectory_truncation"


def watched(
    react: Any,
    watch: Watch,
    *,
    tools: Collection[str] | None = None,
    probe: bool | Probe = True,
    answer: str | None = None,
) -> Any:
    """Let ``watch`` see a ``dspy.ReAct``; return a module that shares its predictors and is called like it.

    A round is a step that called a tool other than ``finish``. After a stop no further step is taken. The
    prediction is the extraction of the round whose answer the watch returns; ``suffice`` in it says why.
    Drafts are not streamed, the last extraction is.
    """
    base = _DSPY.point("dspy", "ReAct")
    for name in (_STEP, _ASTEP):
        _DSPY.point("dspy", f"ReAct.{name}")
    if not isinstance(react, base):
        raise UsageError(f"give a dspy.ReAct, found {type(react).__name__}")
    outputs = list(react.signature.output_fields)
    if answer is not None and answer not in outputs:
        raise UsageError(f"no output field {answer!r}; allowed: {', '.join(outputs)}")
    kind: Any = type(react)
    module = copy.copy(react)
    module.__class__ = _watched(kind)
    module.watching = _Watching(
        watch=watch, tools=tools, probe=probe, answer=outputs[-1] if answer is None else answer
    )
    return module


@dataclass(frozen=True, slots=True, kw_only=True)
class _Watching:
    watch: Watch
    tools: Collection[str] | None
    probe: bool | Probe
    answer: str

    def __deepcopy__(self, memo: dict[int, Any]) -> _Watching:
        del memo
        return self


class _Run(AgentRun):
    def __init__(self, module: Any, inputs: dict[str, Any]) -> None:
        import dspy

        held = module.watching
        loop = held.watch.question(query_of(inputs)).begin()
        super().__init__(loop, tools=held.tools, probe=held.probe, write=self.without_fields)
        loop.describe(module.react.lm or dspy.settings.lm, module.react.signature.instructions)
        self.module, self.answer, self.steps = module, held.answer, 0
        self.trajectory: dict[str, Any] = {}

    def results(self, trajectory: dict[str, Any]) -> list[ToolResult]:
        """Return the call of a step that is new."""
        self.trajectory = trajectory
        number = self.steps
        tool = trajectory.get(f"tool_name_{number}")
        if self.loop.done or tool is None:
            return []
        self.steps += 1
        output = trajectory.get(f"observation_{number}")
        failed = isinstance(output, str) and output.startswith(f"Execution error in {tool}:")
        arguments = trajectory.get(f"tool_args_{number}") or {}
        result = ToolResult(tool=tool, output=None if failed else output, arguments=arguments)
        return [] if tool == "finish" else [result]

    def known(self, predictor: Any) -> Any:
        """Return what replaces a call after the end: a last step without one, or the drafted answer."""
        if not self.loop.done:
            return None
        import dspy

        if predictor is not self.module.extract:
            return dspy.Prediction(next_thought="", next_tool_name="finish", next_tool_args={})
        for name in ("thought", "tool_name", "tool_args", "observation"):
            self.trajectory.pop(f"{name}_{self.steps}", None)
        return self.best

    def made(self, predictor: Any, prediction: Any, spent: _Spent) -> Any:
        """Return the result of the module's own call; for an extraction, the watch's answer."""
        if predictor is not self.module.extract:
            self.replied(Reply(raw=prediction, text="", usage=spent.usage))
            return prediction
        self.replied(self.extracted(prediction, spent), spent.seconds)
        self.answered()
        return self.best or prediction

    def without_fields(self, _: Any, text: str) -> Any:
        """Return an extraction where the model wrote none of its fields."""
        fields = dict.fromkeys(self.module.signature.output_fields)
        return _DSPY.point("dspy", "Prediction")(**{**fields, self.answer: text})

    def extracted(self, prediction: Any, spent: _Spent) -> Reply:
        """Return an extraction as a reply; ``None``: one that could not be read."""
        if prediction is None:
            return Reply(raw=None, text="", usage=spent.usage)
        answer, tokens = prediction[self.answer], reported_tokens(prediction.get("logprobs"))
        return Reply(
            raw=prediction,
            text="" if answer is None else str(answer),
            usage=spent.usage,
            logprobs=tokens,
            answer_starts=_starts(tokens or (), f"[[ ## {self.answer} ## ]]"),
        )

    @contextmanager
    def quietly(self) -> Iterator[_Spent]:
        """Run a draft, count its cost, and stream nothing of it before the end."""
        import dspy

        with nullcontext() if self.loop.done else dspy.context(send_stream=None), _Spent() as spent:
            yield spent

    def over(self, prediction: Any) -> Any:
        """Return the prediction of a call that ended, with the reason."""
        import dspy

        return dspy.Prediction(
            **{"trajectory": self.trajectory, **prediction, "suffice": outcome(self.loop)}
        )


_RUN: ContextVar[_Run | None] = ContextVar("suffice_dspy_run", default=None)


class _Spent:
    """Count calls, tokens and seconds of the model calls inside; calls from DSPy's cache have no tokens."""

    def __enter__(self) -> _Spent:
        import dspy

        self.usage, self._began = Usage(), time.perf_counter()
        self._tracking = dspy.track_usage()
        self._tracker = self._tracking.__enter__()
        return self

    def __exit__(self, *raised: object) -> None:
        self._tracking.__exit__(*raised)
        self.seconds = time.perf_counter() - self._began
        entries = [entry for held in self._tracker.usage_data.values() for entry in held]
        self.usage = reported_usage(entries)


def _starts(tokens: Sequence[Token], marker: str) -> int | None:
    text = "".join(token.token for token in tokens)
    end = text.rfind(marker) + len(marker)
    for number, reached in enumerate(accumulate(len(token.token) for token in tokens), start=1):
        if reached >= end >= len(marker):
            return None if text[end:reached].strip() else number
    return None


@cache
def _watched(base: Any) -> type[Any]:
    class WatchedReAct(base):  # type: ignore[misc]
        """Run a ReAct whose steps and extraction pass through its watch."""

        watching: _Watching

        def forward(self, **inputs: Any) -> Any:
            return at_once(self._watched_run(super().forward, inputs))

        async def aforward(self, **inputs: Any) -> Any:
            return await self._watched_run(super().aforward, inputs)

        async def _watched_run(self, call: Any, inputs: dict[str, Any]) -> Any:
            run = _Run(self, inputs)
            token = _RUN.set(run)
            try:
                prediction = await settled(call(**inputs))
            except BaseException as error:
                if run.loop.end(error) and run.best is not None:
                    return run.over(run.best)
                raise
            finally:
                _RUN.reset(token)
            run.loop.end()
            return run.over(prediction)

        def _call_with_potential_trajectory_truncation(
            self, module: Any, trajectory: dict[str, Any], **inputs: Any
        ) -> Any:
            call = super()._call_with_potential_trajectory_truncation
            return at_once(self._watched_call(call, module, trajectory, inputs))

        async def _async_call_with_potential_trajectory_truncation(
            self, module: Any, trajectory: dict[str, Any], **inputs: Any
        ) -> Any:
            call = super()._async_call_with_potential_trajectory_truncation
            return await self._watched_call(call, module, trajectory, inputs)

        async def _watched_call(
            self, call: Any, module: Any, trajectory: dict[str, Any], inputs: dict[str, Any]
        ) -> Any:
            run = _RUN.get()
            if run is None:
                return await settled(call(module, trajectory, **inputs))

            async def ask() -> Reply:
                made, unread = None, [_DSPY.point("dspy.utils.exceptions", "AdapterParseError")]
                with run.quietly() as spent, suppress(*unread * run.loop.done):
                    made = await settled(call(self.extract, dict(trajectory), **inputs))
                return run.extracted(made, spent)

            await run.astep(run.results(trajectory), ask)
            if (known := run.known(module)) is not None:
                return known
            if run.loop.done:
                made = await run.finish(ask)
                return run.best or made
            with _Spent() as spent:
                made = await settled(call(module, trajectory, **inputs))
            return run.made(module, made, spent)

    return WatchedReAct
