"""Several servers of one model behind it: which is asked, and which is put aside while it does not answer."""

from __future__ import annotations

import threading
import time
import warnings
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import datetime

from suffice.concurrency import (
    AdaptiveLimit,
    CallTally,
    Concurrency,
    WorkFor,
    pause,
    room_for_a_thread,
)
from suffice.errors import BackendError, SufficeError, SufficeWarning, UsageError
from suffice.llm.endpoint import Address, OpenAISettings
from suffice.llm.openai_compatible import OpenAICompatibleModel, ServedModel
from suffice.llm.translation import NoReply
from suffice.protocols import Generation, GenerationRequest

_ASIDE_AFTER = 2  # requests in a row without a reply
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 60.0
_BLOCK = 256  # letters of a prompt that a server is remembered by
_BLOCKS_KEPT = 1 << 15
_LISTING_S = 10.0  # for a list of models, which no model has to be run for


# --- which one -------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """A request that goes to a server, by its number.

    ``trial``: the server was put aside, and this tells whether it answers again. ``last``: no other is left.
    """

    number: int
    trial: bool
    last: bool


@dataclass(slots=True, kw_only=True)
class _Server:
    """What is known of a server.

    ``due`` is when it is asked again, ``None`` while it is not aside; before ``rests_until`` it is busy.
    """

    url: str
    under_way: int = 0
    trials: int = 0
    failures: int = 0
    due: float | None = None
    rests_until: float = 0.0
    pause: float
    reason: str = ""
    seen: OrderedDict[int, None] = field(default_factory=OrderedDict)

    def known(self, blocks: Sequence[int]) -> int:
        """How much of a prompt's beginning it has seen, in blocks."""
        for number, block in enumerate(blocks):
            if block not in self.seen:
                return number
        return len(blocks)

    def see(self, blocks: Sequence[int]) -> None:
        for block in blocks:
            self.seen[block] = None
            self.seen.move_to_end(block)
        while len(self.seen) > _BLOCKS_KEPT:
            self.seen.popitem(last=False)


