"""Bodies by name: read, and described as OpenAPI 3.1, by the one dataclass that says what they hold."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass
from datetime import datetime
from enum import StrEnum
from functools import cache
from inspect import getdoc
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints
from weakref import WeakKeyDictionary

from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import BaseRoute, Route

from suffice._version import VERSION
from suffice.results.markup import element
from suffice.trace.rounds.schema import COLUMNS
from suffice.web.replies import Refusal

Schema = Mapping[str, Any]
_Body = TypeVar("_Body")
_Handler = TypeVar("_Handler", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class As:
    """In ``Annotated``: described as a field of another class, of the same name where none is given."""

    kind: type
    name: str = ""


@dataclass(frozen=True, slots=True)
class Shape:
    """In ``Annotated``: a schema for what no type says."""

    schema: Schema


# --- reading ---------------------------------------------------------------------------------------
def read_body(kind: Callable[..., _Body], document: Mapping[str, Any]) -> _Body:
    """The dataclass that a JSON object stands for; a field that does not fit is refused by its name."""
    parts: Mapping[str, _Part] = _parts_of(kind)
    for name, value in document.items():
        if name not in parts:
            allowed = ", ".join(parts)
            raise Refusal(400, f"unknown field {name!r:.60}; allowed: {allowed}", param=name[:60])
        if not _fits(value, parts[name].hint):
            raise Refusal(
                400,
                f"{name} must be {_in_words(parts[name].hint)}, found {value!r:.60}",
                param=name,
            )
    missing = [name for name, part in parts.items() if part.required and name not in document]
    if missing:
        raise Refusal(400, f"{missing[0]} is missing: {parts[missing[0]].said}", param=missing[0])
    return kind(**document)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """A field of a body: its type, what is said of it, and a schema where the type says too little."""

    hint: Any
    required: bool
    default: Any
    said: str
    shape: Schema | None


@cache
def _parts_of(kind: Any) -> Mapping[str, _Part]:
    hints = get_type_hints(kind, include_extras=True)
    return {held.name: _part(kind, held, hints[held.name]) for held in fields(kind)}


def _part(kind: type, held: Field[Any], hint: Any) -> _Part:
    said, shape = said_of(kind, held.name), None
    if get_origin(hint) is Annotated:
        hint, *marks = get_args(hint)
        for mark in marks:
            if isinstance(mark, As):
                said = said_of(mark.kind, mark.name or held.name)
            elif isinstance(mark, Shape):
                shape = mark.schema
    required = held.default is MISSING and held.default_factory is MISSING
    default = None if held.default is MISSING else held.default
    return _Part(hint=hint, required=required, default=default, said=said, shape=shape)


def _fits(value: Any, hint: Any) -> bool:
    if hint is Any:
        return True
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return any(_fits(value, one) for one in inner)
    if origin is Literal:
        return isinstance(value, str) and value in inner
    if origin is tuple:
        return isinstance(value, list) and all(_fits(item, inner[0]) for item in value)
    if origin is not None:
        return isinstance(value, dict)
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    return isinstance(value, hint) and not (hint is int and isinstance(value, bool))


_WORDS = {
    str: "a text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    NoneType: "null",
}


def _in_words(hint: Any) -> str:
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return " or ".join(map(_in_words, inner))
    if origin is Literal:
        return f"one of {', '.join(inner)}"
    if origin is tuple:
        return f"a list, each {_in_words(inner[0])}"
    return _WORDS.get(hint, "an object")


# --- what is said of a field -----------------------------------------------------------------------
_TICKS = re.compile(r"``|:\w+:`([^`]*)`")


@cache
def _said_in(kind: Any) -> Mapping[str, str]:
    """What a docstring's section of parameters says, by name."""
    said: dict[str, list[str]] = {}
    names: list[str] = []
    lines = (getdoc(kind) or "").splitlines()
    start = lines.index("Parameters") + 2 if "Parameters" in lines else len(lines)
    for number, line in enumerate(lines[start:], start):
        if line.startswith(" ") or not line:
            for name in names:
                said[name].append(line.strip())
            continue
        if lines[number + 1 : number + 2] and set(lines[number + 1]) == {"-"}:
            break
        names = [name.strip() for name in line.split(",")]
        said |= {name: [] for name in names}
    return {name: plain(" ".join(texts)) for name, texts in said.items()}


