"""The rule language: one readable line over signals, parsed and never evaluated as code.

::

    rule     = all {"or" all}
    all      = negation {"and" negation}
    negation = "not" negation | test
    test     = "(" rule ")" | "at_least" "(" whole ("," rule)+ ")" | chain
    chain    = operand {comparison operand}
    operand  = number | signal | "round" | "calibrated" "(" signal ")" | "base_rate" "(" ")" | "coin" "(" ")"
    signal   = name | derived "(" [number "-"] name ")"

``derived`` is a word of :data:`suffice.signals.derived.DERIVATIONS`, as in ``since_lowest(error) >= 3``.
``coin()`` is a number in [0, 1) drawn once for each question, the same live and in replay.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import NoReturn

from suffice.errors import UsageError, did_you_mean

MAX_LENGTH = 10_000
MAX_DEPTH = 50
COMPARISONS = ("<=", ">=", "==", "!=", "<", ">")
_KEYWORDS = frozenset({"and", "or", "not", "round", "calibrated", "base_rate", "at_least", "coin"})
_WHOLE = re.compile(r"[0-9]{1,5}")
_TOKEN = re.compile(
    r"\s*(?:(?P<number>-?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)"
    r"|(?P<name>[A-Za-z_][A-Za-z0-9_]*)"
    r"|(?P<symbol><=|>=|==|!=|<|>|\(|\)|,|-))"
)


@dataclass(frozen=True, slots=True)
class Number:
    """A literal."""

    value: float

    def __str__(self) -> str:
        return repr(self.value).removesuffix(".0")


@dataclass(frozen=True, slots=True)
class SignalRef:
    """A signal's value."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class RoundNumber:
    """The 1-based round."""

    def __str__(self) -> str:
        return "round"


@dataclass(frozen=True, slots=True)
class Calibrated:
    """The fitted map of a signal to P(EM = 1)."""

    name: str

    def __str__(self) -> str:
        return f"calibrated({self.name})"


@dataclass(frozen=True, slots=True)
class BaseRate:
    """The mean EM of the round on the fitting split."""

    def __str__(self) -> str:
        return "base_rate()"


@dataclass(frozen=True, slots=True)
class Coin:
    """A draw of the question's own, in [0, 1)."""

    def __str__(self) -> str:
        return "coin()"


Operand = Number | SignalRef | RoundNumber | Calibrated | BaseRate | Coin


@dataclass(frozen=True, slots=True)
class Truth:
    """A bare signal: true when defined and not 0."""

    signal: SignalRef

    def __str__(self) -> str:
        return str(self.signal)


@dataclass(frozen=True, slots=True)
class Compare:
    """A comparison; false when either side is undefined."""

    left: Operand
    operator: str
    right: Operand

    def __str__(self) -> str:
        return f"{self.left} {self.operator} {self.right}"


@dataclass(frozen=True, slots=True)
class Not:
    """Negation."""

    item: Expression

    def __str__(self) -> str:
        return f"not {_wrapped(self.item, And, Or)}"


@dataclass(frozen=True, slots=True)
class And:
    """All items hold."""

    items: tuple[Expression, ...]

    def __str__(self) -> str:
        return " and ".join(_wrapped(item, Or) for item in self.items)


@dataclass(frozen=True, slots=True)
class Or:
    """Some item holds."""

    items: tuple[Expression, ...]

    def __str__(self) -> str:
        return " or ".join(str(item) for item in self.items)


@dataclass(frozen=True, slots=True)
class AtLeast:
    """At least ``count`` of the items hold."""

    count: int
    items: tuple[Expression, ...]

    def __str__(self) -> str:
        return f"at_least({', '.join([str(self.count), *map(str, self.items)])})"


Expression = Truth | Compare | Not | And | Or | AtLeast


def _wrapped(item: Expression, *looser: type) -> str:
    return f"({item})" if isinstance(item, looser) else str(item)


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    position: int


