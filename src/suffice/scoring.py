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
from typing import Literal, get_args

from suffice.errors import UsageError, unknown_name

F1Kind = Literal["hotpotqa", "squad"]
F1_KINDS: tuple[F1Kind, ...] = get_args(F1Kind)
ScoreName = Literal["em", "f1", "acc"]
MetricName = Literal["f1", "em", "acc", "score", "agreement", "f1-mlqa", "em-mlqa"]
Weights = Literal["augmented", "ht", "self-normalised"]
"""How explored questions stand for those that their policy cut: by what they differ from what was expected of
them times 1/propensity, by 1/propensity themselves, or by their mean."""

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_ARTICLE_WORDS = frozenset(("a", "an", "the"))
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


_DIGITS = frozenset(string.digits)
_BEGIN_NUMBERS = _DIGITS | {"-", "."}
_MARK = r"[!-/:-@\[-`{-~]"  # ASCII punctuation; that of other scripts is read as one of these
_MARKS = re.compile(f"{_MARK}+")
_TELLING = re.compile(  # where a mark may tell answers apart
    rf"{_MARK}(?:[0-9]|(?<=[+#])|(?<=[-<>])\s+[0-9]|(?<=[^\W\d_]-)(?:\s|$))"
)
_SPACED = re.compile(r"([-<>])(?<!(?s:.)-)\s+(?=[$.]*[0-9])")  # "< 5", and "- 5" if it begins
_THOUSANDS = re.compile(  # 1,000 and 1'000, and 1,00,000 as in India
    r"(?<![0-9])(?<![0-9][.,'])[1-9][0-9]{0,2}(?:(?:,[0-9]{3})+|(?:'[0-9]{3})+|(?:,[0-9]{2})+,[0-9]{3})"
    r"(?!,?[0-9]|\.[0-9]+[.,][0-9])"
)
_NUMBER = re.compile(  # 3.50 and 3,50, or 1.000.000 and 1.000,5
    r"(-?)(?:([0-9]*)(?:[.,]([0-9]+))?|([1-9][0-9]{0,2}(?:\.[0-9]{3})+)"
    r"(?:,([0-9]+)|(?<=\.[0-9]{3}\.[0-9]{3})))(?:e([+-]?[0-9]{1,2}))?"
)
_UNSEEN = re.compile(  # what has no width, but for the letters of flags
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\U000e0000-\U000e001f\U000e0080-\U000e0fff]"
)
_BEHIND_DIGITS = re.compile(  # NFKC makes 102 of 10² and 31/2 of 3½; a narrow blank groups thousands
    "(?<=\\d)(?:([⁺⁻]?[⁰¹²³⁴-⁹]+|[₀-₉]+)|(?=[¼-¾⅐-⅞])|[\u00a0\u2007\u2009\u202f](?=\\d{3}(?!\\d)))"
)
_IN_ASCII = dict.fromkeys("´‘’‛′ʹʺʻʼʽʾʿ", "'") | dict(zip("−⁄∕٫٬،", "-//.,,", strict=True))


@lru_cache(maxsize=65536)
def _in_ascii(char: str) -> str:
    """Return a digit or punctuation of any script as one of ASCII, another character as it is."""
    category = unicodedata.category(char)
    if category == "Nd":
        return str(unicodedata.decimal(char))
    if char.isascii() or category[0] != "P":
        return _IN_ASCII.get(char, char)
    return _IN_ASCII.get(char, "-" if category == "Pd" else "!")


def _folded(text: str) -> str:
    """Return a text without case, width and composition (Unicode's compatibility caseless match, D146)."""
    text = _UNSEEN.sub("", unicodedata.normalize("NFD", text)).replace("´", "'")
    text = _BEHIND_DIGITS.sub(
        lambda found: f"^{found[1]}" if found[1] else "" if found[0] else " ", text
    )
    text = unicodedata.normalize("NFKD", text.casefold()).casefold()
    return "".join(map(_in_ascii, unicodedata.normalize("NFKC", text)))


def _telling(found: re.Match[str]) -> str:
    """Return what is left of a run of punctuation: all between digits, signs, ``+`` and ``#`` of words."""
    marks, text, start = found[0], found.string, found.start()
    before, after = text[max(start - 1, 0) : start], text[found.end() : found.end() + 1]
    number, word = after in _DIGITS, before.isalnum()
    if number and before in _DIGITS:
        return marks
    if word and marks == "-":  # 1e-3, and "O-" of blood; not "Covid-19"
        power = number and before == "e" and text[max(start - 2, 0) : start - 1] in _DIGITS
        return marks if power or (before.isalpha() and not after.strip()) else ""
    behind = marks[: len(marks) - len(marks.lstrip("+#"))] if word else ""
    if not number:
        return behind
    sign = "".join(mark for mark in marks[word and marks[0] == "-" :] if mark in "<>-")
    if marks.endswith(".") and not marks.endswith("..") and (not word or len(marks) > 1):
        sign += "."
    return behind + " " * bool(word and sign) + sign


def _number(form: str) -> str:
    """Return a number in its shortest decimals; of another form nothing."""
    found = _NUMBER.fullmatch(form)
    if found is None:
        return ""
    sign, whole, part, groups, rest, power = found.groups("")
    whole, part = whole or groups.replace(".", ""), part or rest
    if not whole + part:
        return ""
    digits = (whole + part).lstrip("0")
    point, digits = len(digits) - len(part) + int(power or 0), digits.rstrip("0")
    if not digits:
        return "0"
    if point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    return f"{sign}{digits[:point].ljust(point, '0')}{'.' * (len(digits) > point)}{digits[point:]}"


