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
# tokens and keys that are no secrets; they tell loops apart
_HARMLESS = "eos bos pad unk sep cls mask stop special answer first new max prompt primary sort score passage"
_NOT = "".join(rf"(?<!(?<![a-z]){word}{by})" for word in _HARMLESS.split() for by in ("", "[-_.]"))
# words of bounded length, so that a long text takes time in its letters
_CREDENTIAL = (
    r"(?:\w{0,40}(?:(?:api|account|access|private)[-_ ]?key|secret|pass(?:word|phrase|code)|dbpass|sess"
    rf"(?:ion)?[-_]?id|(?=token|key){_NOT}(?:token|(?<=[_-])key|(?-i:(?<=[a-z])Key)))|sig|signature|passwd|pwd?"
    "|jwt|auth(?:orization)?|cookies?|bearer|credentials?)(?:[-_]?(?:[0-9]{1,9}|old|new|dev|test|prod))?"
)
_SECRET_NAME = re.compile(rf"(?i)(?:[\w.-]{{0,60}}[-_.])?(?:{_CREDENTIAL}s?|{_NOT}(?:pass|key)\d*)")
# a header's value ends with its line; a colon and an article are prose
_TELLS = re.compile(
    rf"(?i)((?:(?P<line>\b(?:authorization|cookies?)\\{{0,3}}[\"']?\s{{0,9}}:)"
    rf"|\b(?:{_CREDENTIAL}\\{{0,3}}[\"']?\s{{0,9}}[=:]{{1,2}}+>?+|pass=)"
    rf"|(?<![\w-])--[\w-]{{0,40}}(?:{_CREDENTIAL}|{_NOT}(?:key|pass))(?![\w-])=?+)"
    r"(?!(?<=:)\s{1,9}(?:an?|the)\s)\s{0,9}(?:(?:bearer|basic|token)\s{1,9})?(?:\"\"|''){0,4})(?:\\{1,3}[\"']"
    r"[^\"']+[\"']?|\"(?:\\[\s\S]|[^\"\\])+\"?|'(?:\\[\s\S]|[^'\\])+'?|(?(line)[^\r\n]+|[^\s\"']+))"
)
_URL = re.compile(r"(?i)((?:\w{1,30}:){0,3}(?!file:)[a-z][a-z0-9+.-]{0,30}://[^\s?#\"'<>]*)\S*")
_ENDINGS = (
    "jsonl?|parquet|csv|tsv|txt|md|db|gguf|bin|safetensors|onnx|py|toml|ya?ml|key|pem|log|html?"
)
# no path, but for a model's OWNER/NAME
_PLAIN = re.compile(rf"[^/\\~]*|\w[\w.-]*/(?![\w.-]*\.(?:{_ENDINGS})\Z)\w[\w.-]*", re.IGNORECASE)


def without_secrets(value: Any, *, paths: bool = True, secret: str = "") -> Any:
    """Return a run document without keys, users, passwords and queries of URLs; file ``paths`` may stay.

    All texts of a value are ``secret`` (a name) if its name, or the text before or beside it, says so.
    """
    below = partial(without_secrets, paths=paths)
    if isinstance(value, Mapping):
        named = {str(name): held for name, held in value.items()}
        beside = next(filter(None, map(_secret_name, named.values())), "")
        said = dict.fromkeys(("value", "val", "content"), beside)
        return {
            _plain(name, paths=paths): hashlib.sha256(held.encode()).hexdigest()[:12]
            if not paths and name == "prompt" and isinstance(held, str) and len(held.split()) > 1
            else below(held, secret=_secret_name(said.get(name.lower(), name)) or secret)
            for name, held in named.items()  # a prompt's digest tells loops apart
        }
    if isinstance(value, list | tuple):
        pairs = zip(map(_secret_name, ("", *value)), value, strict=False)
        return [below(held, secret=name or secret) for name, held in pairs]
    if isinstance(value, str):
        return _STRUCK if secret and value else _plain(value, paths=paths)
    return _STRUCK if type(value) in (int, float) and re.search("(?i)pass|pw", secret) else value


def _secret_name(text: object) -> str:
    return text if isinstance(text, str) and _SECRET_NAME.fullmatch(text.strip(" :=")) else ""


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
