"""Answer scores as pure functions: exact match, token F1 and containment accuracy.

Definitions are those of the official SQuAD and HotpotQA evaluation scripts (METHODS, "Shared").
Every score lies in [0, 1]; high is good.
"""

from __future__ import annotations

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Literal, get_args

from suffice.errors import UsageError, unknown_name

F1Kind = Literal["hotpotqa", "squad"]
F1_KINDS: tuple[F1Kind, ...] = get_args(F1Kind)
ScoreName = Literal["em", "f1", "acc"]
"""How explored questions stand for those that their policy cut: by what they differ from what was expected of
them times 1/propensity, by 1/propensity themselves, or by their mean."""

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_DELETE_PUNCTUATION = str.maketrans("", "", string.punctuation)
SPECIAL = frozenset({"yes", "no", "noanswer"})
"""Answers that HotpotQA's F1 takes as a whole."""


@lru_cache(maxsize=65536)
def normalize_answer(text: str) -> str:
    """Lower-case, delete punctuation, drop the words a, an and the, squeeze white space, in that order.

    >>> normalize_answer("The  A-ha, a.m.")
    'aha am'
    """
    text = text.lower().translate(_DELETE_PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", text).split())


def published_normalizer(text: str) -> str:
    """Normalize as TASR's published code: remove articles before punctuation ("A-ha" becomes "ha")."""
    text = _ARTICLES.sub(" ", text.lower())
    return " ".join(text.translate(_DELETE_PUNCTUATION).split())


_MARK = r"[!-/:-@\[-`{-~]"  # ASCII punctuation; that of other scripts is read as one of these
_TELLING = re.compile(  # no run of marks is read more than a few times
    rf"(?={_MARK})(?:((?<=[0-9]){_MARK}+(?=[0-9])|(?<=[0-9]e)-(?=[0-9])"  # 3.5 and 1e-3
    r"|(?<=[^\W\d_])-(?!\S)|(?<=[^\W_])[+#]+)"  # A- and C++
    rf"|(?:(?<=[^\W_])(?:-|\.++))?({_MARK}*+)(?=[0-9])|{_MARK}+)"  # x=-5, not GPT-5; others go
)
_NO_SIGN = re.compile(r"[^-<>.]|\.\.+|\.(?!$)")
_SPACED = re.compile(r"(?:(?<=\A-)|(?<=[<>]))\s+(?=[$.]*[0-9])")  # "< 5", and "- 5" if it begins
_IN_BRACKETS = re.compile(r"(?s)\A([^(\[{]*+)(.*[)\]}])")
_MEMBER = re.compile(r"(?<=[])}0-9]),")
_THOUSANDS = re.compile(
    r"(?<![0-9])(?<![0-9][.,'])[1-9][0-9]{0,2}(?:,[0-9]{3})+(?![0-9]|[,'][0-9]|\.[0-9]+[.,'][0-9])"
)
_NUMBER = re.compile(r"(-?)(?=[.0-9])0*+([0-9]*+)(?:\.([0-9]*+))?")
_UNSEEN = re.compile(  # what has no width, but for the letters of flags
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\U000e0000-\U000e001f\U000e0080-\U000e0fff]"
)
_BEHIND_DIGITS = re.compile(  # NFKC makes 102 of 10² and 31/2 of 3½
    r"(?<=\d)(?:([⁺⁻]?[⁰¹²³⁴-⁹]+|[₀-₉]+)|(?=[¼-¾⅐-⅞]))"
)
_IN_ASCII = dict.fromkeys("´‘’‛′ʹʺʻʼʽʾʿ", "'") | dict(zip("−⁄∕٫٬،♯", "-//.,,#", strict=True))


@lru_cache(maxsize=65536)
def _in_ascii(char: str) -> str:
    """Return a digit or punctuation of any script as one of ASCII, another character as it is."""
    category = unicodedata.category(char)
    if category == "Nd":
        return str(unicodedata.decimal(char))
    mark = "!" if category[0] == "P" and not char.isascii() else char
    return _IN_ASCII.get(char, "-" if category == "Pd" else mark)


def _folded(text: str) -> str:
    """Return a text without case, width and composition (Unicode's compatibility caseless match, D146)."""
    text = _UNSEEN.sub("", unicodedata.normalize("NFD", text)).replace("´", "'")
    text = _BEHIND_DIGITS.sub(lambda m: f"^{m[1]}" if m[1] else " ", text)
    text = unicodedata.normalize("NFKD", text.casefold()).casefold().replace("i\u0307", "i")
    return "".join(map(_in_ascii, unicodedata.normalize("NFKC", text)))


