"""The OpenAPI document says what holds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from starlette.testclient import TestClient
from tests.serving import service

from suffice.serve.app import make_app
from suffice.serve.operation import Operation, check
from suffice.serve.service_settings import ServeSettings


@pytest.fixture
def client(tmp_path: Path) -> Iterator[TestClient]:
    """Of the service as ``suffice serve`` makes it."""
    held = service(record=tmp_path / "record")
    settings = ServeSettings()
    operation = Operation(settings, held, check(settings))
    with TestClient(make_app(held, routers=operation.routers)) as client:
        yield client


def validate(schema: Any, document: Any, value: Any) -> None:
    Draft202012Validator({**schema, "components": document["components"]}).validate(value)


def example_of(schema: Any, document: Any) -> Any:
    """The example of a body, or of the first of several."""
    schema = schema.get("oneOf", [schema])[0]
    name = schema["$ref"].rpartition("/")[2]
    return document["components"]["schemas"][name].get("example", {})


def test_examples_are_answered_as_it_says(client: TestClient) -> None:
    document = client.get("/openapi.json").json()
    loop = client.post("/v1/loops", json={"question": "q", "question_id": "q-17"}).json()["id"]
    paths = {**document["paths"], "/v1/labels": document["paths"]["/v1/labels"]}
    for path, methods in sorted(paths.items(), key=lambda one: one[0].endswith(("labels", "end"))):
        for method, operation in methods.items():
            assert operation["summary"], path
            content = operation.get("requestBody", {}).get("content", {}).get("application/json")
            body = None
            if content is not None:
                body = example_of(content["schema"], document)
                if path.endswith("/rounds"):
                    body = {"round": 1, "answer": "Skien"}
                validate(content["schema"], document, body)
            if path == "/v1/loops":  # of the example's id one is under way
                body = {**(body or {}), "question_id": "another"}
            asked = path.replace("{id}", loop).replace("{model}", "suffice/two")
            reply = client.request(method, asked, json=body)
            assert str(reply.status_code) in operation["responses"], (path, reply.text)
            said = operation["responses"][str(reply.status_code)].get("content", {})
            if "application/json" in said:
                validate(said["application/json"]["schema"], document, reply.json())


def test_refusals_are_as_it_says(client: TestClient) -> None:
    document = client.get("/openapi.json").json()
    error = {"$ref": "#/components/schemas/ErrorReply"}
    bodies: tuple[Any, ...] = ({"x": 1}, [], "a", {"question": 1})
    for path in ("/v1/decisions", "/v1/loops", "/v1/labels", "/v1/loops/x/rounds"):
        for body in bodies:
            reply = client.post(path, json=body)
            assert reply.status_code in (400, 404)
            validate(error, document, reply.json())
