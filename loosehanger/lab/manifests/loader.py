"""Reads YAML text into checked resources, with errors that name file, line, resource and field."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from pydantic.fields import FieldInfo

from loosehanger.errors import WrongUseError
from loosehanger.lab.manifests.documents import Document, read_resources
from loosehanger.lab.manifests.older_api import refuse_older_api
from loosehanger.lab.manifests.resources import KINDS, Ignored, Resource, ResourceModel
from loosehanger.lab.manifests.validation import validated


@dataclass(frozen=True)
class Manifest:
    """A checked resource and its document."""

    source: str
    document: dict[str, Any]
    resource: Resource


def read_manifests(source: str, text: str, namespace: str | None = None) -> list[Manifest]:
    """Reads and checks every document of a manifest file.

    Args:
        source: the file's name, for messages.
        text: its content: one or more YAML documents.
        namespace: the only namespace that the resources may have; None for any.

    Raises:
        WrongUseError: the text is not YAML, or the local platform does not support a resource.
    """
    return [check_document(document, namespace) for document in read_resources(source, text)]


def in_order(manifests: Iterable[Manifest]) -> list[Manifest]:
    """Sorts resources into the order in which they are applied, dependencies first."""
    order = list(KINDS)
    return sorted(manifests, key=lambda manifest: order.index(manifest.resource.kind))


def ignored_fields() -> Iterator[tuple[str, str, str]]:
    """Yields every field that is accepted and ignored: kind, field, reason."""
    for kind, model in KINDS.items():
        yield from ((kind, field, reason) for field, reason in _ignored_fields(model))


def _ignored_fields(model: type[ResourceModel], path: str = "") -> Iterator[tuple[str, str]]:
    for name, field in model.model_fields.items():
        here = f"{path}{field.alias or name}"
        marks = [mark for mark in field.metadata if isinstance(mark, Ignored)]
        if marks:
            yield here, marks[0].reason
            continue
        for inner, suffix in _models_in(field):
            yield from _ignored_fields(inner, f"{here}{suffix}.")


def _models_in(field: FieldInfo) -> Iterator[tuple[type[ResourceModel], str]]:
    def search(annotation: Any, suffix: str) -> Iterator[tuple[type[ResourceModel], str]]:
        if isinstance(annotation, type) and issubclass(annotation, ResourceModel):
            yield annotation, suffix
        is_list = getattr(annotation, "__origin__", None) is list
        for argument in getattr(annotation, "__args__", ()):
            yield from search(argument, "[]" if is_list else suffix)

    yield from search(field.annotation, "")


def check_document(document: Document, namespace: str | None = None) -> Manifest:
    """Checks one resource.

    Args:
        document: the resource.
        namespace: the only namespace that it may have; None for any.

    Raises:
        WrongUseError: the local platform does not support it.
    """
    refuse_older_api(document)
    if document.kind not in KINDS:
        raise WrongUseError(
            f"{document.source}:{document.line}: kind: '{document.content.get('kind')}' is not one that the local "
            f"platform carries out; it knows: {', '.join(KINDS)}"
        )
    resource = validated(
        KINDS[document.kind],
        document,
        unknown="unknown field, or one that the local platform cannot carry out",
    )
    at = resource.metadata.name if resource.kind == "Namespace" else resource.metadata.namespace
    if namespace is not None and at != namespace:
        raise WrongUseError(
            f"{document.source}:{document.line}: {resource.reference}: metadata.namespace: '{at}' is not the region's "
            f"namespace '{namespace}'"
        )
    return Manifest(document.source, document.content, resource)