def plain(text: str) -> str:
    """A docstring's text as a reader of a page wants it."""
    return _TICKS.sub(lambda mark: mark[1] or "`", " ".join(text.split()))


@cache
def _columns() -> Mapping[tuple[type, str], str]:
    return {(column.of, column.key): column.meaning for column in COLUMNS}


def said_of(kind: Any, name: str) -> str:
    """What the code says of a field: the columns of a record, else its class."""
    said = (_said_in(one).get(name) for one in getattr(kind, "__mro__", (kind,)))
    return _columns().get((kind, name)) or next(filter(None, said), "")


# --- schemas ---------------------------------------------------------------------------------------
_PLAIN: Mapping[Any, Schema] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    bool: {"type": "boolean"},
    NoneType: {"type": "null"},
    datetime: {"type": "string", "format": "date-time"},
    float: {"$ref": "#/components/schemas/Number"},
}
_NUMBER: Schema = {
    "description": "A number; what JSON has none for is a text.",
    "anyOf": [{"type": "number"}, {"enum": ["nan", "inf", "-inf"]}],
}
_ERROR: Schema = {
    "description": "What was found, what is allowed and what to send, as OpenAI's clients read it.",
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "code": {"type": ["string", "null"]},
            },
        }
    },
}


class _Components:
    """The schemas of classes, each once."""

    def __init__(self) -> None:
        self.schemas: dict[str, Schema] = {"Number": _NUMBER, "Error": _ERROR}

    def of(self, hint: Any) -> Schema:
        """The schema of a type."""
        if isinstance(hint, Mapping):
            return hint
        if hint in _PLAIN:
            return _PLAIN[hint]
        if is_dataclass(hint):
            return self._class(hint)  # type: ignore[arg-type]
        if isinstance(hint, type) and issubclass(hint, StrEnum):
            return {"enum": [str(one) for one in hint]}
        origin, inner = get_origin(hint), get_args(hint)
        if origin is Annotated:
            shape = next((mark.schema for mark in inner[1:] if isinstance(mark, Shape)), None)
            return self.of(inner[0]) if shape is None else shape
        if origin in (Union, UnionType):
            return {"anyOf": [self.of(one) for one in inner]}
        if origin is Literal:
            return {"enum": list(inner)}
        if origin is tuple:
            return {"type": "array", "items": self.of(inner[0])}
        if origin is not None:
            return {"type": "object", "additionalProperties": self.of(inner[1])}
        return {}

    def _class(self, kind: type) -> Schema:
        name = kind.__name__
        if name not in self.schemas:
            self.schemas[name] = {}  # it may hold itself
            parts = _parts_of(kind)
            self.schemas[name] = {
                "description": plain((getdoc(kind) or "").partition("\n\n")[0]),
                "type": "object",
                "required": [part for part, held in parts.items() if held.required],
                "properties": {part: self._property(held) for part, held in parts.items()},
                "additionalProperties": False,
            }
        return {"$ref": f"#/components/schemas/{name}"}

    def _property(self, part: _Part) -> Schema:
        schema = dict(self.of(part.hint) if part.shape is None else part.shape)
        if part.said:
            schema["description"] = part.said
        if not part.required and isinstance(part.default, str | int | float):
            schema["default"] = part.default
        return schema


