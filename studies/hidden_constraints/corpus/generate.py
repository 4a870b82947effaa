"""The hidden-constraint benchmark from a seed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from studies.hidden_constraints.corpus.constraints import (
    Surroundings,
    constraint_document,
    near_document,
)
from studies.hidden_constraints.corpus.material import (
    DIMENSIONS,
    ROLES,
    CorpusMaterial,
    Kind,
    Service,
    draw,
    load,
)
from studies.hidden_constraints.corpus.prose import fill, one_of, service_documents
from studies.hidden_constraints.corpus.tasks import (
    Benchmark,
    BenchmarkSettings,
    Constraint,
    PlanningTask,
)
from suffice.errors import InternalError
from suffice.trace.rounds.records import Passage

_SMALL_DEPTHS = {2: 1, 3: 7, 4: 9, 5: 3}  # of 20: mean 3.70
_OTHER_DEPTHS = {4: 8, 5: 12, 6: 10}  # of 30: mean 5.07, so that 50 have 4.52
_CARRIERS = (0.4, 0.35, 0.25)  # how often 1, 2 and 3 documents carry a constraint
_NEAR = (0.5, 0.5)  # how often 1 and 2 documents resemble them
_DRAWS = 200
_MATERIAL, _TASKS, _DOCUMENTS, _SERVICES, _ORDER = range(5)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """A task before its documents have ids."""

    number: int
    digits: str
    small: bool
    depth: int
    service: Service
    kind: Kind
    facts: tuple[int, ...]
    thresholds: tuple[float, ...]


def generate(settings: BenchmarkSettings | None = None) -> Benchmark:
    """Draw the tasks and their corpus.

    A task's goal, its surroundings (what is kept, for whom, where) and its constraint are drawn
    independently of one another, so that goal and context tell nothing of the constraint. What ties a
    task to its documents is the surroundings: a document carries the constraint's token and says to
    which surroundings it applies.

    The dial ``gap`` only changes how documents say that. Each of a task's three facts has one uniform
    draw; the documents say the fact in the very words of the context when the draw is at least the
    square root of ``gap``, else in words that share none with them. As the draws stay the same, a
    smaller gap turns more facts, and never fewer, into the context's words: at 0 all, at 1 none.
    Goals, contexts, tokens and documents about services are the same at every gap.

    Beside every task's 1 to 3 documents stand 1 or 2 that resemble them and ask nothing of it (other
    surroundings, superseded, or advice without an identifier). The rest describes the services.
    """
    chosen = BenchmarkSettings() if settings is None else settings
    material = load(_rng(chosen, _MATERIAL))
    plans = _plans(chosen, material)
    texts, carriers = _texts(chosen, material, plans)
    width = max(3, len(str(len(texts) - 1)))
    ids = [f"doc_{place:0{width}d}" for place in _rng(chosen, _ORDER).permutation(len(texts))]
    documents = [
        Passage(id=name, title=title, text=text)
        for name, (title, text) in sorted(zip(ids, texts, strict=True))
    ]
    tasks = [
        _task(chosen, plan, material, [ids[row] for row in rows])
        for plan, rows in zip(plans, carriers, strict=True)
    ]
    return Benchmark(settings=chosen, tasks=tuple(tasks), documents=tuple(documents))


def _rng(settings: BenchmarkSettings, *stream: int) -> np.random.Generator:
    return np.random.default_rng([settings.seed, *stream])


# --- tasks ----------------------------------------------------------------------------------------
def _plans(settings: BenchmarkSettings, material: CorpusMaterial) -> list[_Plan]:
    rng = _rng(settings, _TASKS)
    count = settings.tasks
    width = max(3, len(str(count - 1)))  # of one length: no token begins another
    small = np.zeros(count, bool)
    small[rng.permutation(count)[: settings.hard_small]] = True
    depths = np.empty(count, np.int64)
    depths[small] = rng.permutation(_depths(_SMALL_DEPTHS, settings.hard_small))
    depths[~small] = rng.permutation(_depths(_OTHER_DEPTHS, count - settings.hard_small))
    services = _dealt(len(material.services), count, rng)
    kinds = _dealt(len(material.kinds), count, rng)
    sizes = tuple(len(material.facts[name]) for name in DIMENSIONS)
    places = np.unravel_index(_dealt(int(np.prod(sizes)), count, rng), sizes)
    thresholds = rng.random((count, len(DIMENSIONS)))
    return [
        _Plan(
            number=number,
            digits=f"{number:0{width}d}",
            small=bool(small[number]),
            depth=int(depths[number]),
            service=material.services[services[number]],
            kind=material.kinds[kinds[number]],
            facts=tuple(int(place[number]) for place in places),
            thresholds=tuple(thresholds[number].tolist()),
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
    settings: BenchmarkSettings, plan: _Plan, material: CorpusMaterial, document_ids: Sequence[str]
) -> PlanningTask:
    rng = _rng(settings, _TASKS, plan.number)
    service, frames = plan.service, material.frames["context"]
    goal = one_of(service.goals, rng).replace("#", one_of(service.purposes, rng))
    facts = {
        name: material.facts[name][place].plain
        for name, place in zip(DIMENSIONS, plan.facts, strict=True)
    }
    told = [
        fill(one_of(frames["surroundings"], rng), facts, rng),
        one_of(frames["situation"], rng),
    ]
    context = " ".join(told if rng.random() < 0.5 else told[::-1])
    roles = _roles(plan.depth, rng)
    outline = tuple(draw(service.steps[ROLES.index(role)], rng) for role in roles)
    return PlanningTask(
        id=f"task_{plan.digits}",
        goal=goal,
        context=context,
        depth=plan.depth,
        small=plan.small,
        constraint=Constraint(
            token=_token(plan), requirement=plan.kind.requirement, concepts=plan.kind.concepts
        ),
        document_ids=tuple(sorted(document_ids)),
        depends=_depends(plan.kind, roles),
        outline=outline,
    )


def _token(plan: _Plan) -> str:
    return f"{plan.kind.words}_{plan.digits}"


def _roles(depth: int, rng: np.random.Generator) -> list[str]:
    """The roles of an outline in order: the first and the last always, those between by lot."""
    between = rng.permutation(len(ROLES) - 2)[: depth - 2] + 1
    return [ROLES[place] for place in sorted([0, *between.tolist(), len(ROLES) - 1])]


def _depends(kind: Kind, roles: Sequence[str]) -> tuple[int, ...]:
    """The steps that the kind bears on, at most two and never all; the first step if there is none."""
    steps = [roles.index(role) + 1 for role in kind.roles if role in roles]
    return tuple(sorted(steps[: min(2, len(roles) - 1)])) or (1,)


# --- documents ------------------------------------------------------------------------------------
def _texts(
    settings: BenchmarkSettings, material: CorpusMaterial, plans: Sequence[_Plan]
) -> tuple[list[tuple[str, str]], list[list[int]]]:
    """Titles and texts of the corpus, no text twice; and the rows that carry each task's token."""
    texts: list[tuple[str, str]] = []
    carriers: list[list[int]] = []
    seen: set[str] = set()
    for plan in plans:
        carriers.append([])
        for carries, document in _task_documents(settings, material, plan, seen):
            if carries:
                carriers[-1].append(len(texts))
            texts.append(document)
    rest = settings.documents - len(texts)
    texts.extend(service_documents(material, rest, _rng(settings, _SERVICES)))
    return texts, carriers