_MEANT = {
    "=>": ">=",
    "=<": "<=",
    "=": "==",
    "&": "and",
    "|": "or",
    "!": "not",
    "\N{GREATER-THAN OR EQUAL TO}": ">=",
    "\N{LESS-THAN OR EQUAL TO}": "<=",
    "\N{NOT EQUAL TO}": "!=",
}
"""Signs of other languages."""


def _meant_symbol(found: str) -> str:
    """What a sign that no rule has stands for elsewhere, to end a refusal with."""
    meant = _MEANT.get(found) or _MEANT.get(found[:1])
    if found[:1] == "?":
        return "; a number to be found is for: suffice sweep TRACES --rule RULE"
    return "" if meant is None else f"; did you mean {meant!r}?"


def _tokenize(text: str) -> list[_Token]:
    tokens: list[_Token] = []
    position, end = 0, len(text.rstrip())
    while position < end:
        match = _TOKEN.match(text, position)
        if match is None or match.end() > len(text):
            start = position + len(text[position:]) - len(text[position:].lstrip())
            raise UsageError(
                f"rule {text!r}: unexpected {text[start]!r} at character {start + 1}"
                f"{_meant_symbol(text[start : start + 2])}"
            )
        kind = str(match.lastgroup)
        tokens.append(_Token(kind, match.group(kind), match.start(kind)))
        position = match.end()
    return tokens


def parse(text: str) -> Expression:
    """The rule's tree."""
    if len(text) > MAX_LENGTH:
        raise UsageError(f"a rule may have {MAX_LENGTH} characters, this one has {len(text)}")
    parser = _Parser(text, _tokenize(text))
    expression = parser.rule()
    parser.expect_end()
    return expression


def _joined(kind: type[And] | type[Or], items: list[Expression]) -> Expression:
    """One item as it is; several flattened, so that parentheses that change nothing leave no trace."""
    if len(items) == 1:
        return items[0]
    flat = [
        inner for item in items for inner in (item.items if isinstance(item, kind) else (item,))
    ]
    return kind(tuple(flat))