class Roster:
    """Servers, their load and their health. Not for several threads at once.

    Of the servers that answer and have room the one with the fewest requests under way is asked, of equals
    each in turn. One that has seen a longer beginning of the prompt than all others, as has the server that
    answered the same question's round before, is preferred while it has at most two requests more under
    way than the least busy, or at most half more, and that one has something to do: it need not evaluate
    the beginning again.

    Two requests in a row without a reply put a server aside: refused, lost, late, or answered with 5xx. One
    request at a time tries it again, after a second, then after twice as long each time, a minute at most,
    and its reply brings the server back. One that says that it is busy (429) is left alone as long as it
    asks for, a minute at most.
    """

    def __init__(
        self,
        urls: Sequence[str],
        room: Callable[[int], int],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._servers = [_Server(url=url, pause=_FIRST_PAUSE_S) for url in urls]
        self._room = room
        self._clock = clock
        self._turn = 0

    @property
    def up(self) -> list[int]:
        """Those that are not put aside."""
        return [number for number, server in enumerate(self._servers) if server.due is None]

    def candidates(self, tried: Collection[int]) -> list[int]:
        """Those that may be asked now, or once they have room; the aside ones whose pause is over too."""
        now = self._clock()
        return [
            number
            for number, server in enumerate(self._servers)
            if number not in tried
            and server.rests_until <= now
            and (server.due is None or (server.due <= now and not server.trials))
        ]

    def choose(self, blocks: Sequence[int], tried: Collection[int] = ()) -> int | None:
        """Who is asked next; ``None``: nobody has room.

        Where none is left that was not tried and may be asked, the one whose pause ends first.
        """
        candidates = self.candidates(tried)
        if not candidates:
            return min(
                range(len(self._servers)),
                key=lambda number: (
                    self._servers[number].due or self._servers[number].rests_until,
                    self._servers[number].under_way,
                ),
            )
        free = [
            number for number in candidates if self._servers[number].under_way < self._room(number)
        ]
        if not free:
            return None
        fewest = min(self._servers[number].under_way for number in free)
        known = {number: self._servers[number].known(blocks) for number in free}
        most = max(known.values())
        holders = [number for number in free if known[number] == most]
        if len(holders) < len(free):
            bearable = fewest + max(2, fewest // 2) if fewest else 0
            near = [number for number in holders if self._servers[number].under_way <= bearable]
            free = near or free
        return self._in_turn(free)

    def _in_turn(self, numbers: Sequence[int]) -> int:
        fewest = min(self._servers[number].under_way for number in numbers)
        equals = [number for number in numbers if self._servers[number].under_way == fewest]
        return min(equals, key=lambda number: (number - self._turn) % len(self._servers))

    def begin(self, number: int, blocks: Sequence[int], tried: Collection[int] = ()) -> Turn:
        """A request goes to this server."""
        server = self._servers[number]
        trial = server.due is not None
        server.under_way += 1
        server.trials += trial
        server.see(blocks)
        self._turn = (number + 1) % len(self._servers)
        return Turn(number=number, trial=trial, last=not self.candidates({*tried, number}))

    def end(self, turn: Turn) -> None:
        """It came to its end, whatever that was."""
        self._servers[turn.number].under_way -= 1
        self._servers[turn.number].trials -= turn.trial

    def answered(self, turn: Turn) -> str | None:
        """The server replied; what to say where that brings it back.

        A reply to a request that was under way when it was put aside tells nothing of it.
        """
        server = self._servers[turn.number]
        was_aside = server.due is not None
        if was_aside and not turn.trial:
            return None
        server.failures, server.due, server.pause, server.reason = 0, None, _FIRST_PAUSE_S, ""
        return f"{server.url} answers again{self._left()}" if was_aside else None

    def failed(self, turn: Turn, reason: str, *, busy_s: float | None = None) -> str | None:
        """It gave no reply; what to say where it is put aside now.

        One that said that it is busy for so many seconds rests, and is not put aside.
        """
        server = self._servers[turn.number]
        server.reason = reason
        if busy_s is not None:
            server.rests_until = self._clock() + min(busy_s or _FIRST_PAUSE_S, _LONGEST_PAUSE_S)
            return None
        server.failures += 1
        if server.due is None:
            return None if server.failures < _ASIDE_AFTER else self.put_aside(turn.number, reason)
        if turn.trial:
            server.pause = min(2 * server.pause, _LONGEST_PAUSE_S)
            server.due = self._clock() + server.pause
        return None

    def put_aside(self, number: int, reason: str) -> str:
        """It is asked no more for a while; what to say."""
        server = self._servers[number]
        server.reason = reason
        server.due = self._clock() + server.pause
        server.seen.clear()
        return f"a server is put aside and tried again later: {reason}{self._left()}"

    def _left(self) -> str:
        return f" ({len(self.up)} of {len(self._servers)} servers answer)"

    def wait_s(self) -> float | None:
        """Seconds until the next pause ends; ``None``: none lasts."""
        now = self._clock()
        ends = [server.due or server.rests_until for server in self._servers if not server.trials]
        return min((end - now for end in ends if end > now), default=None)

    def reasons(self) -> str:
        """What was wrong with each, last."""
        return "; ".join(server.reason for server in self._servers if server.reason)


def prompt_blocks(request: GenerationRequest) -> list[int]:
    """A number for every beginning of the prompt of so many whole blocks, equal where these are."""
    prompt = request.prompt
    text = (
        prompt
        if isinstance(prompt, str)
        else "".join(f"{message.role}\n{message.content}\n" for message in prompt)
    )
    blocks: list[int] = []
    before = 0
    for start in range(0, len(text) - _BLOCK + 1, _BLOCK):
        before = hash((before, text[start : start + _BLOCK]))
        blocks.append(before)
    return blocks


# --- asking ----------------------------------------------------------------------------------------
def _warn(text: str) -> None:
    warnings.warn(text, SufficeWarning, stacklevel=2)


class ServerPool(ServedModel):
    """One model that several servers serve; a :class:`suffice.protocols.ChatModel`.

    :class:`Roster` says which is asked. A request without a reply is asked of the others, each once; the last
    one left is asked with the retries and pauses of :class:`OpenAISettings`.
    """

    def __init__(
        self,
        urls: Sequence[str],
        model: str | None = None,
        *,
        settings: OpenAISettings | None = None,
        on_change: Callable[[str], None] | None = None,
    ) -> None:
        self._settings = settings or OpenAISettings()
        self._urls = [Address.parse(url).shown for url in urls]
        for url in self._urls:
            if self._urls.count(url) > 1:
                raise UsageError(f"the server {url} is named twice; name each once")
        self._where = ",".join(sorted(self._urls))
        self._on_change = on_change or _warn
        servers = [OpenAICompatibleModel(url, "(any)", settings=self._settings) for url in urls]
        with room_for_a_thread(), ThreadPoolExecutor(min(len(servers), 32)) as threads:
            said = list(threads.map(self._served, servers))
        listed = dict(zip(self._urls, said, strict=True))
        self._name = _same_model(listed, model)
        self._listed = next(names for names in said if not isinstance(names, NoReply))
        most = self._settings.max_retries
        self._patient = [server.but(model=self._name, max_retries=most) for server in servers]
        self._once = [server.but(model=self._name, max_retries=0) for server in servers]
        self._free = threading.Condition()
        self._roster = Roster(self._urls, lambda number: self._patient[number].calls_at_once)
        for number, names in enumerate(said):
            if isinstance(names, NoReply):
                self._note(self._roster.put_aside, number, str(names))

    @property
    def tallies(self) -> tuple[CallTally, ...]:
        """How many calls each server answered and failed."""
        return tuple(tally for server in self._patient for tally in server.tallies)

    @property
    def concurrency(self) -> Concurrency:
        """How many pieces of work at a time suit the servers together."""
        limits = [server.call_limit for server in self._patient]
        adaptive = tuple(limit for limit in limits if isinstance(limit, AdaptiveLimit))
        return (
            WorkFor(adaptive) if adaptive else sum(server.calls_at_once for server in self._patient)
        )

    def generate(self, request: GenerationRequest) -> Generation:
        """Draw the completions."""
        blocks = prompt_blocks(request)
        tried: set[int] = set()
        while True:
            turn = self._begin(blocks, tried)
            server = (self._patient if turn.last else self._once)[turn.number]
            try:
                if turn.trial:
                    self._check_again(turn)
                reply = server.generate(request)
            except NoReply as error:
                tried.add(turn.number)
                request = replace(request, tell=None)  # what was told cannot be taken back
                self._note(
                    self._roster.failed,
                    turn,
                    str(error),
                    busy_s=error.pause_s if error.busy else None,
                )
                if turn.last:
                    raise self._none_answered(error.until) from error
            except SufficeError:
                self._note(self._roster.answered, turn)
                raise
            else:
                self._note(self._roster.answered, turn)
                return reply
            finally:
                self._note(self._roster.end, turn)

    def supports_logprobs(self) -> bool:
        """Whether all servers that answer give log-probabilities."""
        said: list[bool] = []
        for number in self._roster.up:
            try:
                said.append(self._once[number].supports_logprobs())
            except NoReply as error:
                self._note(self._roster.put_aside, number, str(error))
        if not said:
            raise self._none_answered()
        return all(said)

    def close(self) -> None:
        """Close the connections."""
        for server in self._patient:
            server.close()

    def _begin(self, blocks: Sequence[int], tried: Collection[int]) -> Turn:
        """Which server is asked, once it has room."""
        with self._free:
            while (number := self._roster.choose(blocks, tried)) is None:
                with pause(self._wake):
                    self._free.wait(self._roster.wait_s())
            return self._roster.begin(number, blocks, tried)

    def _wake(self) -> None:
        with self._free:
            self._free.notify_all()

    def _note(self, note: Callable[..., str | None], *what: object, **how: object) -> None:
        """Tell the roster, and whoever waits for it; say what there is to say."""
        with self._free:
            said = note(*what, **how)
            self._free.notify_all()
        if said is not None:
            self._on_change(said)

    def _check_again(self, turn: Turn) -> None:
        """Before a server that was aside is asked: it may have been started with another model."""
        names = self._served(self._patient[turn.number])
        if isinstance(names, NoReply):
            if turn.last:  # it is asked with retries and pauses
                return
            raise names
        if names and self._name not in names and names != self._listed:
            url = self._urls[turn.number]
            raise NoReply(f"{url} now serves {', '.join(names)}, not {self._name!r}")

    def _served(self, server: OpenAICompatibleModel) -> tuple[str, ...] | NoReply:
        """The models it lists, or why it does not answer."""
        try:
            return server.served(timeout_s=min(self._settings.timeout_s, _LISTING_S))
        except NoReply as error:
            return error

    def _none_answered(self, until: datetime | None = None) -> NoReply:
        return NoReply(
            f"none of the {len(self._urls)} servers answers: {self._roster.reasons()}", until=until
        )


_Listed = Mapping[str, tuple[str, ...] | NoReply]
"""By URL the names of the models; none where the server does not list them."""


def _same_model(listed: _Listed, model: str | None) -> str:
    """The model that all servers serve, as far as they say."""
    names = {url: said for url, said in listed.items() if not isinstance(said, NoReply)}
    if not names:
        reasons = "; ".join(str(error) for error in listed.values())
        raise BackendError(f"none of the {len(listed)} servers answers: {reasons}")
    there = {url: said for url, said in names.items() if said}
    found = "; ".join(f"{url} has {', '.join(sorted(said))}" for url, said in there.items())
    if model is None:
        if len(there) < len(names) or any(len(said) != 1 for said in there.values()):
            raise UsageError(
                f"which model? Name one that all servers serve; {found or 'none lists any'}"
            )
        if len(set(there.values())) > 1:
            raise UsageError(
                f"the servers serve different models: {found}; name servers of one model"
            )
        return next(iter(there.values()))[0]
    holders = [url for url, said in there.items() if model in said]
    # where nobody lists it, servers of one and the same list may go by any name
    differ = len(holders) < len(there) if holders else len(set(there.values())) > 1
    if differ:
        raise UsageError(
            f"the servers do not all serve {model!r}: {found}; name servers of one model"
        )
    return model
