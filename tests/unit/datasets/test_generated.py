from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections import Counter, defaultdict
from dataclasses import asdict

import pytest

from suffice.datasets.files import Example
from suffice.datasets.generated import build_region, generate, kind_of
from suffice.retrieval.bm25 import OKAPI, BM25Index
from suffice.scoring import normalize_answer

N = 400


@pytest.fixture(scope="module")
def examples() -> tuple[Example, ...]:
    return tuple(generate(N, seed=42))


def test_questions_do_not_depend_on_how_many_are_drawn(examples: tuple[Example, ...]) -> None:
    assert tuple(generate(5, seed=42)) == examples[:5]
    assert tuple(generate(5, seed=43)) != examples[:5]


def test_a_seed_makes_the_same_everywhere() -> None:
    made = json.dumps([asdict(example) for example in generate(40, seed=42)])
    digest = "28fc3c0cbf41c6c4499cbda4cf03431069d9e196f620baeebe740995e3531c90"
    assert hashlib.sha256(made.encode()).hexdigest() == digest


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


def test_chains_follow_the_passages(examples: tuple[Example, ...]) -> None:
    """Every gold passage but the first is named in an earlier one: the chain can be walked."""
    for example in examples:
        if example.question.type == "comparison":
            continue
        by_id = {p.id: p for p in example.passages}
        for earlier, later in itertools.pairwise(example.gold.passage_ids):
            assert by_id[later].title in (by_id[earlier].text or "")


def test_comparisons_are_decided_by_the_records() -> None:
    checked = 0
    for example in generate(600, seed=3):
        if "older of" not in example.question.text:
            continue
        key = example.gold.passage_ids[0]
        region = build_region(3, int(key.split("-r")[1].split("-")[0]))
        field, ask = (
            ("born", {"birthplace", "employer"})
            if kind_of(key) == "p"
            else ("founded", {"founder", "seat"})
        )
        pair = [region.entity(own) for own in example.gold.passage_ids]
        winner = min(pair, key=lambda entity: entity.facts[field])
        wanted = {region.entity(winner.facts[name]).name for name in ask}
        assert example.gold.answers[0] in wanted
        checked += 1
    assert checked > 20


def test_one_id_is_one_text_and_one_title_is_one_id(examples: tuple[Example, ...]) -> None:
    by_id: dict[str, set[tuple[str, str]]] = defaultdict(set)
    for passage in (p for example in examples for p in example.passages):
        by_id[passage.id].add((passage.title, passage.text or ""))
    assert all(len(versions) == 1 for versions in by_id.values())
    titles = Counter(title for versions in by_id.values() for title, _ in versions)
    assert max(titles.values()) == 1
    assert len(by_id) < 0.5 * sum(len(example.passages) for example in examples)


def test_sentences_read_as_sentences(examples: tuple[Example, ...]) -> None:
    for example in examples:
        for text in (*(p.text or "" for p in example.passages), example.question.text):
            assert not re.search(
                r"\b[Aa] [aeiou]|\ban [^aeiouAEIOU]|[Tt]he [Tt]he |  |[{}]", text
            ), text
            assert text[0].isupper()
            assert text[-1] in ".?"


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
