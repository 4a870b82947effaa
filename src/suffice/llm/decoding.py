"""Prompts and their texts decoded side by side: what texts have in common is evaluated once.

The texts drawn for a prompt are paths of a tree of tokens. A node is evaluated once, whoever passes it, and
keeps its likeliest next tokens; so samples that agree cost as much as one, and samples of a prompt whose
greedy answer was asked for before go along that answer for nothing until they leave it. The nodes at which
texts wait are evaluated in one batch, with those of other prompts under way.
"""

from __future__ import annotations

import codecs
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from suffice.concurrency import may_be_cut, started
from suffice.errors import BackendError
from suffice.llm.drawing import Candidates, Cutoffs, draw, likeliest
from suffice.llm.llama_api import SEQUENCES, Column, Grammar, LlamaContext, LlamaModel

_CLOSED = "the embedded model was closed"
_CHUNK = 256
"""Tokens of one batch: as fast as more of them, and sooner done where an order is cut short."""
_PADDED = 16  # tokens; above, one more or less is no matter
_GOES_ON = 0.75
"""A prompt that shares this much of an earlier one is the same prompt grown, and takes its place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What is asked of one prompt: its tokens, and a text a seed.

    ``stops`` end a text before themselves; ``grammar`` is where each text starts in one. ``soon`` is what
    will be asked of the same prompt next: its texts are begun beside these, and go on when ordered.
    ``tell`` is told of the only text as it grows, by the decoder's thread.
    """

    tokens: tuple[int, ...]
    seeds: tuple[int, ...]
    cutoffs: Cutoffs
    max_tokens: int
    stops: tuple[bytes, ...] = ()
    grammar: Grammar | None = None
    soon: Order | None = None
    tell: Callable[[str], None] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """The texts by seed in order, what of the prompt was evaluated, and how long it took.

    ``seconds`` leave out those for texts of ``soon``, and hold those that were spent ahead for these: the
    time of a batch is divided by its tokens.
    """

    texts: tuple[Text, ...]
    evaluated: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Drawn:
    """A token of a text, its log-probability, at which byte it starts, and what else was likely there."""

    token: int
    logprob: float
    start: int
    likeliest: Candidates


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """One finished text; ``steps`` are all its tokens, those of a stop and the end included."""

    content: str
    size: int
    steps: tuple[Drawn, ...]
    finish: str


@dataclass(slots=True)
class Work:
    """What was done so far: calls of llama.cpp, and tokens evaluated of prompts and of texts."""

    decodes: int = 0
    prompt_tokens: int = 0
    text_tokens: int = 0


class _Node:
    """A token in its place, evaluated once ``candidates`` are known."""

    __slots__ = ("candidates", "children", "continued", "parent", "position", "sequence", "token")

    def __init__(self, token: int, position: int, parent: _Node | None = None) -> None:
        self.token = token
        self.position = position
        self.parent = parent
        self.sequence = -1
        self.candidates: Candidates | None = None
        self.children: dict[int, _Node] = {}
        self.continued = False  # its sequence holds a child of it

    def child(self, token: int, *, unevaluated: bool) -> _Node:
        """The next node at a token."""
        child = self.children.get(token)
        if child is None or (unevaluated and child.candidates is not None):
            child = self.children[token] = _Node(token, self.position + 1, self)
        return child


class _Trunk:
    """A prompt that a context holds, and the tree on its last token, by sequences of its own."""

    def __init__(self, sequence: int) -> None:
        self.sequence = sequence
        self.branches: list[int] = []
        self.tokens: list[int] = []  # evaluated
        self.root: _Node | None = None  # once all are
        self.used = 0
        self.busy = False
        self.ahead = 0.0  # seconds spent on texts of its prompt that nobody ordered yet

    def shared(self, tokens: Sequence[int]) -> tuple[int, int]:
        """How many of these tokens it holds from the first on, texts included, and in which sequence."""
        count, most = 0, min(len(self.tokens), len(tokens))
        while count < most and self.tokens[count] == tokens[count]:
            count += 1
        if count < len(self.tokens):
            return count, self.sequence
        node, sequence = self.root, self.sequence
        while node is not None and count < len(tokens):
            node = node.children.get(tokens[count])
            if node is None or node.candidates is None:
                break
            count, sequence = count + 1, node.sequence
        return count, sequence


