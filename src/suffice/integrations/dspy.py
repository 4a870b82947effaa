"""DSPy's ReAct, watched: its own extraction is the answer of every round. Needs ``dspy``."""

from __future__ import annotations

import copy
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from contextvars import ContextVar
from contextvars import Token as Reset
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import accumulate
from typing import Any

from suffice.errors import DataError, UsageError
from suffice.integrations.agents import Framework, ToolResult, outcome, query_of, round_of_tools
from suffice.live.loop import Loop, Probe
from suffice.live.reported import reported_tokens, reported_usage
from suffice.live.watch import Watch
from suffice.trace.rounds.records import Draft, LoopView, Token, Usage

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
    """A ``dspy.ReAct`` that ``watch`` sees: the module itself, sharing its predictors, to be called as it is.

    A round is a step that called a tool other than ``finish``. After the watch says stop no further step is
    taken; the prediction is the extraction of the round whose answer the watch returns. The prediction says
    why under ``suffice``. Drafts are not streamed, the last extraction is.
    """
    base = _DSPY.point("dspy", "ReAct")
    for name in (_STEP, _ASTEP):
        _DSPY.point("dspy", f"ReAct.{name}")
    if not isinstance(react, base):
        raise UsageError(f"wanted a dspy.ReAct, found {type(react).__name__}")
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
    """How a module is watched."""

    watch: Watch
    tools: Collection[str] | None
    probe: bool | Probe
    answer: str

    def asked(self, extract: Probe) -> Probe | None:
        """The probe of a round."""
        return (extract if self.probe else None) if isinstance(self.probe, bool) else self.probe

    def __deepcopy__(self, memo: dict[int, Any]) -> _Watching:
        del memo
        return self


@dataclass(slots=True, eq=False, kw_only=True)
class _Run:
    """A call under way: what its steps cost since the last round, and extractions by round."""

    module: Any
    loop: Loop
    steps: int = 0
    trajectory: dict[str, Any] = field(default_factory=dict)
    usages: list[Usage] = field(default_factory=list)
    drafts: dict[int, Any] = field(default_factory=dict)

    def round(self, trajectory: dict[str, Any]) -> dict[str, Any] | None:
        """What ``observe`` takes of a step not yet seen; ``None``: there is none, or no round."""
        self.trajectory = trajectory
        done, tool = self.steps, trajectory.get(f"tool_name_{self.steps}")
        if self.loop.done or tool is None:
            return None
        self.steps += 1
        output = trajectory.get(f"observation_{done}")
        failed = isinstance(output, str) and output.startswith(f"Execution error in {tool}:")
        result = ToolResult(
            tool=tool,
            output=None if failed else output,
            arguments=trajectory.get(f"tool_args_{done}") or {},
        )
        held = None if tool == "finish" else round_of_tools([result], self.module.watching.tools)
        if held is None:
            return None
        usages, self.usages = self.usages, []
        return {**held, "usage": usages}

    def known(self, predictor: Any) -> Any:
        """After the end, instead of a call: a last step without one, or the answer already drafted."""
        if not self.loop.done:
            return None
        import dspy

        if predictor is not self.module.extract:
            return dspy.Prediction(next_thought="", next_tool_name="finish", next_tool_args={})
        for name in ("thought", "tool_name", "tool_args", "observation"):
            self.trajectory.pop(f"{name}_{self.steps}", None)
        return self.best

    def made(self, predictor: Any, prediction: Any, spent: _Spent) -> Any:
        """What a call of the module's own gave; of its extraction what the watch returns."""
        if predictor is not self.module.extract:
            self.usages.append(replace(spent.usage, latency_s=None))
            return prediction
        if not self.loop.rounds:
            return prediction
        draft = self.drafted(len(self.loop.rounds), prediction, spent)
        self.loop.answered(
            draft.answer,
            tokens=draft.tokens,
            answer_starts=draft.answer_starts,
            usage=draft.usage,
        )
        return self.best

    def drafted(self, number: int, prediction: Any, spent: _Spent) -> Draft:
        """An extraction as a round's answer."""
        name = self.module.watching.answer
        answer, tokens = prediction[name], reported_tokens(prediction.get("logprobs"))
        self.drafts[number] = prediction
        return Draft(
            "" if answer is None else str(answer),
            tokens=tokens,
            answer_starts=_starts(tokens or (), f"[[ ## {name} ## ]]"),
            usage=spent.usage,
        )

    @contextmanager
    def quietly(self) -> Iterator[_Spent]:
        """What a draft costs; before the end, nothing of it is streamed."""
        import dspy

        with nullcontext() if self.loop.done else dspy.context(send_stream=None), _spent() as spent:
            yield spent

    def over(self, prediction: Any) -> Any:
        """The prediction of a call that ended, with why."""
        import dspy

        return dspy.Prediction(
            **{"trajectory": self.trajectory, **prediction, "suffice": outcome(self.loop)}
        )

    @property
    def best(self) -> Any:
        """The prediction whose answer the watch returns; ``None``: it was not extracted."""
        return self.drafts.get(self.loop.answer_round or 0)


