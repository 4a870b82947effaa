from suffice.trace.rounds.records import Passage, passage_text, passage_tokens, tokenize


def test_lower_cases_and_splits_at_everything_but_word_characters() -> None:
    assert tokenize("Émile's X-ray, 1,200 km_2!") == ["émile", "s", "x", "ray", "1", "200", "km_2"]
    assert tokenize("  ...  ") == []


def test_title_and_text_count() -> None:
    passage = Passage(id="1", title="Mount Ardel", text="Ardel is a peak.")
    assert passage_text(passage) == "Mount Ardel Ardel is a peak."
    assert passage_tokens(passage) == ["mount", "ardel", "ardel", "is", "a", "peak"]


def test_a_passage_without_text_is_its_title() -> None:
    assert passage_tokens(Passage(id="1", title="Mount Ardel")) == ["mount", "ardel"]
