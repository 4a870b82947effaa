"""Records made to break a signal: texts, tokens, passages, samples and scores of every odd kind."""

from __future__ import annotations

import math

from hypothesis import strategies as st

from suffice.trace.rounds.records import (
    Gold,
    Passage,
    Question,
    QuestionRecord,
    Round,
    Token,
    TopToken,
)

_WORDS = ("the", "a", "The", "Oslo", "oslo", "no", "not", "know", "Answer:", "A", "can't", "naïve")
_HOSTILE = (
    *("İstanbul", "ß", "SS", "ss", "ı", "i", "ﬁ", "\x1f", "\x85", " ", "　", "é", "é", "_", "—"),
    *("\0", "K", "ΟΔΟΣ–"),
)
# what abstains, and what conflicts with what
_SAID = (
    *("unknown", "no answer found", "there is no information", " is unknown"),
    *(" do not know", "none"),
    *("not stated in the text", "I don't know", "a hazy day", "hazy", " (", "; ", ". ", "\n"),
    *(" ", "'"),
    *("Allow", " access", "not ", "DON’T ", "isn't", "conflicts\twith "),
    *("mutually  exclusive ", "norms"),
)
_texts = st.one_of(
    st.lists(st.sampled_from((*_WORDS, *_HOSTILE)), max_size=6).map(" ".join),
    st.lists(st.sampled_from((*_WORDS, *_HOSTILE, ".", "!", " ", "\n")), max_size=8).map("".join),
    st.text(max_size=12),
    st.sampled_from(("", "yes", "no", "unknown", "Not mentioned.", "It is not known (1)", "(A)")),
    st.lists(st.sampled_from(_SAID), max_size=4).map("".join),
    # few, so that answers repeat and stand in passages
    st.sampled_from(("Oslo", "no", "know", "the Oslo.", "no Oslo", "Oslo know A-ha", "A-ha")),
).filter(lambda text: max(text, default="") < "\ud800" or min(text) > "\udfff")
_narrow = st.floats(width=32, allow_nan=False, allow_infinity=False)
_logprobs = st.one_of(
    st.floats(-40, 0, width=32), st.sampled_from((-math.inf, 0.0, -0.25, 1e-7, -104.0))
)
_tops = st.lists(st.builds(TopToken, _texts, _logprobs), max_size=4).map(tuple)
_tokens = st.builds(
    Token, st.one_of(_texts, st.sampled_from(("Answer", ":", "\n", " "))), _logprobs, _tops
)
_passages = st.builds(
    Passage,
    id=st.sampled_from(("1", "2", "3", "4", "")),
    title=st.one_of(st.just(""), _texts),
    text=st.one_of(st.none(), _texts),
    score=st.one_of(st.none(), _narrow),
    rerank_score=st.one_of(st.none(), _narrow),
)
sample_lists = st.one_of(st.none(), st.lists(_texts, max_size=6).map(tuple))


@st.composite
def clusters(draw: st.DrawFn, samples: tuple[str, ...] | None) -> tuple[int, ...]:
    """A clustering by meaning, which need not follow the words."""
    firsts: list[int] = []
    numbers = []
    for position in range(len(samples or ())):
        numbers.append(draw(st.sampled_from([*firsts, position])))
        if numbers[-1] == position:
            firsts.append(position)
    return tuple(numbers)


_blanks = st.sampled_from(
    ("", "", " ", "\n- ", "`", "\n", "\u3000 ", "\r\n", "\x85", "\u2028\x1f", "\u200b")
)


@st.composite
def _spelling(draw: st.DrawFn, answer: str) -> tuple[Token, ...]:
    """Tokens that spell a reply with the answer, cut anywhere."""
    before = draw(
        st.sampled_from(
            (
                *("", "Answer:", "é. Answer:", "Answer: no\nAnswer:", "Answer"),
                *("**Answer:** *", "Answer*:\n"),
            )
        )
    )
    text = (
        before
        + draw(_blanks)
        + answer
        + draw(_blanks)
        + draw(st.sampled_from(("", "é", "\n1", "**", "\nConfidence: 4")))
    )
    cuts = sorted(draw(st.lists(st.integers(0, len(text)), max_size=6)))
    bounds = zip([0, *cuts], [*cuts, len(text)], strict=True)
    return tuple(Token(text[begin:end], -0.5, draw(_tops)) for begin, end in bounds)


@st.composite
def rounds(draw: st.DrawFn) -> Round:
    samples = draw(sample_lists)
    answer = draw(st.one_of(st.none(), _texts, _texts, _texts))
    return Round(
        query=draw(st.one_of(st.none(), _texts)),
        passages=draw(st.one_of(st.none(), st.lists(_passages, max_size=4).map(tuple))),
        refound=draw(st.one_of(st.none(), st.lists(_passages, max_size=2).map(tuple))),
        answer=answer,
        response=draw(st.one_of(st.none(), _texts)),
        tokens=draw(
            st.one_of(
                st.none(),
                st.lists(_tokens, max_size=7).map(tuple),
                _spelling(answer or ""),
                _spelling("Oslo"),
            )
        ),
        answer_starts=draw(st.one_of(st.none(), st.none(), st.integers(0, 8))),
        samples=samples,
        sample_clusters=draw(st.one_of(st.none(), clusters(samples))),
        verbalized_confidence=draw(
            st.one_of(st.none(), st.sampled_from((0.0, 1.0, 4.5, 5.0, 7.0)))
        ),
        candidate_scores=draw(
            st.one_of(
                st.none(),
                st.lists(st.one_of(_narrow, st.just(math.nan), st.just(math.inf)), max_size=6).map(
                    tuple
                ),
            )
        ),
        signals=draw(
            st.dictionaries(st.sampled_from(("overlap", "own")), st.sampled_from((0.5, math.nan)))
        ),
    )


@st.composite
def records(draw: st.DrawFn) -> list[QuestionRecord]:
    recorded = draw(st.lists(st.lists(rounds(), min_size=1, max_size=4), min_size=1, max_size=3))
    return [
        QuestionRecord(
            question=Question(id=f"q{number}", text="?"), gold=Gold(), rounds=tuple(of_question)
        )
        for number, of_question in enumerate(recorded)
    ]
