"""The API's own description: the OpenAPI document, and what the page about the API shows of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from loosehanger.console.problems import MEDIA_TYPE

_JSON = "application/json"


@dataclass(frozen=True)
class Parameter:
    """A parameter of an operation, or a field of an object."""

    name: str
    kind: str
    """Its type, as in ``integer`` or ``list of Topic``."""
    place: str
    """``path``, ``query``, or empty for a field."""
    required: bool
    about: str


@dataclass(frozen=True)
class Operation:
    """An operation of the API."""

    method: str
    path: str
    summary: str
    about: str
    parameters: tuple[Parameter, ...]
    body: str
    """The object that a change must send; empty for none."""
    answers: str
    """The object that it returns."""
    statuses: tuple[tuple[str, str], ...]
    """The errors that it may return, each with its meaning."""

    @property
    def changes(self) -> bool:
        """Whether it changes something."""
        return self.method != "GET"


@dataclass(frozen=True)
class Schema:
    """An object that the API takes or returns."""

    name: str
    about: str
    fields: tuple[Parameter, ...]


def openapi_document(app: FastAPI) -> dict[str, Any]:
    """The OpenAPI document of an application, made once. Errors have the media type of RFC 9457."""
    if app.openapi_schema is None:
        document = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
        for _, _, operation in _operations(document):
            for status, answer in operation["responses"].items():
                if int(status) >= 400:
                    answer["content"] = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
        for unused in ("HTTPValidationError", "ValidationError"):
            document["components"]["schemas"].pop(unused, None)
        document["components"]["securitySchemes"] = {
            "token": {"type": "http", "scheme": "bearer", "description": "A token from the page /scripts"}
        }
        app.openapi_schema = document
    return app.openapi_schema


def operations(document: Mapping[str, Any]) -> list[Operation]:
    """The operations of an OpenAPI document, for a page."""
    return [
        Operation(
            method.upper(),
            path,
            operation.get("summary", ""),
            operation.get("description", ""),
            tuple(_parameter(found) for found in operation.get("parameters", ())),
            _kind(_content(operation.get("requestBody", {}))),
            next((_kind(_content(answer)) for status, answer in operation["responses"].items() if status < "300"), ""),
            tuple((status, one["description"]) for status, one in operation["responses"].items() if status >= "400"),
        )
        for path, method, operation in _operations(document)
    ]


def schemas(document: Mapping[str, Any]) -> list[Schema]:
    """The objects of an OpenAPI document, for a page."""
    return [
        Schema(
            name,
            schema.get("description", ""),
            tuple(
                Parameter(field, _kind(found), "", field in schema.get("required", ()), found.get("description", ""))
                for field, found in schema.get("properties", {}).items()
            ),
        )
        for name, schema in sorted(document["components"]["schemas"].items())
    ]


def _operations(document: Mapping[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield path, method, operation


def _parameter(found: Mapping[str, Any]) -> Parameter:
    schema = found.get("schema", {})
    about = found.get("description", schema.get("description", ""))
    return Parameter(found["name"], _kind(schema), found["in"], found.get("required", False), about)


def _content(answer: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = answer.get("content", {}).get(_JSON, {}).get("schema", {})
    return found


def _kind(schema: Mapping[str, Any]) -> str:
    """A schema in words, such as ``integer or null``."""
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "enum" in schema:
        return ", ".join(str(value) or "nothing" for value in schema["enum"])
    if "const" in schema:
        return str(schema["const"])
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(_kind(one) for one in schema["anyOf"]))
    kind = str(schema.get("type", ""))
    if kind == "array":
        inner = _kind(schema.get("items", {})) or " and ".join(_kind(one) for one in schema.get("prefixItems", ()))
        return f"list of {inner or 'anything'}"
    if kind == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"object of {_kind(schema['additionalProperties'])}"
    return kind
