"""The hidden-constraint benchmark from a seed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from studies.hidden_constraints.corpus.prose import (
    DRAWS,
    Entry,
    draw,
    fill,
    material,
    months,
    one_of,
    paragraph,
    service_documents,
    unseen,
)
from studies.hidden_constraints.corpus.tasks import (
    Benchmark,
    BenchmarkSettings,
    Constraint,
    PlanningTask,
)
from suffice.trace.rounds.records import Passage

_SMALL_DEPTHS = {2: 1, 3: 7, 4: 9, 5: 3}  # of 20: mean 3.70
_OTHER_DEPTHS = {4: 8, 5: 12, 6: 10}  # of 30: mean 5.07, so that 50 have 4.52
_CARRIERS = (0.4, 0.35, 0.25)  # how often 1, 2 and 3 documents carry a constraint
_NEAR_SHARES = (0.5, 0.5)  # how often 1 and 2 documents resemble them
_MATERIAL, _TASKS, _DOCUMENTS, _SERVICES, _ORDER = range(5)
ROLES = ("create", "network", "access", "data", "capacity", "release")
"""What the six steps of a service do, in order."""
DIMENSIONS = ("data", "people", "site")
"""The facts that tie a task to its documents."""
_ORDERS = (
    ("rule", "scope", "why", "identifier", "check"),
    ("scope", "rule", "identifier", "why"),
    ("why", "rule", "scope", "identifier"),
    ("rule", "why", "check", "scope", "identifier"),
    ("check", "rule", "identifier", "scope"),
    ("rule", "identifier", "scope", "check"),
    ("scope", "why", "rule", "check", "identifier"),
)
_NEAR = {
    "elsewhere": (("rule", "scope", "why", "status"), ("scope", "rule", "status", "check")),
    "superseded": (("status", "rule", "scope", "why"), ("scope", "rule", "check", "status")),
    "advice": (("why", "rule", "scope", "status"), ("rule", "status", "scope", "why")),
}
_REASONS = ("elsewhere", "elsewhere", "superseded", "advice")


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """A task's facts by dimension, and which of them its documents say in the context's words."""

    facts: Mapping[str, Entry]
    alike: Mapping[str, bool]

    def wording(self, rng: np.random.Generator) -> dict[str, str]:
        """A wording of each fact; the draws do not depend on ``alike``."""
        formal = {name: one_of(self.facts[name]["formal"], rng) for name in DIMENSIONS}
        return {
            name: self.facts[name]["plain"] if self.alike[name] else formal[name]
            for name in DIMENSIONS
        }

    def moved(self, facts: Entry, rng: np.random.Generator) -> Surroundings:
        """The same with one fact replaced by another of its dimension."""
        name = DIMENSIONS[int(rng.integers(len(DIMENSIONS)))]
        others = [fact for fact in facts[name] if fact is not self.facts[name]]
        other = others[int(rng.integers(len(others)))]
        return Surroundings(facts={**self.facts, name: other}, alike=self.alike)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """A task before its documents have ids."""

    number: int
    digits: str
    small: bool
    depth: int
    service: Entry
    kind: Entry
    where: Surroundings

    @property
    def token(self) -> str:
        return f"{self.kind['words']}_{self.digits}"


def generate(settings: BenchmarkSettings | None = None) -> Benchmark:
    """Draw the tasks and their corpus.

    Goal, surroundings (what is kept, for whom, where) and constraint of a task are drawn independently. So
    goal and context tell nothing of the constraint. The surroundings tie a task to its 1 to 3 documents,
    which carry the token; 1 or 2 resemble them and ask nothing; the rest describes the services.

    ``gap`` only changes how documents say a task's three facts, by one uniform draw each: in the words of the
    context when the draw is at least the square root of ``gap``, else in words that share none with them.
    """
    chosen = BenchmarkSettings() if settings is None else settings
    written = material(_rng(chosen, _MATERIAL))
    plans = _plans(chosen, written)
    texts, carriers = _texts(chosen, written, plans)
    width = max(3, len(str(len(texts) - 1)))
    ids = [f"doc_{place:0{width}d}" for place in _rng(chosen, _ORDER).permutation(len(texts))]
    documents = [
        Passage(id=name, title=title, text=text)
        for name, (title, text) in sorted(zip(ids, texts, strict=True))
    ]
    tasks = [
        _task(chosen, plan, written["frames"], [ids[row] for row in rows])
        for plan, rows in zip(plans, carriers, strict=True)
    ]
    return Benchmark(settings=chosen, tasks=tuple(tasks), documents=tuple(documents))


def _rng(settings: BenchmarkSettings, *stream: int) -> np.random.Generator:
    return np.random.default_rng([settings.seed, *stream])


def _plans(settings: BenchmarkSettings, written: Entry) -> list[_Plan]:
    rng = _rng(settings, _TASKS)
    count = settings.tasks
    width = max(3, len(str(count - 1)))  # of one length: no token begins another
    small = np.zeros(count, bool)
    small[rng.permutation(count)[: settings.hard_small]] = True
    depths = np.empty(count, np.int64)
    depths[small] = rng.permutation(_depths(_SMALL_DEPTHS, settings.hard_small))
    depths[~small] = rng.permutation(_depths(_OTHER_DEPTHS, count - settings.hard_small))
    every_service, every_kind = written["services"]["service"], written["kinds"]["kind"]
    services = _dealt(len(every_service), count, rng)
    kinds = _dealt(len(every_kind), count, rng)
    facts = written["facts"]
    sizes = tuple(len(facts[name]) for name in DIMENSIONS)
    places = np.unravel_index(_dealt(int(np.prod(sizes)), count, rng), sizes)
    alike = rng.random((count, len(DIMENSIONS))) >= np.sqrt(settings.gap)
    return [
        _Plan(
            number=number,
            digits=f"{number:0{width}d}",
            small=bool(small[number]),
            depth=int(depths[number]),
            service=every_service[services[number]],
            kind=every_kind[kinds[number]],
            where=Surroundings(
                facts={
                    name: facts[name][place[number]]
                    for name, place in zip(DIMENSIONS, places, strict=True)
                },
                alike=dict(zip(DIMENSIONS, alike[number].tolist(), strict=True)),
            ),
        )
        for number in range(count)
    ]


def _dealt(choices: int, count: int, rng: np.random.Generator) -> list[int]:
    """``count`` of the choices, each as often as the others as far as that goes, in random order."""
    rounds = -(-count // choices)
    dealt = np.concatenate([rng.permutation(choices) for _ in range(rounds)])[:count]
    return [int(share) for share in dealt]


def _depths(shares: dict[int, int], count: int) -> list[int]:
    """``count`` depths in the proportions of ``shares``, by largest remainder."""
    total = sum(shares.values())
    exact = {depth: count * share / total for depth, share in shares.items()}
    whole = {depth: int(share) for depth, share in exact.items()}
    by_remainder = sorted(exact, key=lambda depth: (whole[depth] - exact[depth], -depth))
    for depth in by_remainder[: count - sum(whole.values())]:
        whole[depth] += 1
    return [depth for depth, count in whole.items() for _ in range(count)]


def _task(
    settings: BenchmarkSettings, plan: _Plan, frames: Entry, document_ids: Sequence[str]
) -> PlanningTask:
    rng = _rng(settings, _TASKS, plan.number)
    service, said = plan.service, frames["context"]
    goal = one_of(service["goals"], rng).replace("#", one_of(service["purposes"], rng))
    facts = {name: plan.where.facts[name]["plain"] for name in DIMENSIONS}
    told = [fill(one_of(said["surroundings"], rng), facts, rng), one_of(said["situation"], rng)]
    context = " ".join(told if rng.random() < 0.5 else told[::-1])
    roles = _roles(plan.depth, rng)
    outline = tuple(draw(service["steps"][ROLES.index(role)], rng) for role in roles)
    return PlanningTask(
        id=f"task_{plan.digits}",
        goal=goal,
        context=context,
        depth=plan.depth,
        small=plan.small,
        constraint=Constraint(
            token=plan.token, requirement=plan.kind["requirement"], concepts=plan.kind["concepts"]
        ),
        document_ids=tuple(sorted(document_ids)),
        depends=_depends(plan.kind["roles"], roles),
        outline=outline,
    )


def _roles(depth: int, rng: np.random.Generator) -> list[str]:
    """The roles of an outline in order: the first and the last always, those between by lot."""
    between = rng.permutation(len(ROLES) - 2)[: depth - 2] + 1
    return [ROLES[place] for place in sorted([0, *between.tolist(), len(ROLES) - 1])]


def _depends(bears_on: Sequence[str], roles: Sequence[str]) -> tuple[int, ...]:
    """The steps that the kind bears on, at most two and never all; the first step if there is none."""
    steps = [roles.index(role) + 1 for role in bears_on if role in roles]
    return tuple(sorted(steps[: min(2, len(roles) - 1)])) or (1,)


def _texts(
    settings: BenchmarkSettings, written: Entry, plans: Sequence[_Plan]
) -> tuple[list[tuple[str, str]], list[list[int]]]:
    """Titles and texts of the corpus, no text twice; and the rows that carry each task's token."""
    texts: list[tuple[str, str]] = []
    carriers: list[list[int]] = []
    seen: set[str] = set()
    for plan in plans:
        carriers.append([])
        for carries, document in _task_documents(settings, written, plan, seen):
            if carries:
                carriers[-1].append(len(texts))
            texts.append(document)
    rest = settings.documents - len(texts)
    texts.extend(service_documents(written, rest, _rng(settings, _SERVICES)))
    return texts, carriers