class _Parser:
    def __init__(self, text: str, tokens: list[_Token]) -> None:
        self._text = text
        self._tokens = tokens
        self._next = 0
        self._depth = 0

    def _peek(self) -> _Token | None:
        return self._tokens[self._next] if self._next < len(self._tokens) else None

    def _at(self, *texts: str) -> bool:
        token = self._peek()
        return token is not None and token.text in texts

    def _take(self) -> _Token:
        token = self._tokens[self._next]
        self._next += 1
        return token

    def _fail(self, expected: str) -> NoReturn:
        token = self._peek()
        read = "the end" if token is None else f"{token.text!r} at character {token.position + 1}"
        opened = sum(t.text == "(" for t in self._tokens) - sum(t.text == ")" for t in self._tokens)
        balance = ""
        if opened:
            balance = f" ({abs(opened)} {'unclosed (' if opened > 0 else 'unopened )'})"
        raise UsageError(
            f"rule {self._text!r}: expected {expected}, found {read}{balance}{self._meant_word()}"
        )

    def _meant_word(self) -> str:
        """A keyword in capitals, or a misspelt function, at the place or before it."""
        token = self._peek()
        around = [self._tokens[self._next - 1]] if self._next else []
        called = token is not None and token.text == "("
        for near in [*around, *([] if token is None else [token])]:
            if near.kind != "name" or near.text in _KEYWORDS:
                continue
            if near.text.lower() in ("and", "or", "not"):
                return f"; did you mean {near.text.lower()!r}?"
            if called and near in around:
                from suffice.signals.derived import DERIVATIONS

                return did_you_mean(
                    near.text, ("calibrated", "base_rate", "at_least", "coin", *DERIVATIONS)
                )
        return ""

    def _expect(self, symbol: str) -> None:
        if not self._at(symbol):
            self._fail(repr(symbol))
        self._take()

    def expect_end(self) -> None:
        if self._peek() is not None:
            self._fail("'and', 'or' or the end")

    def rule(self) -> Expression:
        self._deeper()
        items = [self._all()]
        while self._at("or"):
            self._take()
            items.append(self._all())
        self._depth -= 1
        return _joined(Or, items)

    def _all(self) -> Expression:
        items = [self._negation()]
        while self._at("and"):
            self._take()
            items.append(self._negation())
        return _joined(And, items)

    def _negation(self) -> Expression:
        negations = 0
        while self._at("not"):
            self._take()
            self._deeper()
            negations += 1
        expression = self._test()
        for _ in range(negations):
            expression = Not(expression)
        self._depth -= negations
        return expression

    def _deeper(self) -> None:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise UsageError(f"rule {self._text[:60]!r}...: nested deeper than {MAX_DEPTH}")

    def _test(self) -> Expression:
        if self._at("("):
            self._take()
            inside = self.rule()
            self._expect(")")
            return inside
        if self._at("at_least"):
            return self._at_least()
        return self._chain()

    def _at_least(self) -> Expression:
        self._take()
        self._expect("(")
        token = self._peek()
        if token is None or not _WHOLE.fullmatch(token.text):
            self._fail("a whole number below 100000, as in at_least(2, a, b, c)")
        count = int(self._take().text)
        items: list[Expression] = []
        while self._at(","):
            self._take()
            items.append(self.rule())
        self._expect(")")
        if not 1 <= count <= len(items):
            raise UsageError(
                f"rule {self._text!r}: at_least({count}, ...) over {len(items)} conditions; "
                f"the number must be from 1 to the number of conditions"
            )
        return AtLeast(count, tuple(items))

    def _chain(self) -> Expression:
        left = self._operand()
        comparisons: list[Expression] = []
        while self._at(*COMPARISONS):
            operator = self._take().text
            right = self._operand()
            comparisons.append(Compare(left, operator, right))
            left = right
        if not comparisons:
            if isinstance(left, SignalRef):
                return Truth(left)
            self._fail(f"a comparison after {left}, as in {left} > 0.25")
        return _joined(And, comparisons)

    def _operand(self) -> Operand:
        token = self._peek()
        if (
            token is None
            or token.kind == "symbol"
            or token.text in ("and", "or", "not", "at_least")
        ):
            self._fail("a signal, a number, round, calibrated(signal), base_rate() or coin()")
        self._take()
        if token.kind == "number":
            return self._number(token)
        if token.text == "round":
            return RoundNumber()
        if token.text in ("base_rate", "coin"):
            self._expect("(")
            self._expect(")")
            return BaseRate() if token.text == "base_rate" else Coin()
        if token.text == "calibrated":
            return self._calibrated()
        return SignalRef(self._signal(token))

    def _signal(self, token: _Token) -> str:
        """The name of a signal that begins with the word just taken, of one made of another with it."""
        if not self._at("("):
            return token.text
        from suffice.signals.derived import DERIVATIONS, DerivedName  # hardly any rule has one

        if token.text not in DERIVATIONS:
            return token.text
        self._take()
        top = None
        inner = self._peek()
        if inner is not None and inner.kind == "number":
            top = self._number(self._take()).value
            self._expect("-")
        of = self._name_of_signal()
        self._expect(")")
        return str(DerivedName(token.text, of.text, top))

    def _name_of_signal(self) -> _Token:
        token = self._peek()
        if token is None or token.kind != "name" or token.text in _KEYWORDS:
            self._fail("the name of a signal")
        return self._take()

    def _number(self, token: _Token) -> Number:
        value = float(token.text)
        if math.isinf(value):
            raise UsageError(
                f"rule {self._text[:60]!r}: the number at character {token.position + 1} is too large"
            )
        return Number(value)

    def _calibrated(self) -> Operand:
        self._expect("(")
        name = self._signal(self._name_of_signal())
        self._expect(")")
        return Calibrated(name)
