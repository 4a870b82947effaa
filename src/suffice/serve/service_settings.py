"""Settings of the service: one TOML file, whose keys are also options of ``suffice serve``."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeVar, get_args, get_type_hints

from suffice.errors import DataError, UsageError, unknown_name
from suffice.foreign import check_url, read_toml
from suffice.options import Option, as_share
from suffice.trace.engines import Address, as_place, named_address

_Settings = TypeVar("_Settings")

Corpus = Annotated[
    str | None, Option(help="folder or file to search: txt, md and jsonl", metavar="PATH")
]


class _Table:
    __slots__ = ()
    __pydantic_config__: ClassVar[Mapping[str, str]] = {"extra": "forbid"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSettings(_Table):
    """The model that answers: the table ``[model]``, and options of ``suffice ask``."""

    llm: Annotated[
        str,
        Option(
            help="base URL of an OpenAI-compatible server, 'embedded' (a small model in this process) or "
            "'scripted' (a deterministic stand-in)",
            metavar="URL",
        ),
    ] = "embedded"
    model: Annotated[
        str | None, Option(help="the server's model name; for 'embedded', a GGUF file", metavar="M")
    ] = None
    api: Annotated[Literal["chat", "completion"], Option(help="endpoint of the server")] = "chat"
    timeout: Annotated[float, Option(help="most seconds a call", metavar="S")] = 60.0
    max_wait: Annotated[
        float, Option(help="most seconds to wait when the server asks for a pause", metavar="S")
    ] = 120.0
    concurrency: Annotated[
        int, Option(help="most simultaneous calls to a server", metavar="N", at_least=1)
    ] = 64
    cache: Annotated[
        str | None,
        Option(help="keep replies in this SQLite file and never ask twice", metavar="FILE"),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RankingSettings(_Table):
    retriever: Annotated[str, Option(help="retriever, as in suffice ask", metavar="X")] = "bm25"
    encoder: Annotated[
        str | None,
        Option(help="minilm, a sentence-transformers model, a server's URL, or none", metavar="E"),
    ] = None
    encoder_model: Annotated[
        str | None, Option(help="the embedding server's model name", metavar="M")
    ] = None
    query_prefix: Annotated[
        str | None, Option(help="text that the encoder puts before a query", metavar="TEXT")
    ] = None
    reranker: Annotated[
        str | None, Option(help="a cross-encoder's folder or a GGUF reranker", metavar="PATH")
    ] = None
    pool: Annotated[
        int | None,
        Option(help="number of passages to rerank (default: 40)", metavar="N", at_least=1),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrievalSettings(RankingSettings):
    """The corpus and its retriever: the table ``[retrieval]``."""

    corpus: Corpus = None
    index: Annotated[
        str | None, Option(help="keep the index of the corpus here for later runs", metavar="DIR")
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerSettings(_Table):
    """How a question is answered: the table ``[answers]``; ``[answers.loop]`` has the loop's own fields."""

    pipeline: Annotated[str | None, Option(help="loop, as in suffice ask", metavar="NAME")] = None
    samples: Annotated[
        int | None,
        Option(help="sampled answers a round, if the policy reads them", metavar="M", at_least=1),
    ] = None
    seed: Annotated[int, Option(help="of samples", at_least=0)] = 42
    answer: Annotated[
        str,
        Option(
            help="round whose answer to return",
            metavar="latest|majority|most-confident|highest:NAME|lowest:NAME",
        ),
    ] = "latest"
    decline_below: Annotated[
        float | None,
        Option(
            help="decline to answer if the policy's confidence is below C or undefined",
            metavar="C",
            parse=as_share,
        ),
    ] = None
    loop: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceSettings(_Table):
    price_model: Annotated[
        str | None, Option(help="model to price tokens by, from genai-prices", metavar="M")
    ] = None
    prices: Annotated[
        str | None,
        Option(
            help="USD per million tokens, as in input=0.15,cached=0.075,output=0.60; also call=, retrieval=, "
            "rerank= in USD each",
            metavar="RATES",
        ),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetSettings(PriceSettings):
    """Budgets of a question, and prices: the table ``[budgets]``."""

    rounds: Annotated[
        int | None, Option(name="budget_rounds", help="most rounds", metavar="N", at_least=1)
    ] = None
    tokens: Annotated[
        int | None, Option(name="budget_tokens", help="most tokens", metavar="N", at_least=1)
    ] = None
    seconds: Annotated[
        float | None,
        Option(name="budget_seconds", help="start no round after S seconds", metavar="S"),
    ] = None
    usd: Annotated[
        float | None, Option(name="budget_usd", help="most US dollars, by prices", metavar="U")
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedBudgets(BudgetSettings):
    usd_per_day: Annotated[
        float | None,
        Option(name="budget_usd_per_day", help="most US dollars of --record in 24 h", metavar="U"),
    ] = None
    hard: Annotated[
        bool, Option(name="budget_hard", help="begin no round once those of 24 h are spent")
    ] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordSettings(_Table):
    """Where questions are recorded: the table ``[record]``."""

    folder: Annotated[
        str | None,
        Option(
            name="record",
            help="record every question here, as suffice replay, monitor and view read it: a folder or a "
            "FILE.db. Several machines share postgresql://USER@HOST/DATABASE.",
            metavar="DIR",
        ),
    ] = None
    explore: Annotated[
        float,
        Option(
            help="share of questions that run to the full budget, from 0 to below 1; they measure what "
            "stopping costs",
            metavar="SHARE",
            parse=as_share,
        ),
    ] = 0.0
    texts: Annotated[
        Literal["all", "no-texts"],
        Option(name="record-texts", help="texts to record: all, or numbers in their place"),
    ] = "all"

    def __post_init__(self) -> None:
        if self.folder is not None and isinstance(place := as_place(self.folder), Address):
            object.__setattr__(self, "folder", str(place))  # without its password


@dataclass(frozen=True, slots=True, kw_only=True)
class SecuritySettings(_Table):
    """Who may ask, and limits of connections: the table ``[security]``."""

    tokens: Annotated[
        str | None,
        Option(
            help="file with a line NAME SHA256 a bearer token. Without tokens only this machine may ask.",
            metavar="FILE",
        ),
    ] = None
    allow_unauthenticated: Annotated[
        bool, Option(help="serve everyone who reaches the address, without a token")
    ] = False
    hosts: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()
    connections: int = 1024
    head_seconds: float = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationSettings(_Table):
    """The access log, spans and shutdown: the table ``[operation]``."""

    log: Annotated[
        bool, Option(name="access-log", help="log each request on standard error, without texts")
    ] = False
    otel: Annotated[
        bool,
        Option(help="send spans to the OpenTelemetry collector of OTEL_EXPORTER_OTLP_ENDPOINT"),
    ] = False
    otel_texts: bool = False
    end_seconds: float = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchSettings(_Table):
    """How policies are watched over the record: the table ``[watch]``."""

    seconds: float = 60.0
    webhook: str | None = None
    level: float = 0.05
    first: int = 200
    metric: str | None = None
    max_loss: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitSettings(_Table):
    """Limits of requests: the table ``[limits]``; ``labels_per_minute`` is for all clients, 0: no limit."""

    questions: Annotated[
        int, Option(help="most questions answered at once", metavar="N", at_least=1)
    ] = 64
    queue: Annotated[
        int, Option(help="most questions that wait beyond those; more get 429", at_least=0)
    ] = 256
    seconds: Annotated[
        float,
        Option(name="request_timeout", help="most seconds a request, with waiting", metavar="S"),
    ] = 120.0
    question_letters: int = 4_000
    turns: int = 6
    body_bytes: int = 1 << 20
    loop_bytes: int = 1 << 23
    labels_per_minute: float = 1_000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopSettings(_Table):
    """Limits and mode of clients' loops: the table ``[loops]``."""

    mode: Literal["live", "shadow"] = "live"
    under_way: int = 1_000
    idle_s: float = 900.0
    rounds: int = 1_000
    remembered: int = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeSettings(_Table):
    host: Annotated[str, Option(help="address to listen at", metavar="HOST")] = "127.0.0.1"
    port: Annotated[int, Option(help="port to listen at; 0: any free one", at_least=0)] = 8642
    policies: Mapping[str, str] = field(default_factory=dict)
    model: ModelSettings = field(default_factory=ModelSettings)
    retrieval: RetrievalSettings = field(default_factory=RetrievalSettings)
    answers: AnswerSettings = field(default_factory=AnswerSettings)
    budgets: ServedBudgets = field(default_factory=ServedBudgets)
    record: RecordSettings = field(default_factory=RecordSettings)
    limits: LimitSettings = field(default_factory=LimitSettings)
    loops: LoopSettings = field(default_factory=LoopSettings)
    security: SecuritySettings = field(default_factory=SecuritySettings)
    operation: OperationSettings = field(default_factory=OperationSettings)
    watch: WatchSettings = field(default_factory=WatchSettings)


def load_settings(file: str | Path, given: Mapping[str, Any] | None = None) -> ServeSettings:
    """Read settings from a TOML file, then replace those ``given``; missing keys keep their defaults."""
    file, given = Path(file), given or {}
    from pydantic import TypeAdapter, ValidationError

    try:
        content = json.dumps(read_toml(file), default=str)  # of dates, which no setting is
    except OSError as error:
        raise UsageError(f"cannot read the settings {file}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise DataError(f"no TOML: {getattr(error, 'message', error)}", file=str(file)) from error
    try:
        settings = TypeAdapter(ServeSettings).validate_json(content, strict=True)
    except ValidationError as error:
        wrong = error.errors()[0]
        *tables, name = map(str, wrong["loc"])
        if wrong["type"] == "unexpected_keyword_argument":
            kind = get_type_hints(ServeSettings).get(tables[0], Any) if tables else ServeSettings
            known = [own.name for own in fields(kind)]
            said = unknown_name(f"key in [{tables[0]}]" if tables else "key", name, known)
        else:
            said = f"{'.'.join([*tables, name])}: {wrong['msg']}, found {wrong['input']!r:.80}"
        raise DataError(said, file=str(file)) from error
    _check_least(settings, str(file))
    _check_named(settings, given, file)
    return with_given(settings, given)


def _check_named(settings: ServeSettings, given: Mapping[str, Any], file: Path) -> None:
    """Refuse what a file may not name and the command line does not: modules, and hosts that get keys."""
    retrieval, record = settings.retrieval, as_place(settings.record.folder or ".")
    if "retriever" not in given and retrieval.retriever.startswith("python:"):
        typed = f"--retriever {retrieval.retriever:.100}"
        raise DataError(f"names a module, which would run; type it: {typed}", file=str(file))
    has_keys = any(name.startswith("OPENAI_") for name in os.environ)
    for option, url in (("llm", settings.model.llm), ("encoder", retrieval.encoder or "")):
        if option not in given and has_keys and url.startswith(("http://", "https://")):
            check_url(url, file)
    if "record" not in given and isinstance(record, Address):
        named_address(record, file)


def with_given(settings: _Settings, given: Mapping[str, Any]) -> _Settings:
    """Replace the settings that the command line gives, by the options' names."""
    changed: dict[str, Any] = {}
    for name, value, option in _options(settings):
        if option is None:
            changed[name] = with_given(value, given)
        else:
            told = given.get((option.name or name).replace("-", "_"))
            changed[name] = value if told is None else told
    return replace(settings, **changed)  # type: ignore[type-var]


def _check_least(settings: Any, file: str, table: str = "") -> None:
    for name, value, option in _options(settings):
        if option is None:
            _check_least(value, file, f"{name}.")
        elif option.at_least is not None and value is not None and value < option.at_least:
            said = f"{table}{name} must be at least {option.at_least}, found {value}"
            raise DataError(said, file=file)


def _options(settings: Any) -> Iterator[tuple[str, Any, Option | None]]:
    hints = get_type_hints(type(settings), include_extras=True)
    for own in fields(settings):
        value, extras = getattr(settings, own.name), get_args(hints[own.name])[1:]
        option = next((extra for extra in extras if isinstance(extra, Option)), None)
        if option is not None or is_dataclass(value):
            yield own.name, value, option
