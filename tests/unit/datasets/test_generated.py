from __future__ import annotations

from collections import Counter, defaultdict

import pytest

from suffice.datasets.example import Example
from suffice.datasets.generated import MOST, generate
from suffice.errors import UsageError
from suffice.retrieval.lexical.bm25 import OKAPI, BM25Index
from suffice.scoring import normalize_answer

N = 400


@pytest.fixture(scope="module")
def examples() -> tuple[Example, ...]:
    return tuple(generate(N, seed=42))


def test_questions_do_not_depend_on_how_many_are_drawn(examples: tuple[Example, ...]) -> None:
    assert tuple(generate(5, seed=42)) == examples[:5]
    assert tuple(generate(7, seed=42, start=133)) == examples[133:140]
    assert tuple(generate(5, seed=43)) != examples[:5]
    assert tuple(generate(5, seed=43)) == tuple(generate(5, seed=43))
    with pytest.raises(UsageError):
        list(generate(MOST + 1))


def test_every_type_in_its_share(examples: tuple[Example, ...]) -> None:
    types = Counter(example.question.type for example in examples)
    assert types == {"1hop": 160, "bridge": 120, "3hop": 60, "comparison": 40, "4hop": 20}


def test_no_question_is_asked_twice(examples: tuple[Example, ...]) -> None:
    assert len({example.question.text for example in examples}) == N
    assert len({(example.gold.passage_ids, example.gold.answers) for example in examples}) == N


def test_answers_stand_in_a_gold_passage_and_not_in_the_question(
    examples: tuple[Example, ...],
) -> None:
    for example in examples:
        texts = {p.id: normalize_answer(p.text or "") for p in example.passages}
        answer = normalize_answer(example.gold.answers[0])
        places = example.gold.passage_ids
        holders = places if example.question.type == "comparison" else places[-1:]
        assert any(answer in texts[place] for place in holders)
        assert answer not in normalize_answer(example.question.text)
        assert answer not in ("yes", "no")


def test_one_id_is_one_text_and_one_title_is_one_id(examples: tuple[Example, ...]) -> None:
    by_id: dict[str, set[tuple[str, str]]] = defaultdict(set)
    for passage in (p for example in examples for p in example.passages):
        by_id[passage.id].add((passage.title, passage.text or ""))
    assert all(len(versions) == 1 for versions in by_id.values())
    titles = Counter(title for versions in by_id.values() for title, _ in versions)
    assert max(titles.values()) == 1
    assert len(by_id) < 0.5 * sum(len(example.passages) for example in examples)


def test_it_is_neither_easy_nor_hopeless_for_bm25(examples: tuple[Example, ...]) -> None:
    """First gold passage first in 40-80%, all gold among the first five in 60-95%."""
    first = five = 0
    for example in examples:
        index = BM25Index.build(example.passages, OKAPI)
        ranked = [passage.id for passage in index.retrieve(example.question.text, 5)]
        first += ranked[0] == example.gold.passage_ids[0]
        five += set(example.gold.passage_ids) <= set(ranked)
    assert 0.40 <= first / N <= 0.80
    assert 0.60 <= five / N <= 0.95