@lru_cache(maxsize=65536)
def answer_form(text: str) -> str:
    """Return the form that compares answers with one another; scores do not read it.

    Case, composition (NFKC), punctuation of any script, white space, characters without width and the words
    a, an and the do not count; combining marks do. Kept is what tells answers apart: a sign before a number,
    punctuation between two digits, ``+`` and ``#`` behind letters. An answer that is one number counts as
    this number, read as in English (1,000 is a thousand, 3.50 is 3.5). The choice "A" is no article.

    >>> answer_form("The Tempest."), answer_form("(A)"), answer_form("C++"), answer_form("?")
    ('tempest', 'a', 'c++', '')
    >>> answer_form("−5"), answer_form("$3.50"), answer_form("1,000"), answer_form("1914–1918")
    ('-5', '3.5', '1000', '1914-1918')
    """
    folded = text.lower() if text.isascii() else _folded(text)
    bare = folded.translate(_DELETE_PUNCTUATION)
    if len(bare) < len(folded) and _TELLING.search(folded):
        plain = folded.strip()
        if "," in plain or "'" in plain:
            plain = _THOUSANDS.sub(lambda found: re.sub("[,']", "", found[0]), plain)
        if number := _number(plain.strip("$")):
            return number
        bare = _MARKS.sub(_telling, _SPACED.sub(r"\1", plain))
    words = bare.split()
    form = " ".join([word for word in words if word not in _ARTICLE_WORDS])
    if form[:1] in _BEGIN_NUMBERS and (form[0] == "0" or not form.isdigit()):
        return _number(form) or form
    return form if form or words != ["a"] else "a"


_MLQA_ARTICLES: Mapping[str, str] = MappingProxyType(
    {
        "en": r"\b(a|an|the)\b",
        "es": r"\b(un|una|unos|unas|el|la|los|las)\b",
        "de": r"\b(ein|eine|einen|einem|eines|einer|der|die|das|den|dem|des)\b",
        "vi": r"\b(của|là|cái|chiếc|những)\b",
        "ar": "ال",
        "hi": "(?!)",
        "zh": "(?!)",
    }
)


def mlqa_language(told: str | None, where: str = "") -> str:
    """Return a question's type, checked to be a language of MLQA."""
    if told is None or told not in _MLQA_ARTICLES:
        raise UsageError(
            f"MLQA's scores need the language of every question as its question_type, one of "
            f"{', '.join(_MLQA_ARTICLES)}; found {told!r}{where}; write it with suffice traces label"
        )
    return told


@lru_cache(maxsize=65536)
def mlqa_form(text: str) -> str:
    """Normalize as MLQA's official script does; the text stands behind two letters for its language.

    Lower case, no punctuation of any script, no articles of the language, white space squeezed; each Chinese
    character of a Chinese text is a word.

    >>> mlqa_form("deDer Rhein!"), mlqa_form("zh东京。")
    ('rhein', '东 京')
    """
    language, text = text[:2], text[2:].lower().translate(_DELETE_PUNCTUATION)
    bare = "".join(char for char in text if unicodedata.category(char)[0] != "P")
    bare = re.sub(_MLQA_ARTICLES[language], " ", bare)
    if language == "zh":
        bare = re.sub("[\u4e00-\u9fa5]", r" \g<0> ", bare)
    return " ".join(bare.split())


Form = Callable[[str], str]


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


def _best(
    prediction: str,
    gold_answers: Iterable[str],
    score: Callable[[str, str], float],
    form: Form = normalize_answer,
) -> float:
    predicted = form(prediction)
    return max((score(predicted, form(gold)) for gold in gold_answers), default=0.0)


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

    name: MetricName
    score: ScoreName
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
            return _OF_SCORES[score]
        if self.mlqa:
            return f"MLQA {_LABELS[score]}"
        return _LABELS[score] if self.gold else f"agr. {_LABELS[score]}"

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
        if self.gold:
            return f"{score}-mlqa" if self.mlqa else score
        if self.against == "scores":
            return _OF_SCORES[score].replace(" ", "_").replace(">", "above")
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
        own = self.against == "scores" or self.mlqa
        return kind if not own and "f1" in (self.score, self.beside) else None

    def of(self, score: ScoreName, answer: str, gold: Iterable[str], language: str = "") -> float:
        """Return a score of one answer, as columns of answers are scored."""
        if not (self.mlqa or self.agreement):
            return SCORES[score](answer, gold)
        form: Form = answer_form
        if self.mlqa:
            answer, *gold = (f"{mlqa_language(language)}{text}" for text in (answer, *gold))
            form = mlqa_form
        elif _best(answer, gold, _equal, form):  # even if both are empty
            return 1.0
        pair = {"em": _equal, "f1": token_f1 if self.mlqa else _hotpotqa_f1, "acc": _contained}
        return _best(answer, gold, pair[score], form)


_LABELS: Mapping[ScoreName, str] = MappingProxyType({"em": "EM", "f1": "F1", "acc": "Acc"})
_OF_SCORES: Mapping[ScoreName, str] = MappingProxyType(
    {"em": "score 1", "f1": "score", "acc": "score > 0"}
)
METRICS: Mapping[MetricName, Metric] = MappingProxyType(
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
    """Return the metric that a policy file states; an unknown one counts as agreement."""
    known = [metric for metric in METRICS.values() if metric.name == stated]
    return known[0] if known else METRICS["agreement"]


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