_RUN: ContextVar[_Run | None] = ContextVar("suffice_dspy_run", default=None)


@dataclass(slots=True, kw_only=True)
class _Spent:
    usage: Usage = field(default_factory=Usage)


@contextmanager
def _spent() -> Iterator[_Spent]:
    """Calls, tokens and seconds of the model calls within; those from DSPy's cache have no tokens."""
    import dspy

    spent, began = _Spent(), time.perf_counter()
    with dspy.track_usage() as tracker:
        yield spent
    with suppress(DataError):
        spent.usage = reported_usage(
            [entry for entries in tracker.usage_data.values() for entry in entries]
        )
    spent.usage = replace(spent.usage, latency_s=time.perf_counter() - began)


def _starts(tokens: Sequence[Token], marker: str) -> int | None:
    """The token after the one that ends the marker's last occurrence; ``None``: there is none."""
    text = "".join(token.token for token in tokens)
    end = text.rfind(marker) + len(marker)
    for number, reached in enumerate(accumulate(len(token.token) for token in tokens), start=1):
        if reached >= end >= len(marker):
            return None if text[end:reached].strip() else number
    return None


@cache
def _watched(base: Any) -> type[Any]:
    class WatchedReAct(base):  # type: ignore[misc]
        """A ReAct whose steps and extraction pass by its watch."""

        watching: _Watching

        def forward(self, **inputs: Any) -> Any:
            run, token = _begun(self, inputs)
            try:
                prediction = super().forward(**inputs)
            except BaseException as error:
                if run.loop.end(error) and run.best is not None:
                    return run.over(run.best)
                raise
            finally:
                _RUN.reset(token)
            run.loop.end()
            return run.over(prediction)

        async def aforward(self, **inputs: Any) -> Any:
            run, token = _begun(self, inputs)
            try:
                prediction = await super().aforward(**inputs)
            except BaseException as error:
                if await run.loop.aend(error) and run.best is not None:
                    return run.over(run.best)
                raise
            finally:
                _RUN.reset(token)
            await run.loop.aend()
            return run.over(prediction)

        def _call_with_potential_trajectory_truncation(
            self, module: Any, trajectory: dict[str, Any], **inputs: Any
        ) -> Any:
            run, call = _RUN.get(), super()._call_with_potential_trajectory_truncation
            if run is None:
                return call(module, trajectory, **inputs)
            if (held := run.round(trajectory)) is not None:

                def ask(view: LoopView) -> Draft:
                    with run.quietly() as spent:
                        made = call(self.extract, dict(trajectory), **inputs)
                    return run.drafted(len(view.rounds), made, spent)

                run.loop.observe(**held, probe=self.watching.asked(ask))
            if (known := run.known(module)) is not None:
                return known
            with _spent() as spent:
                made = call(module, trajectory, **inputs)
            return run.made(module, made, spent)

        async def _async_call_with_potential_trajectory_truncation(
            self, module: Any, trajectory: dict[str, Any], **inputs: Any
        ) -> Any:
            run, call = _RUN.get(), super()._async_call_with_potential_trajectory_truncation
            if run is None:
                return await call(module, trajectory, **inputs)
            if (held := run.round(trajectory)) is not None:

                async def ask(view: LoopView) -> Draft:
                    with run.quietly() as spent:
                        made = await call(self.extract, dict(trajectory), **inputs)
                    return run.drafted(len(view.rounds), made, spent)

                await run.loop.aobserve(**held, probe=self.watching.asked(ask))
            if (known := run.known(module)) is not None:
                return known
            with _spent() as spent:
                made = await call(module, trajectory, **inputs)
            return run.made(module, made, spent)

    return WatchedReAct


def _begun(module: Any, inputs: dict[str, Any]) -> tuple[_Run, Reset[_Run | None]]:
    run = _Run(module=module, loop=module.watching.watch.question(query_of(inputs)).begin())
    return run, _RUN.set(run)