# --- operations ------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """What a route takes and gives.

    ``takes`` is a dataclass or a schema, ``gives`` such by status, or the content type of what is no JSON;
    ``uses`` are classes that its schemas name.
    """

    takes: Any = None
    gives: Mapping[int, type | Schema | str] = field(default_factory=dict)
    uses: tuple[type, ...] = ()
    example: Schema | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


_CONVERTED = re.compile(r":\w+}")
_OPERATIONS: WeakKeyDictionary[Any, Operation] = WeakKeyDictionary()


def described(operation: Operation) -> Callable[[_Handler], _Handler]:
    """Keep with a handler what it takes and gives; what it is for, its docstring says."""

    def keep(handler: _Handler) -> _Handler:
        _OPERATIONS[getattr(handler, "__func__", handler)] = operation
        return handler

    return keep


def operation_of(handler: Any) -> Operation | None:
    """What was kept with it."""
    return _OPERATIONS.get(getattr(handler, "__func__", handler))


def openapi(routes: Iterable[BaseRoute]) -> dict[str, Any]:
    """The OpenAPI 3.1 document of routes."""
    components = _Components()
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        if isinstance(route, Route):
            path = paths.setdefault(_CONVERTED.sub("}", route.path), {})
            for method in sorted((route.methods or set()) - {"HEAD", "OPTIONS"}):
                path[method.lower()] = _operation(route, components)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Suffice",
            "summary": "Adaptive answers, and decisions about when a loop has seen enough.",
            "version": VERSION,
        },
        "paths": paths,
        "components": {
            "schemas": components.schemas,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}, {}],
    }


def _operation(route: Route, components: _Components) -> dict[str, Any]:
    operation = operation_of(route.endpoint) or Operation()
    for kind in operation.uses:
        components.of(kind)
    summary, _, more = (getdoc(route.endpoint) or "").partition("\n\n")
    written: dict[str, Any] = {"summary": plain(summary).rstrip(".")}
    if more:
        written["description"] = plain(more)
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in route.param_convertors
    ]
    parameters += [
        {"name": name, "in": "header", "description": said, "schema": {"type": "string"}}
        for name, said in operation.headers.items()
    ]
    if parameters:
        written["parameters"] = parameters
    if operation.takes is not None:
        content: dict[str, Any] = {"schema": components.of(operation.takes)}
        if operation.example is not None:
            content["example"] = operation.example
        written["requestBody"] = {"required": True, "content": {"application/json": content}}
    replies: dict[str, Any] = {
        str(status): {
            "description": "as asked" if status < 300 else "not as asked",
            "content": {gives: {}}
            if isinstance(gives, str)
            else {"application/json": {"schema": components.of(gives)}},
        }
        for status, gives in (operation.gives or {200: {}}).items()
    }
    refused = {"schema": {"$ref": "#/components/schemas/Error"}}
    replies["default"] = {"description": "refused", "content": {"application/json": refused}}
    written["responses"] = replies
    return written


def documentation(routes: Callable[[], Sequence[BaseRoute]]) -> list[Route]:
    """The routes that say what an app's routes are: ``/``, ``/docs`` and ``/openapi.json``."""

    @described(Operation(gives={200: {"type": "object"}}))
    async def openapi_document(request: Request) -> Response:  # noqa: ARG001
        """The OpenAPI document of the service."""
        return JSONResponse(openapi(routes()))

    @described(Operation(gives={200: "text/html"}))
    async def docs(request: Request) -> Response:
        """Every route, with a line for a shell: this page."""
        return HTMLResponse(_page(openapi(routes()), str(request.base_url).rstrip("/")))

    @described(Operation(gives={200: {"type": "object"}}))
    async def root(request: Request) -> Response:
        """What this is and where to read on."""
        base = str(request.base_url)
        named = {name: f"{base}{name}" for name in ("docs", "openapi.json", "health", "v1/models")}
        return JSONResponse({"service": "Suffice", "version": VERSION, **named})

    return [
        Route("/", root, methods=["GET"]),
        Route("/docs", docs, methods=["GET"]),
        Route("/openapi.json", openapi_document, methods=["GET"]),
    ]


def _page(document: Mapping[str, Any], base: str) -> str:
    parts = [
        element("h1", f"Suffice {VERSION}"),
        element("p", document["info"]["summary"]),
        element("p", element("a", "The OpenAPI document", href="/openapi.json")),
    ]
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            parts.append(element("h2", f"{method.upper()} {path}"))
            said = (operation["summary"] + ".", operation.get("description"))
            parts += [element("p", text) for text in said if text]
            content = operation.get("requestBody", {}).get("content", {}).values()
            example = next((one["example"] for one in content if "example" in one), None)
            sent = "" if example is None else f" -d {shlex.quote(json.dumps(example))}"
            parts.append(element("pre", f"curl -s {shlex.quote(base + path)}{sent}"))
    head = element("head", element("meta", charset="utf-8"), element("title", "Suffice"))
    return f"<!DOCTYPE html>{element('html', head, element('body', *parts), lang='en')}"
