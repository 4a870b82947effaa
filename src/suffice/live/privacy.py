"""Privacy of a record: keep texts, keep numbers only, or replace texts by keyed hashes."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args

from suffice.errors import DataError, StorageError, UsageError, struck, without_credentials
from suffice.scoring import SCORES, answer_form
from suffice.signals.known_signals import computed_signals
from suffice.signals.signal_table import GrowingRecord, signal_columns
from suffice.trace.durable import check_free
from suffice.trace.rounds.derive import Written
from suffice.trace.rounds.reader import read_traces
from suffice.trace.rounds.records import Gold, LoopView, Passage, Question, QuestionRecord, Round
from suffice.trace.rounds.schema import COLUMNS
from suffice.trace.rounds.trace_set import TraceSet
from suffice.trace.rounds.writer import write_new
from suffice.trace.store import Store, store_at

Texts = Literal["all", "no-texts"]
Redacted = Literal["no-texts", "hashes"]
_Kind = Literal["answer", "query", "passage"]
_HASH_DIGITS = 32  # of 4 bits


# parts of a round that hold no texts
_NUMBERS = ("sample_clusters", "verbalized_confidence", "candidate_scores", "signals")
_STAYS = (*_NUMBERS, "usage", "probed", "time")
_STRUCK = "[struck]"
# words of bounded length, so that a long text takes time in its letters
_CREDENTIAL = (
    r"\w{0,40}(?:api[-_ ]?key|token|secret|password|passphrase)|sig|signature|passwd|pwd|auth(?:orization)?"
    "|credentials?"
)
_SECRET_NAME = re.compile(rf"(?:[\w.-]{{0,60}}[-_.])?(?:{_CREDENTIAL}|key)\d*", re.IGNORECASE)
_TELLS = re.compile(
    rf"((?:\b(?:{_CREDENTIAL})[\"']?\s{{0,9}}[=:]|(?<![\w-])--[\w-]{{0,40}}(?:{_CREDENTIAL}|key)\b=?)"
    r"[\s\"']{0,9}(?:(?:bearer|basic|token)\s{1,9})?)[^\s\"']*",
    re.IGNORECASE,
)
_URL = re.compile(
    r"((?:\w{1,30}:){0,3}(?!file:)[a-z][a-z0-9+.-]{0,30}://[^\s?#\"'<>]*)\S*", re.IGNORECASE
)
_ENDINGS = (
    "jsonl?|parquet|csv|tsv|txt|md|db|gguf|bin|safetensors|onnx|py|toml|ya?ml|key|pem|log|html?"
)
# no path, but for a model's OWNER/NAME
_PLAIN = re.compile(rf"[^/\\~]*|\w[\w.-]*/(?![\w.-]*\.(?:{_ENDINGS})\Z)\w[\w.-]*", re.IGNORECASE)


def without_secrets(value: Any, *, paths: bool = True, secret: object = False) -> Any:
    """Return a run document without keys, users, passwords and queries of URLs; file ``paths`` may stay.

    All texts of a value are ``secret`` whose name says so, or the text before it in a list of two.
    """
    below = partial(without_secrets, paths=paths)
    if isinstance(value, Mapping):
        named = {str(name): held for name, held in value.items()}.items()
        told = ((name, held, secret or _SECRET_NAME.fullmatch(name)) for name, held in named)
        return {
            _plain(name, paths=paths): hashlib.sha256(held.encode()).hexdigest()[:12]
            if not paths and name == "prompt" and isinstance(held, str) and len(held.split()) > 1
            else below(held, secret=tells)  # a prompt's digest tells loops apart
            for name, held, tells in told
        }
    if isinstance(value, list | tuple):
        pair = len(value) == 2 and _SECRET_NAME.fullmatch(str(value[0]))
        return [below(held, secret=secret or (pair and at)) for at, held in enumerate(value)]
    if not isinstance(value, str):
        return value
    return _STRUCK if secret and value else _plain(value, paths=paths)


def _plain(text: str, *, paths: bool) -> str:
    text = without_credentials(text)
    if url := _URL.fullmatch(text):
        return struck(url[1])
    if paths:
        return _TELLS.sub(rf"\1{_STRUCK}", struck(text))
    return struck(text) if _PLAIN.fullmatch(text) and not _TELLS.search(text) else _STRUCK


@dataclass(frozen=True, slots=True)
class Privacy:
    """The setting of recorded texts; ``key`` is the key of hashes."""

    texts: Redacted
    key: bytes = field(default=b"", repr=False)

    @classmethod
    def of(cls, texts: str, place: Path | None) -> Privacy | None:
        """Return the setting of a live record; ``None``: all texts are kept."""
        if texts not in get_args(Texts):
            raise UsageError(
                f"texts are kept as {' or '.join(get_args(Texts))}; found {texts!r:.60}. For hashes type "
                "suffice traces redact"
            )
        before = None if place is None else _texts_of(place)
        if before not in (None, texts):
            raise UsageError(
                f"{place} was recorded with texts={before!r}; a record has one setting, else its texts and "
                f"answers could not be compared; record with texts={before!r}, or into another folder"
            )
        return None if texts == "all" else cls("no-texts")

    def question(self, question: Question, gold: Gold) -> Veiled:
        return Veiled(self, question, gold)

    def hashed(self, text: str) -> str:
        """Return a keyed hash of a text, as one word."""
        content = text.encode("utf-8", "surrogatepass")
        return f"h{hmac.new(self.key, content, hashlib.sha256).hexdigest()[:_HASH_DIGITS]}"


def _texts_of(folder: Path) -> str | None:
    file = store_at(folder)
    with suppress(StorageError):  # told where rounds are written
        documents = [] if file is None else Store(file).run_documents()
        for document in reversed(documents):
            return str((document.get("watch") or {}).get("texts", "all"))
    return None


class Veiled:
    """A question and its rounds as the record keeps them."""

    def __init__(self, privacy: Privacy, question: Question, gold: Gold) -> None:
        self._privacy = privacy
        self._numbers: dict[_Kind, dict[str, int]] = defaultdict(dict)
        self._record = GrowingRecord(LoopView("", ()), computed_signals())
        hashes = privacy.texts == "hashes"
        text = privacy.hashed(question.text) if hashes else f"question {question.id}"
        # a group is compared over the whole record, so it needs the key
        group = privacy.hashed(question.group) if question.group and privacy.key else question.group
        self.question: Question = replace(question, text=text, group=group)
        self.gold: Gold = Gold(
            answers=tuple(self._answer(answer) for answer in gold.answers) if hashes else (),
            passage_ids=tuple(self._name("passage", name) for name in gold.passage_ids),
        )

    def round(self, view: LoopView) -> Round:
        """Return the last round of a view, with all its signals."""
        self._record.see(view)
        named = self.named(view.current)
        computed = {spec.name: self._record.value(spec) for spec in self._record.specs}
        return replace(named, signals={**computed, **named.signals})

    def named(self, held: Round) -> Round:
        """Return a round with names in place of its texts; fields outside the table are dropped."""
        return Round(
            **{
                part.name: getattr(held, part.name) for part in fields(Round) if part.name in _STAYS
            },
            answer=self._of(self._answer, held.answer),
            passages=self._passages(held.passages),
            refound=self._passages(held.refound),
            query=self._of(partial(self._name, "query"), held.query),
            action=self._of(self._text, held.action),
            response=self._of(self._text, held.response),
            samples=None if held.samples is None else tuple(map(self._answer, held.samples)),
            intermediate_answer=self._of(self._answer, held.intermediate_answer),
            parse_failure=self._of(self._text, held.parse_failure),
        )

    def _name(self, kind: _Kind, text: str) -> str:
        if self._privacy.texts == "hashes":
            return self._privacy.hashed(text)
        numbers = self._numbers[kind]
        return f"{kind}{numbers.setdefault(text, len(numbers) + 1)}"

    @staticmethod
    def _of(name: Callable[[str], str | None], text: str | None) -> str | None:
        return text if not text else name(text)

    def _answer(self, text: str) -> str:
        return self._name("answer", answer_form(text)) if text else text

    def _text(self, text: str) -> str | None:
        """Return a text's hash, or nothing for uncompared texts without hashes."""
        return self._privacy.hashed(text) if self._privacy.texts == "hashes" else None

    def _passages(self, passages: tuple[Passage, ...] | None) -> tuple[Passage, ...] | None:
        if passages is None:
            return None
        return tuple(
            replace(
                passage,
                id=self._name("passage", passage.id),
                text=self._of(self._text, passage.text),
                title=self._of(self._text, passage.title) or "",
            )
            for passage in passages
        )