class _Strand:
    """A text while it is drawn; it waits at ``node`` until that is evaluated."""

    def __init__(self, order: Order, number: int, node: _Node) -> None:
        self.order = order
        self.number = number
        self.seed = order.seeds[number]
        self.node = node
        self.grammar = None if order.grammar is None else order.grammar.copy()
        self.content = bytearray()
        self.steps: list[Drawn] = []
        self.finish: str | None = None
        self._told = 0  # bytes
        self._letters = _letters()

    def tell(self) -> None:
        """Tell of what no stop can take back any more."""
        if self.order.tell is None:
            return
        held = 0 if self.finish is not None else _stop_begun(self.content, self.order.stops)
        sure = len(self.content) - held
        if sure > self._told:
            piece = self._letters.decode(bytes(self.content[self._told : sure]))
            self._told = sure
            if piece:
                self.order.tell(piece)

    def text(self) -> Text:
        """What it became; an incomplete character at its end is left out."""
        decoder = _letters()
        return Text(
            content=decoder.decode(bytes(self.content)),
            size=len(self.content),
            steps=tuple(self.steps),
            finish=self.finish or "length",
        )


def _letters() -> codecs.IncrementalDecoder:
    return codecs.getincrementaldecoder("utf-8")(errors="replace")


def _stop_begun(content: bytearray, stops: Sequence[bytes]) -> int:
    """How many of the last bytes may be the beginning of a stop."""
    return max(
        (size for stop in stops for size in range(1, len(stop)) if content.endswith(stop[:size])),
        default=0,
    )


@dataclass(slots=True, eq=False)
class _Job:
    """An order under way."""

    order: Order
    width: int  # texts drawn at a time
    done: threading.Event = field(default_factory=threading.Event)
    cancelled: bool = False
    error: BaseException | None = None
    evaluated: int = 0  # tokens of the prompt
    trunk: _Trunk | None = None
    first: NDArray[np.float32] | None = None  # logits after the prompt, where a grammar needs them
    strands: dict[int, _Strand] = field(default_factory=dict)
    ahead: list[_Strand] = field(default_factory=list)  # of what will be asked soon
    soon: Order | None = None
    spared: float = 0.0  # seconds spent on those, less those spent before on its own texts
    held: int = 0  # texts, finished ones too, that the tree holds for it

    def cancel(self) -> None:
        """It is not wanted any more."""
        self.cancelled = True

    texts: dict[int, Text] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Row:
    """A token to evaluate; ``node`` where what follows it is wanted."""

    job: _Job
    trunk: _Trunk
    token: int
    position: int
    sequence: int
    node: _Node | None