def _telling(found: re.Match[str]) -> str:
    """Return what is left of punctuation: what tells answers apart, and the sign of a number."""
    kept, before = found.groups("")
    sign = _NO_SIGN.sub("", before)
    return kept or (sign and f" {sign}")


@lru_cache(maxsize=65536)
def answer_form(text: str) -> str:
    """Return the form that compares answers with one another; scores do not read it.

    Case, composition, punctuation and digits of any script, white space and the words a, an and the do not
    count. Kept are combining marks, a sign before a number, punctuation between digits, ``+`` and ``#``
    behind letters, and the choice "A". Commas part thousands as in English, and members in brackets.

    >>> [answer_form(text) for text in ("The Tempest.", "(A)", "C++", "−5", "$3.50", "1,000", "1,5", "?")]
    ['tempest', 'a', 'c++', '-5', '3.5', '1000', '1,5', '']
    """
    folded = text.lower() if text.isascii() else _folded(text)
    plain = _IN_BRACKETS.sub(lambda m: m[1] + _MEMBER.sub(" ", m[2]), folded.strip())
    plain = _THOUSANDS.sub(lambda m: m[0].replace(",", ""), _SPACED.sub("", plain))
    words = _TELLING.sub(_telling, plain).split()
    form = " ".join([word for word in words if word not in ("a", "an", "the")])
    if found := _NUMBER.fullmatch(form):
        sign, whole, part = found.groups("")
        form = f"{whole or 0}.{part}".rstrip("0").rstrip(".")
        return form if form == "0" else sign + form
    return form if form or words != ["a"] else "a"


# what stands for no article is punctuation, and gone before
_MLQA_ARTICLES = {"en": "a|an|the", "es": "un|una|unos|unas|el|la|los|las"}
_MLQA_ARTICLES |= {"de": "ein|eine|einen|einem|eines|einer|der|die|das|den|dem|des"}
_MLQA_ARTICLES |= {"vi": "của|là|cái|chiếc|những", "ar": "-", "hi": "-", "zh": "-"}


@lru_cache(maxsize=65536)
def mlqa_form(text: str) -> str:
    """Normalize a text as MLQA's official script does; it stands behind its language and a line's end.

    Lower case, no punctuation of any script, no articles of the language; Chinese characters are words.

    >>> mlqa_form(chr(10).join(["de", "Der Rhein!"])), mlqa_form(chr(10).join(["zh", "东京。"]))
    ('rhein', '东 京')
    """
    language, _, text = text.partition("\n")
    if language not in _MLQA_ARTICLES:
        raise UsageError(
            f"MLQA's scores need every question's language as its question_type: found {language!r:.40}; "
            f"allowed {', '.join(_MLQA_ARTICLES)}; type suffice traces label"
        )
    text = text.lower().translate(_DELETE_PUNCTUATION)
    bare = "".join(char for char in text if unicodedata.category(char)[0] != "P")
    bare = re.sub("ال" if language == "ar" else rf"\b({_MLQA_ARTICLES[language]})\b", " ", bare)
    if language == "zh":
        bare = re.sub("[\u4e00-\u9fa5]", r" \g<0> ", bare)
    return " ".join(bare.split())


_Form = Callable[[str], str]
_Score = Callable[[str, str], float]


def exact_match(prediction: str, gold_answers: Iterable[str]) -> float:
    """Return 1.0 if the normalized prediction equals any normalized gold answer, else 0.0.

    >>> exact_match("The Tempest.", ["tempest", "storm"])
    1.0
    """
    return _best(prediction, gold_answers, _equal)


def token_f1(predicted: str, gold: str) -> float:
    """Return F1 of the token multisets of two normalized texts; 0 if they share no token."""
    predicted_tokens, gold_tokens = predicted.split(), gold.split()
    shared = sum((Counter(predicted_tokens) & Counter(gold_tokens)).values())
    if shared == 0:
        return 0.0
    precision, recall = shared / len(predicted_tokens), shared / len(gold_tokens)
    return 2 * precision * recall / (precision + recall)


def _best(answer: str, gold: Iterable[str], score: _Score, form: _Form = normalize_answer) -> float:
    said = form(answer)
    return max((score(said, form(text)) for text in gold), default=0.0)


def _equal(predicted: str, gold: str) -> float:
    return float(predicted == gold)


def _contained(predicted: str, gold: str) -> float:
    return float(gold != "" and gold in predicted)


def _hotpotqa_f1(predicted: str, gold: str) -> float:
    if predicted != gold and (predicted in SPECIAL or gold in SPECIAL):
        return 0.0
    return token_f1(predicted, gold)