RedactedScore = Literal["f1", "em", "acc"]


def redact_traces(
    source: str | Path,
    out: str | Path,
    *,
    texts: Redacted = "hashes",
    score: RedactedScore = "f1",
    skip_invalid: bool = False,
) -> Written:
    """Write a record again without its texts: names or hashes in their place, all signals stored.

    Signals, scores and costs are the same on the copy, with ``metric="score"``. Methods that read texts or
    tokens (Stop-RAG's network on text, signals that ask a model) need the original record. ``source``,
    ``out`` and ``skip_invalid`` as for :func:`suffice.trace.rounds.derive.split_traces`.

    ``texts`` ``hashes``: equal texts have equal names over the whole copy, by a key that is thrown away;
    ``no-texts``: within a question only, and no gold answers, so that ``score`` alone is left of them.
    ``score`` is the metric of an answer against its gold answers, for the column of that name if the record
    has no score of its own.
    """
    if texts not in get_args(Redacted) or score not in SCORES:
        raise UsageError(
            "texts is 'no-texts' or 'hashes', score 'f1', 'em' or 'acc'; "
            f"found {texts!r:.40}, {score!r:.40}"
        )
    check_free(Path(out))
    traces = read_traces(source, skip_invalid=skip_invalid)
    if not traces.n_questions:
        raise DataError("holds no question", file=str(source))
    privacy = Privacy(texts, secrets.token_bytes(32))
    run = without_secrets(traces.origin.run, paths=False)
    done = run.get("derived")
    step = {"by": "redact", "from": Path(source).name, "texts": texts, "score": score}
    run["derived"] = [*(done if isinstance(done, list) else []), step]
    write_new(_redacted(traces, privacy, score), Path(out), run)
    own = sorted(set(traces.table.column_names) - {column.name for column in COLUMNS})
    lost = f"own columns may hold texts and were left out: {', '.join(own)}"
    return Written.of(traces, out, notes=(lost,) if own else ())


def _redacted(traces: TraceSet, privacy: Privacy, score: RedactedScore) -> Iterator[QuestionRecord]:
    specs = computed_signals()
    columns = signal_columns(traces, specs)
    computed = {spec.name: values for spec, values in zip(specs, columns, strict=True)}
    for number, record in enumerate(traces.records()):
        veiled, rounds = privacy.question(record.question, record.gold), []
        for at, held in enumerate(map(veiled.named, record.rounds)):
            signals = {name: float(values[number, at]) for name, values in computed.items()}
            rounds.append(replace(held, signals={**signals, **held.signals}))
        yield replace(
            record,
            question=veiled.question,
            gold=veiled.gold,
            scores={**_scores(record, score), **record.scores},
            rounds=tuple(rounds),
            closed_book=None if record.closed_book is None else veiled.named(record.closed_book),
        )


def _scores(record: QuestionRecord, score: RedactedScore) -> dict[int, float]:
    gold, rounds = record.gold.answers, enumerate((record.closed_book, *record.rounds))
    answers = {number: held.answer for number, held in rounds if held is not None}
    return {n: SCORES[score](a, gold) for n, a in answers.items() if gold and a is not None}