def _task_documents(
    settings: BenchmarkSettings, written: Entry, plan: _Plan, seen: set[str]
) -> Iterator[tuple[bool, tuple[str, str]]]:
    """A task's documents, each with whether it carries the token; their texts join ``seen``."""
    rng = _rng(settings, _DOCUMENTS, plan.number)
    carrying = 1 + int(rng.choice(len(_CARRIERS), p=_CARRIERS))
    near = 1 + int(rng.choice(len(_NEAR_SHARES), p=_NEAR_SHARES))
    for row in range(carrying + near):
        own = _rng(settings, _DOCUMENTS, plan.number, row)
        drafts = (
            _constraint_document(written["frames"], plan, own)
            if row < carrying
            else _near_document(written, plan, own)
            for _ in range(DRAWS)
        )
        yield row < carrying, unseen(drafts, seen, plan.token)


def _constraint_document(frames: Entry, plan: _Plan, rng: np.random.Generator) -> tuple[str, str]:
    order = _ORDERS[int(rng.integers(len(_ORDERS)))]
    identifier = one_of(frames["identifier"]["sentences"], rng)
    scope = one_of(frames["scope"]["sentences"], rng)
    values = {**months(rng), **plan.where.wording(rng), "token": plan.token}
    own = {"identifier": fill(identifier, values, rng), "scope": fill(scope, values, rng)}
    return _document(frames, plan.kind, order, {**values, **own}, rng)