def f1_score(prediction: str, gold_answers: Iterable[str], kind: F1Kind = "hotpotqa") -> float:
    """Return token-multiset F1 of the normalized answers, maximum over the gold answers.

    ``hotpotqa`` scores 0 when the two differ and either is yes, no or noanswer; ``squad`` does not.
    Two answers that normalise to nothing score 0 (and exact match 1), as in the official scripts.
    """
    if kind not in F1_KINDS:
        raise UsageError(unknown_name("F1", kind, F1_KINDS))
    return _best(prediction, gold_answers, _hotpotqa_f1 if kind == "hotpotqa" else token_f1)


def f1(prediction: str, gold_answers: Iterable[str]) -> float:
    """Return token F1 with HotpotQA's rule for yes, no and noanswer; see :func:`f1_score`."""
    return f1_score(prediction, gold_answers)


def accuracy(prediction: str, gold_answers: Iterable[str]) -> float:
    """Return 1.0 if a normalized gold answer is a substring of the normalized prediction, else 0.0.

    Substring, not words: "no" is in "know". A gold answer that normalizes to nothing never counts.

    >>> accuracy("I know", ["no"])
    1.0
    """
    return _best(prediction, gold_answers, _contained)


SCORES: Mapping[ScoreName, Callable[[str, Iterable[str]], float]] = MappingProxyType(
    {"em": exact_match, "f1": f1, "acc": accuracy}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """A metric that compares policies: a score of answers, and what answers are scored against."""

    name: str
    score: ScoreName
    source: Any = None
    """For one of the user's own, the column or signal of its scores, or its function."""
    against: Literal["gold", "agreement", "scores"] = "gold"
    scored: str = "with gold answers"
    unscored: str = "has gold answers"
    untold: str = "without an answer"
    remedy: str = (
        "record an answer in every round, or ask: suffice probe TRACES --llm URL --out NEW"
    )
    stands_for_gold: str = ""
    labels: str = "gold answers"
    legend: str = ""
    mlqa: bool = False

    @property
    def gold(self) -> bool:
        """Whether gold answers are read."""
        return self.against == "gold"

    @property
    def agreement(self) -> bool:
        """Whether the full budget's own answer stands for the gold answers."""
        return self.against == "agreement"

    @property
    def noun(self) -> str:
        """What a question that can be scored is called."""
        return "question" if self.agreement else "labeled question"

    @property
    def label(self) -> str:
        """Its name in tables and sentences.

        >>> METRICS["agreement"].label, METRICS["score"].label
        ('agr. F1', 'score')
        """
        return self.head(self.score)

    def head(self, score: ScoreName) -> str:
        """Return the name of a score beside this metric, in tables."""
        if self.against == "scores":
            return _OF_SCORES[score].replace("score", self.name)
        if self.source is not None and score == self.score:
            return self.name.rpartition(":")[2]
        return ("MLQA " * self.mlqa if self.gold else "agr. ") + _LABELS[score]

    @property
    def beside(self) -> ScoreName:
        """The second score beside its own."""
        return "f1" if self.score == "em" else "em"

    def key(self, score: ScoreName) -> str:
        """Return the name of a score beside this metric, in JSON.

        >>> METRICS["agreement"].key("f1"), METRICS["agreement"].key("em"), METRICS["em"].key("f1")
        ('agreement', 'agreement_em', 'f1')
        >>> METRICS["score"].key("em"), METRICS["score"].key("acc")
        ('score_1', 'score_above_0')
        """
        if self.against == "scores":
            head = _OF_SCORES[score].replace(" ", "_").replace(">", "above")
            return head.replace("score", self.name)
        if self.gold:
            own = self.source is not None and score == self.score
            return self.name if own else score + "-mlqa" * self.mlqa
        return self.name if score == self.score else f"{self.name}_{score}"

    @property
    def names(self) -> Mapping[str, str]:
        """Return the names of the scores and of ``metric`` itself in JSON."""
        return {"metric": self.name, **{score: self.key(score) for score in _LABELS}}

    @property
    def unknown(self) -> Mapping[str, None]:
        """Return the scores that are unknown beside this metric, for JSON."""
        return {} if self.gold else dict.fromkeys(_LABELS)

    def which_f1(self, kind: F1Kind) -> F1Kind | None:
        """Return the F1 among its two scores; ``None``: neither is an F1 of answers."""
        of_answers = self.against != "scores" and self.source is None and not self.mlqa
        return kind if of_answers and "f1" in (self.score, self.beside) else None

    def of(
        self, score: ScoreName, answer: str, gold: Iterable[str], language: str | None = None
    ) -> float:
        """Return a score of one answer, as columns of answers are scored."""
        if not (self.mlqa or self.agreement):
            return SCORES[score](answer, gold)
        form, f1_of = (mlqa_form, token_f1) if self.mlqa else (answer_form, _hotpotqa_f1)
        answer, *gold = (f"{language}\n" * self.mlqa + text for text in (answer, *gold))
        if self.agreement and _best(answer, gold, _equal, form):  # even if both are empty
            return 1.0
        return _best(answer, gold, {"em": _equal, "f1": f1_of, "acc": _contained}[score], form)


_LABELS: Mapping[ScoreName, str] = MappingProxyType({"em": "EM", "f1": "F1", "acc": "Acc"})
_OF_SCORES: Mapping[ScoreName, str] = MappingProxyType(
    {"em": "score 1", "f1": "score", "acc": "score > 0"}
)
METRICS: Mapping[str, Metric] = MappingProxyType(
    {
        "f1": Metric(name="f1", score="f1"),
        "em": Metric(name="em", score="em"),
        "acc": Metric(name="acc", score="acc"),
        "f1-mlqa": Metric(name="f1-mlqa", score="f1", mlqa=True),
        "em-mlqa": Metric(name="em-mlqa", score="em", mlqa=True),
        "score": Metric(
            name="score",
            score="f1",
            against="scores",
            scored="with scores of their own",
            unscored="has a score of its own (column 'score')",
            untold="without a score",
            remedy="write a score of every round (column 'score')",
            stands_for_gold="policies are compared by the record's own scores here",
            labels="the record's own scores",
            legend="Scores are the record's own (column 'score'), from 0 to 1; no gold answer was read.",
        ),
        "agreement": Metric(
            name="agreement",
            score="f1",
            against="agreement",
            scored="whose full budget gives an answer",
            unscored="has an answer at its full budget",
            stands_for_gold="the full budget's own answers stand for them here",
            labels="agreement with the full budget's own answer",
            legend="Scores are agreement (agr.) with the full budget's own answer, not with the truth: no "
            "gold answer was read, and a wrong answer kept counts as right.",
        ),
    }
)
"""By name; the first is what holds where questions have gold answers and none is asked for."""


def metric_of_labels(stated: object) -> Metric:
    """Return the metric that a policy file states; one of somebody's own counts as scores."""
    return METRICS.get(str(stated), METRICS["score"])


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerChoice:
    """The choice of one answer among the rounds up to the stop.

    ``rule``: the latest, the one given most often (by :func:`answer_form`, abstentions apart), that of the
    greatest confidence, or that of the round in which ``signal`` is highest or lowest. Of equal ones the
    latest, or the ``first``.
    """

    rule: Literal["latest", "majority", "most-confident", "highest", "lowest"] = "latest"
    signal: str = ""
    first: bool = False

    @classmethod
    def parse(cls, text: str) -> AnswerChoice:
        """Read ``latest``, ``majority``, ``most-confident`` or ``[first-]highest|lowest:NAME``."""
        rule, colon, signal = text.partition(":")
        best = rule.removeprefix("first-")
        if best in ("highest", "lowest") and signal:
            return cls(rule=best, signal=signal, first=best != rule)  # type: ignore[arg-type]
        if rule in ("latest", "majority", "most-confident") and not colon:
            return cls(rule=rule)  # type: ignore[arg-type]
        raise UsageError(
            f"no choice of an answer: {text!r}; type latest, majority, most-confident, highest:NAME or "
            "lowest:NAME, with the name of a signal, as in lowest:error; of equal ones the latest, the first "
            "with first-lowest:error"
        )

    def or_own(self, returns: str) -> AnswerChoice:
        """Return the policy's own choice in place of the latest answer; else this choice."""
        return AnswerChoice.parse(returns) if self.rule == "latest" else self

    def __str__(self) -> str:
        """Return the choice in words, for the middle of a sentence."""
        if self.rule == "latest":
            return "the latest"
        by = {
            "majority": "the answer given most often",
            "most-confident": "the policy's greatest confidence",
        }.get(self.rule, f"the {self.rule} {self.signal}")
        return f"{by}, of equal ones the {'first' if self.first else 'latest'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """A test of a right answer: equal to a gold answer after normalization, or of at least this F1."""

    f1: float | None = None

    def __post_init__(self) -> None:
        if self.f1 is not None and not 0.0 < self.f1 <= 1.0:
            raise UsageError(f"an F1 to match by lies in (0, 1], found {self.f1!r}")

    def __call__(self, answer: str, gold_answers: Iterable[str]) -> bool:
        """Whether the answer is right; an answer that normalizes to nothing never is."""
        if self.f1 is None:
            return exact_match(answer, gold_answers) == 1.0
        return f1_score(answer, gold_answers) >= self.f1