def _task_documents(
    settings: BenchmarkSettings, material: CorpusMaterial, plan: _Plan, seen: set[str]
) -> Iterator[tuple[bool, tuple[str, str]]]:
    """A task's documents, each with whether it carries the token; their texts join ``seen``."""
    rng = _rng(settings, _DOCUMENTS, plan.number)
    where = Surroundings(
        facts={
            name: material.facts[name][place]
            for name, place in zip(DIMENSIONS, plan.facts, strict=True)
        },
        alike={
            name: threshold >= float(np.sqrt(settings.gap))
            for name, threshold in zip(DIMENSIONS, plan.thresholds, strict=True)
        },
    )
    carrying = 1 + int(rng.choice(len(_CARRIERS), p=_CARRIERS))
    near = 1 + int(rng.choice(len(_NEAR), p=_NEAR))
    for row in range(carrying + near):
        own = np.random.default_rng([settings.seed, _DOCUMENTS, plan.number, row])
        for _ in range(_DRAWS):
            title, text = (
                constraint_document(material, plan.kind, where, _token(plan), own)
                if row < carrying
                else near_document(material, plan.kind, where, own)
            )
            if text not in seen:
                break
        else:
            raise InternalError(f"no new text for {_token(plan)!r} after {len(seen)} documents")
        seen.add(text)
        yield row < carrying, (title, text)