def _near_document(written: Entry, plan: _Plan, rng: np.random.Generator) -> tuple[str, str]:
    """Title and text of a document on the same kind of constraint that asks nothing of the task."""
    reason = one_of(_REASONS, rng)
    orders = _NEAR[reason]
    order = orders[int(rng.integers(len(orders)))]
    moved, frames = plan.where.moved(written["facts"], rng), written["frames"]
    near = frames["near"]
    scopes = near["advised"]["scope"] if reason == "advice" else frames["scope"]["sentences"]
    values = {**months(rng), **(moved if reason == "elsewhere" else plan.where).wording(rng)}
    own = {
        "status": fill(one_of(near[reason], rng), values, rng),
        "scope": fill(one_of(scopes, rng), values, rng),
    }
    return _document(frames, plan.kind, order, {**values, **own}, rng)


def _document(
    frames: Entry,
    kind: Entry,
    order: tuple[str, ...],
    values: Mapping[str, str],
    rng: np.random.Generator,
) -> tuple[str, str]:
    """The parts in order between an opening and, where words are wanted, more of the kind's text."""
    chosen = {name: one_of(kind[name], rng) for name in ("rule", "why", "check")}
    parts = {**values, **{name: draw(text, rng) for name, text in chosen.items()}}
    own = frames["constraint"]
    slots = {**values, "title": one_of(kind["titles"], rng)}
    opening, closing, last, title = (
        fill(one_of(own[name], rng), slots, rng)
        for name in ("openings", "closings", "closings", "titles")
    )
    if "status" in parts:
        opening = last = ""  # a note of no force is not announced as one in force
    rest = [parts[name] for name in ("check", "why") if name not in order]
    more = [text for text in (*kind["why"], *kind["check"]) if text not in chosen.values()]
    reasons = [draw(text, rng) for text in more]
    spare = [closing, *rest] if rng.random() < 0.4 else [*rest, *reasons, closing]
    body = [opening, *(parts[name] for name in order)]
    return title, paragraph(body, [*spare, *reasons, last], rng)