class Decoder:
    """Decodes orders in one context by a thread of its own; safe to use from several threads."""

    def __init__(
        self,
        model: LlamaModel,
        context: LlamaContext,
        *,
        prompts: int,
        slots: int,
        candidates: int,
    ) -> None:
        self._model = model
        self._context = context
        self._slots = self._at_once = slots
        self._candidates = candidates or model.size
        self._scratch = SEQUENCES - 1
        self._free = list(range(prompts, self._scratch))
        self._trunks = [_Trunk(sequence) for sequence in range(prompts)]
        self._clock = 0
        self._queue: deque[_Job] = deque()
        self._active: list[_Job] = []
        self._news = threading.Condition()
        self._closed = False
        self.work = Work()
        self._thread = started(self._run, "decoder")

    def decode(self, order: Order) -> Reply:
        """The texts that were ordered."""
        most = self._scratch - len(self._trunks)
        job = _Job(order, width=min(len(order.seeds), most))
        if order.soon is not None and len(order.seeds) + len(order.soon.seeds) <= most:
            job.soon = order.soon
        started = time.perf_counter()
        with self._news:
            if self._closed:
                raise BackendError(_CLOSED)
            self._queue.append(job)
            self._news.notify()
        try:
            with may_be_cut(job.cancel):
                job.done.wait()
        finally:
            job.cancel()  # where the wait was interrupted
        if job.error is not None:
            raise BackendError(str(job.error)) from job.error
        return Reply(
            texts=tuple(job.texts[number] for number in range(len(order.seeds))),
            evaluated=job.evaluated,
            seconds=max(time.perf_counter() - started - job.spared, 0.0),
        )

    def lacks(self, tokens: Sequence[int]) -> int:
        """Tokens to evaluate before this prompt's first: about those of whoever waits, and its own."""
        with self._news:
            waiting = sum(len(job.order.tokens) for job in (*self._active, *self._queue))
            held = max(trunk.shared(tokens)[0] for trunk in self._trunks)
        return waiting + len(tokens) - held

    def close(self) -> None:
        """End what is under way, then free the context; may be called twice."""
        with self._news:
            self._closed = True
            self._news.notify()
        self._thread.join()
        self._context.close()

    def _run(self) -> None:
        while True:
            with self._news:
                while not (self._queue or self._active or self._closed):
                    self._news.wait()
                if self._closed:
                    break
                while self._queue and len(self._active) < self._at_once:
                    self._active.append(self._queue.popleft())
            try:
                self._step()
            except BackendError as error:
                self._fail(self._active, error)
            except BaseException as error:
                self._closed = True
                self._fail([*self._active, *self._queue], error)
                raise
        self._fail([*self._active, *self._queue], BackendError(_CLOSED))

    def _fail(self, jobs: Sequence[_Job], error: BaseException) -> None:
        for job in list(jobs):
            job.error = error
            if job.trunk is not None:  # what it holds is not known
                self._clear(job.trunk)
            self._end(job)

    def _end(self, job: _Job) -> None:
        with self._news:
            if job.trunk is not None:
                job.trunk.busy = False
            if job in self._active:
                self._active.remove(job)
            self._at_once = self._slots
        job.done.set()

    def _step(self) -> None:
        """Evaluate what the orders under way wait for, and let their texts go on."""
        rows: list[_Row] = []
        for job in list(self._active):
            if not job.cancelled and job.trunk is None:
                job.trunk = self._trunk_for(job)
            if job.cancelled or len(job.texts) == len(job.order.seeds):
                self._end(job)
            else:
                rows += self._wanted(job, _CHUNK - len(rows))
        if not rows:
            return
        started = time.perf_counter()
        columns = [(row.token, row.position, row.sequence, row.node is not None) for row in rows]
        columns += self._padding(columns)
        while not self._context.decode(columns):
            if not self._drop_a_prompt():
                self._ask_for_less()
                return
        self.work.decodes += 1
        if len(columns) > len(rows):
            self._context.forget(self._scratch)
        self._divide(rows, time.perf_counter() - started)
        for number, row in enumerate(rows):
            logits = None if row.node is None else self._context.logits(number)
            self._evaluated(row, logits)

    def _padding(self, columns: Sequence[Column]) -> list[Column]:
        """A token to make an odd number of them even, which llama.cpp multiplies faster than one less."""
        odd = 2 < len(columns) < _PADDED and len(columns) % 2 == 1
        return [(0, 0, self._scratch, True)] if odd and all(column[3] for column in columns) else []

    def _divide(self, rows: Sequence[_Row], seconds: float) -> None:
        """Note what was spent on texts that nobody ordered yet."""
        for job in self._active:
            ordered = {strand.node for strand in job.strands.values()}
            for row in rows:
                if row.job is job and job.ahead and row.node not in ordered:
                    job.spared += seconds / len(rows)
                    row.trunk.ahead += seconds / len(rows)

    # --- prompts ---------------------------------------------------------------------------------
    def _trunk_for(self, job: _Job) -> _Trunk:
        """A prompt that holds as much of the job's as any does, its own from now on."""
        tokens = job.order.tokens
        with self._news:
            self._clock += 1
            trunk = self._chosen(tokens)
            trunk.used, trunk.busy = self._clock, True
            job.spared, trunk.ahead = -trunk.ahead, 0.0
            if job.order.grammar is not None and trunk.root is not None:  # its logits are gone
                self._keep(trunk, tokens[:-1], trunk.sequence)
        return trunk

    def _chosen(self, tokens: Sequence[int]) -> _Trunk:
        idle = [trunk for trunk in self._trunks if not trunk.busy]
        best = max(self._trunks, key=lambda trunk: (trunk.shared(tokens)[0], not trunk.busy))
        count, sequence = best.shared(tokens)
        oldest = min(idle, key=lambda trunk: trunk.used)
        if not best.busy and (best is oldest or count >= _GOES_ON * len(best.tokens) > 0):
            if best.root is None or list(tokens) != best.tokens:
                self._keep(best, tokens[: min(count, len(tokens) - 1)], sequence)
            return best
        self._clear(oldest)
        oldest.tokens = list(tokens[: min(count, len(tokens) - 1)])
        if oldest.tokens:
            self._context.share(sequence, oldest.sequence, len(oldest.tokens))
        return oldest

    def _keep(self, trunk: _Trunk, tokens: Sequence[int], sequence: int) -> None:
        """Let a prompt hold these tokens only, which one of its sequences has."""
        if sequence != trunk.sequence:
            trunk.branches.remove(sequence)
            trunk.branches.append(trunk.sequence)
            trunk.sequence = sequence
        self._cut(trunk, len(tokens))
        trunk.tokens, trunk.root, trunk.ahead = list(tokens), None, 0.0

    def _clear(self, trunk: _Trunk) -> None:
        """Let a prompt hold nothing."""
        self._keep(trunk, (), trunk.sequence)

    def _cut(self, trunk: _Trunk, count: int) -> None:
        """Forget a prompt's texts, and its tokens after so many."""
        for sequence in trunk.branches:
            self._context.forget(sequence)
        self._free += trunk.branches
        trunk.branches = []
        self._context.forget(trunk.sequence, count)
        if trunk.root is not None:
            trunk.root.children, trunk.root.continued = {}, False

    def _drop_a_prompt(self) -> bool:
        """Make room by forgetting the prompt that was not used for longest; whether there was one."""
        idle = [trunk for trunk in self._trunks if trunk.tokens and not trunk.busy]
        if idle:
            self._clear(min(idle, key=lambda trunk: trunk.used))
        return bool(idle)

    def _ask_for_less(self) -> None:
        """Where there is no room for what is under way: one order less of several, or fewer texts of one."""
        if len(self._active) == 1:
            self._narrow(self._active[0])
            return
        job = self._active[-1]
        with self._news:
            if job.trunk is not None:
                self._clear(job.trunk)
                job.trunk.busy, job.trunk = False, None
            job.strands, job.held = {}, 0
            self._active.remove(job)
            self._queue.appendleft(job)
            self._at_once = len(self._active)  # until one of them is through

    def _narrow(self, job: _Job) -> None:
        """Fewer of a job's texts at a time, begun again; a single one that does not fit ends."""
        trunk = job.trunk
        if trunk is None or trunk.root is None:
            raise BackendError(f"a prompt of {len(job.order.tokens)} tokens does not fit")
        if job.held == 1 and job.soon is None:
            ((number, strand),) = job.strands.items()
            job.texts[number] = strand.text()
        job.width = max(len(job.strands) // 2, 1)
        job.strands, job.ahead, job.soon, job.held = {}, [], None, 0
        self._cut(trunk, len(trunk.tokens))

    # --- texts -----------------------------------------------------------------------------------
    def _wanted(self, job: _Job, most: int) -> list[_Row]:
        """The next tokens of a job's prompt, or the nodes at which its texts wait."""
        trunk, tokens = job.trunk, job.order.tokens
        if trunk is None or most < 1:
            return []
        if trunk.root is not None:
            return self._branches(job, trunk, trunk.root, most)
        start, last = len(trunk.tokens), len(tokens) - 1
        rows = [
            _Row(job, trunk, tokens[place], place, trunk.sequence, None)
            for place in range(start, min(start + most, last + 1))
        ]
        if start + len(rows) > last:
            root = _Node(tokens[last], last)
            root.sequence = trunk.sequence
            rows[-1] = _Row(job, trunk, tokens[last], last, trunk.sequence, root)
        return rows

    def _branches(self, job: _Job, trunk: _Trunk, root: _Node, most: int) -> list[_Row]:
        for number in range(len(job.order.seeds)):
            if len(job.strands) >= job.width:
                break
            if number not in job.texts and number not in job.strands:
                strand = job.strands[number] = _Strand(job.order, number, root)
                job.held += 1
                self._go_on(job, strand, job.first)
        if job.soon is not None and job.strands and not job.ahead:
            job.ahead = [_Strand(job.soon, number, root) for number in range(len(job.soon.seeds))]
            for strand in job.ahead:
                self._go_on(job, strand, None)
        rows: dict[_Node, _Row] = {}
        for strand in (*job.strands.values(), *job.ahead):
            node = strand.node
            if strand.finish is not None or node in rows or len(rows) == most:
                continue
            parent = node.parent
            if node.sequence < 0 and parent and not self._give_sequence(trunk, parent, node):
                self._narrow(job)
                return []
            rows[node] = _Row(job, trunk, node.token, node.position, node.sequence, node)
        return list(rows.values())

    def _give_sequence(self, trunk: _Trunk, parent: _Node, node: _Node) -> bool:
        """That of the node before it, or a new one that shares what that holds; False: none is left."""
        if not parent.continued:
            parent.continued = True
            node.sequence = parent.sequence
            return True
        if not self._free:
            for other in self._trunks:
                if not other.busy:
                    self._cut(other, len(other.tokens))
        if not self._free:
            return False
        node.sequence = self._free.pop()
        trunk.branches.append(node.sequence)
        self._context.share(parent.sequence, node.sequence, node.position)
        return True

    def _evaluated(self, row: _Row, logits: NDArray[np.float32] | None) -> None:
        """A token was; where its logits were wanted, whoever waited for them goes on."""
        job, node, trunk = row.job, row.node, row.trunk
        if node is not None and logits is not None:
            node.candidates = likeliest(logits, self._candidates)
        if trunk.root is None:
            self.work.prompt_tokens += 1
            job.evaluated += 1
            trunk.tokens.append(row.token)
            trunk.root = node
            if node is not None and logits is not None and job.order.grammar is not None:
                job.first = logits.copy()
            return
        self.work.text_tokens += 1
        for strand in (*job.strands.values(), *job.ahead):
            if strand.node is node:
                self._go_on(job, strand, logits)

    def _go_on(self, job: _Job, strand: _Strand, logits: NDArray[np.float32] | None) -> None:
        """Draw tokens until the text is over or waits for a node; ``logits`` are those of its node."""
        order = strand.order
        while strand.finish is None and (there := strand.node.candidates) is not None:
            allowed = there
            if strand.grammar is not None:
                if logits is None:
                    return
                allowed = likeliest(strand.grammar.allowed(logits), self._candidates)
                if not len(allowed.tokens):
                    strand.finish = "stop"
                    break
            place = draw(allowed, order.cutoffs, seed=strand.seed, place=len(strand.steps))
            token, logprob = int(allowed.tokens[place]), float(allowed.logprobs[place])
            if strand.grammar is not None and logits is not None:
                strand.grammar.accept(token)
                lead = float(logits[token]) - float(logits[there.tokens[0]])
                logprob, logits = float(there.logprobs[0]) + lead, None
            self._take(strand, order, Drawn(token, logprob, len(strand.content), there))
            strand.node = strand.node.child(token, unevaluated=strand.grammar is not None)
        strand.tell()
        if strand.finish is not None and order is job.order:
            job.texts[strand.number] = strand.text()
            job.strands.pop(strand.number, None)

    def _take(self, strand: _Strand, order: Order, step: Drawn) -> None:
        """Go on with a token, and end where it says so."""
        strand.steps.append(step)
        if self._model.ends(step.token):
            strand.finish = "stop"
            return
        strand.content += self._model.piece(step.token)
        cuts = [
            cut
            for stop in order.stops
            if (cut := strand.content.find(stop, max(step.start - len(stop) + 1, 0))) >= 0
        ]
        if cuts:
            del strand.content[min(cuts) :]
            strand.finish = "stop"
        elif len(strand.steps) >= order.max_tokens:
            strand.finish = "length"
