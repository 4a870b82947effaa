"""The OpenAPI document is of the routes there are, and what it says holds."""

from __future__ import annotations

import html
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import pytest
from jsonschema import Draft202012Validator
from starlette.applications import Starlette
from starlette.routing import Route
from starlette.testclient import TestClient

from suffice.protocols import Decision
from suffice.serve.app import make_app
from suffice.serve.openapi import As, openapi, operation_of, read_body, said_of
from suffice.serve.operation import Surroundings
from suffice.serve.service import Ground, Service
from suffice.serve.settings import ServeSettings
from suffice.testing.models import ScriptedModel
from suffice.trace.rounds.records import Passage, Round
from suffice.web.replies import Refusal


class _Shelf:
    """Finds the same passage for every query."""

    def retrieve(self, query: str, k: int) -> Sequence[Passage]:
        """It."""
        del query, k
        return (Passage(id="p", text="Ibsen was born in Skien."),)


def whole(record: Path | None = None) -> Starlette:
    """The service as ``suffice serve`` makes it."""
    ground = Ground(model=ScriptedModel(lambda *_: "Answer: Skien"), retriever=_Shelf())
    around = Surroundings(ServeSettings())
    service = Service(ground, {"two": "fixed-2"}, record=record, observers=around.observers)
    around.attach(service)
    return make_app(service, routes=around.routes)


@pytest.fixture
def client(tmp_path: Path) -> Iterator[TestClient]:
    with TestClient(whole(tmp_path / "record")) as client:
        yield client


def check(schema: Any, document: Any, value: Any) -> None:
    whole = {**schema, "components": document["components"]}
    Draft202012Validator(whole).validate(value)


def test_every_route_is_described_and_nothing_else() -> None:
    app = whole()
    document = openapi(app.routes)
    routes = [route for route in app.routes if isinstance(route, Route)]
    assert len(routes) == len(app.routes)
    served = {
        (route.path.replace(":path", ""), method.lower())
        for route in routes
        for method in (route.methods or set()) - {"HEAD"}
    }
    paths = document["paths"].items()
    assert served == {(path, method) for path, methods in paths for method in methods}
    for route in routes:
        assert operation_of(route.endpoint) is not None, route.path
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            assert operation["summary"], (path, method)


def test_every_field_is_described_and_every_name_leads_somewhere() -> None:
    document = openapi(whole().routes)
    for name, schema in document["components"]["schemas"].items():
        Draft202012Validator.check_schema(schema)
        for part, held in schema.get("properties", {}).items():
            assert held.get("description") or name == "Error", (name, part)
    for reference in references(document):
        *_, name = reference.split("/")
        assert name in document["components"]["schemas"]


def references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if "$ref" in value:
            yield value["$ref"]
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from references(item)


def test_examples_are_answered_as_it_says(client: TestClient) -> None:
    document = client.get("/openapi.json").json()
    example = document["paths"]["/v1/loops"]["post"]["requestBody"]["content"]
    loop = client.post("/v1/loops", json=example["application/json"]["example"]).json()["id"]
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            content = operation.get("requestBody", {}).get("content", {}).get("application/json")
            body = None if content is None else content["example"]
            if content is not None:
                check(content["schema"], document, body)
            if path == "/v1/loops":  # of the example's id one is under way
                body = {**(body or {}), "question_id": "another"}
            asked = path.replace("{id}", loop).replace("{model}", "suffice/two")
            reply = client.request(method, asked, json=body)
            assert str(reply.status_code) in operation["responses"], (path, reply.text)
            said = operation["responses"][str(reply.status_code)]["content"]
            if "application/json" in said:
                check(said["application/json"]["schema"], document, reply.json())
            else:
                assert reply.headers["content-type"].partition(";")[0] in str(said)


def test_refusals_are_as_it_says(client: TestClient) -> None:
    document = openapi(whole().routes)
    error = {"$ref": "#/components/schemas/Error"}
    for path in ("/v1/decisions", "/v1/loops", "/v1/labels", "/v1/loops/x/rounds"):
        bodies: tuple[Any, ...] = ({"x": 1}, [], "a", {"question": 1})
        for body in bodies:
            reply = client.post(path, json=body)
            assert reply.status_code in (400, 404)
            check(error, document, reply.json())


def test_what_is_said_of_a_field_is_said_where_it_is_declared() -> None:
    assert said_of(Decision, "reason") == "What it rests on, in words."
    assert said_of(Round, "passages") == "passages added this round, in rank order"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Body:
    """A body.

    Parameters
    ----------
    several
        Many ``words``.
    """

    several: tuple[str, ...]
    reason: Annotated[float | None, As(Decision)] = None


def test_a_body_is_read_by_its_class() -> None:
    assert read_body(_Body, {"several": ["a"], "reason": 1}).several == ["a"]  # type: ignore[comparison-overlap]
    for document, said in (
        ({}, "several is missing: Many `words`."),
        ({"several": "a"}, "several must be a list, each a text, found 'a'"),
        ({"several": [], "reason": True}, "reason must be a number or null, found True"),
        ({"several": [], "x": 1}, "unknown field 'x'; allowed: several, reason"),
    ):
        with pytest.raises(Refusal) as refused:
            read_body(_Body, document)
        assert str(refused.value) == said


def test_who_opens_the_address_finds_the_way(client: TestClient) -> None:
    assert client.get("/health").json() == {"status": "live"}
    told = client.get("/").json()
    page = client.get(told["docs"])
    assert page.headers["content-type"].startswith("text/html")
    document = client.get(told["openapi.json"]).json()
    routes = [
        f"{method.upper()} {path}" for path, own in document["paths"].items() for method in own
    ]
    assert all(f"<h2>{route}</h2>" in page.text for route in routes)


def test_a_line_of_the_page_does_what_it_says(client: TestClient) -> None:
    lines = re.findall(r"<pre>(.*?)</pre>", client.get("/docs").text)
    line = next(
        html.unescape(line) for line in lines if line.endswith("&#x27;") and "/v1/loops" in line
    )
    *_, url, _, body = shlex.split(line)
    assert client.post(url, content=body).status_code == 201
