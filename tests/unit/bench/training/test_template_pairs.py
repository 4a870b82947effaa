"""The template pairs: enough of them, split cleanly, the same from the same seed."""

from __future__ import annotations

from collections import Counter

import pytest

from studies.training.template_pairs import FAMILIES, KINDS, make_pairs, pole_phrases
from suffice.errors import UsageError
from suffice.retrieval.pairs.contradiction_features import stems

TRAIN, TEST = make_pairs("train", per_family=60), make_pairs("test", per_family=60)


def test_there_are_enough_families_and_pairs() -> None:
    assert len(FAMILIES) >= 40
    assert len({family.name for family in FAMILIES}) == len(FAMILIES)
    assert Counter(family.side for family in FAMILIES) == {"train": 46, "test": 13}
    assert {family.group for family in FAMILIES if family.side == "test"} == {
        family.group for family in FAMILIES
    }
    assert len(TRAIN) == 46 * 60
    assert len(TEST) == 13 * 60
    assert len({(pair.step, pair.candidate) for pair in TRAIN + TEST}) == len(TRAIN + TEST)


def test_the_sides_share_no_family_object_or_template() -> None:
    assert not {pair.family for pair in TRAIN} & {pair.family for pair in TEST}
    of = {
        side: [family for family in FAMILIES if family.side == side] for side in ("train", "test")
    }
    for part in ("objects", "says", "against"):
        train, test = ({text for f in of[side] for text in getattr(f, part)} for side in of)
        assert not train & test, part
    texts = [
        {text for pair in side for text in (pair.step, pair.candidate)} for side in (TRAIN, TEST)
    ]
    assert not texts[0] & texts[1]


def test_every_family_can_be_opposed_and_every_slot_is_filled() -> None:
    for family in FAMILIES:
        assert len(family.says) == 3, family.name
        assert bool(family.against) != bool(family.values), family.name
        assert len(family.aspects) >= 2, family.name
    assert not any("{" in pair.step + pair.candidate for pair in TRAIN + TEST)


def test_kinds_and_labels() -> None:
    assert {pair.kind for pair in TEST} == set(KINDS)
    for pair in TRAIN + TEST:
        assert pair.conflict == (pair.kind in ("opposite", "negated"))
    assert 0.35 < sum(pair.conflict for pair in TEST) / len(TEST) < 0.5
    for family in {pair.family for pair in TRAIN + TEST}:
        labels = {pair.conflict for pair in TRAIN + TEST if pair.family == family}
        assert labels == {True, False}, family


def test_a_seed_gives_the_same_pairs_again_and_another_gives_others() -> None:
    assert make_pairs("test", per_family=60) == TEST
    assert make_pairs("test", per_family=60, seed=1) != TEST
    few = make_pairs("test", per_family=5)
    assert all(
        pair in TEST for pair in few
    )  # a family's draws do not depend on how many are wanted


def test_poles_leave_out_the_words_of_the_test_alone() -> None:
    phrases = dict(pole_phrases())
    assert phrases["enable"] is True
    assert phrases["disable"] is False
    assert {"deactivate", "isolate", "shrink"}.isdisjoint(phrases)
    own = {
        side: {
            stem
            for f in FAMILIES
            if f.side == side
            for t in f.says + f.against
            for stem in stems(t)
        }
        for side in ("train", "test")
    }
    for phrase in phrases:
        assert not set(stems(phrase)) & (own["test"] - own["train"]), phrase


def test_refusals() -> None:
    with pytest.raises(UsageError, match="side must be one of train, test, found 'eval'"):
        make_pairs("eval")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="per_family must be at least 1, found 0"):
        make_pairs("test", per_family=0)
