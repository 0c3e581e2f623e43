"""Reading manifests: from YAML text to checked resources, with errors that name file, line, resource and field."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import yaml
from pydantic import ValidationError
from pydantic.fields import FieldInfo

from .documents import read_documents
from .errors import ManifestError
from .models import KINDS, Model, Resource, WithoutMeaning


@dataclass(frozen=True)
class Manifest:
    """A checked resource, and the document that it came from."""

    source: str
    document: dict[str, Any]
    resource: Resource


def read_manifests(source: str, text: str, namespace: str | None = None) -> list[Manifest]:
    """Reads and checks every document of a manifest file.

    Args:
        source: the file's name, for messages.
        text: its content: one or more YAML documents.
        namespace: the only namespace that the resources may be for; None for any.

    Raises:
        ManifestError: the text is not YAML, or a resource is not one that this platform can carry out.
    """
    documents = read_documents(source, text)
    return [_checked(source, document, node, namespace) for document, node in documents]


def in_order(manifests: Iterable[Manifest]) -> list[Manifest]:
    """Sorts resources into the order in which they are applied: what others need comes first."""
    order = list(KINDS)
    return sorted(manifests, key=lambda manifest: order.index(manifest.resource.kind))


def without_meaning() -> Iterator[tuple[str, str, str]]:
    """Every field that is accepted and does nothing here: kind, field, reason."""
    for kind, model in KINDS.items():
        yield from ((kind, field, reason) for field, reason in _without_meaning(model))


def _without_meaning(model: type[Model], path: str = "") -> Iterator[tuple[str, str]]:
    for name, field in model.model_fields.items():
        here = f"{path}{field.alias or name}"
        marks = [mark for mark in field.metadata if isinstance(mark, WithoutMeaning)]
        if marks:
            yield here, marks[0].reason
            continue
        for inner, suffix in _models_in(field):
            yield from _without_meaning(inner, f"{here}{suffix}.")


def _models_in(field: FieldInfo) -> Iterator[tuple[type[Model], str]]:
    def search(annotation: Any, suffix: str) -> Iterator[tuple[type[Model], str]]:
        if isinstance(annotation, type) and issubclass(annotation, Model):
            yield annotation, suffix
        is_list = getattr(annotation, "__origin__", None) is list
        for argument in getattr(annotation, "__args__", ()):
            yield from search(argument, "[]" if is_list else suffix)

    yield from search(field.annotation, "")


def _checked(source: str, document: dict[str, Any], node: yaml.Node, namespace: str | None) -> Manifest:
    where = f"{source}:{node.start_mark.line + 1}"
    kind = document.get("kind")
    if kind not in KINDS:
        raise ManifestError(
            f"{where}: kind: '{kind}' is not one that the local platform carries out; it knows: {', '.join(KINDS)}"
        )
    metadata = document.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    try:
        resource = KINDS[kind].model_validate(document)
    except ValidationError as error:
        problems = sorted({_problem(source, node, f"{kind}/{name}", problem) for problem in error.errors()})
        raise ManifestError("; ".join(problems)) from error
    at = resource.metadata.name if resource.kind == "Namespace" else resource.metadata.namespace
    if namespace is not None and at != namespace:
        raise ManifestError(
            f"{where}: {resource.reference}: metadata.namespace: '{at}' is not the region's namespace '{namespace}'"
        )
    return Manifest(source, document, resource)


def _problem(source: str, node: yaml.Node, reference: str, problem: Any) -> str:
    # The names of union members stand in pydantic's path too; those that are no part of the document are left out.
    path, line = _locate(node, problem["loc"])
    match problem["type"]:
        case "extra_forbidden":
            text = "unknown field, or one that the local platform cannot carry out"
        case "missing":
            text = "is missing"
        case "literal_error":
            text = f"'{problem['input']}' is not possible here; expected {problem['ctx']['expected']}"
        case "value_error":
            text = str(problem["ctx"]["error"])
        case _:
            text = f"{problem['msg'][0].lower()}{problem['msg'][1:]}"
            if isinstance(problem["input"], str | int | float):
                text += f" (it is '{problem['input']}')"
    return f"{source}:{line}: {reference}: {path}: {text}" if path else f"{source}:{line}: {reference}: {text}"


def _locate(node: yaml.Node, loc: Sequence[str | int]) -> tuple[str, int]:
    path = ""
    line = node.start_mark.line + 1
    missing = ""
    for part in loc:
        child = None
        if isinstance(node, yaml.MappingNode):
            child = next(((k, v) for k, v in node.value if k.value == part), None)
            missing = f".{part}" if child is None else ""
        elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
            child = (node.value[part], node.value[part])
        if child is None:
            continue
        path += f"[{part}]" if isinstance(part, int) else f".{part}"
        line = child[0].start_mark.line + 1
        node = child[1]
    return (path + missing).lstrip("."), line
