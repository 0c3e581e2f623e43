"""Reads manifests' YAML: several documents, each a resource, without duplicate keys."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml
from yaml.constructor import ConstructorError

from loosehanger.errors import WrongUseError


class StrictLoader(yaml.CSafeLoader):
    """A YAML loader that refuses duplicate keys.

    It uses libyaml, which takes a tenth of the time, because every task reads the manifests of all regions.
    """

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if key in seen:
                raise ConstructorError(None, None, f"duplicate key '{key}'", key_node.start_mark)
            seen.add(key)
        return super().construct_mapping(node, deep)


_OF_THE_SERVER = (
    "uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "selfLink", "ownerReferences",
    "finalizers",
)  # fmt: skip
"""Fields of ``metadata`` that an API server or an operator adds to a resource."""
_RESOURCE = "a resource (a mapping with apiVersion, kind and metadata)"
_OF_KUBECTL = ("kubectl.kubernetes.io/last-applied-configuration",)


@dataclass(frozen=True)
class Document:
    """One resource of a manifest file, as written."""

    source: str
    """The file, for messages."""
    line: int
    """Its first line in the file, counted from 1."""
    content: dict[str, Any]
    node: yaml.Node | None = field(default=None, compare=False, repr=False)
    """The YAML node, which knows the line of each field; None for a resource from the record."""

    dropped: tuple[str, ...] = field(default=(), compare=False)
    """The fields that an API server had added and that were removed."""

    @property
    def kind(self) -> str:
        """Its kind, such as ``KafkaTopic``."""
        return str(self.content.get("kind", ""))

    @property
    def _metadata(self) -> dict[str, Any]:
        found = self.content.get("metadata")
        return found if isinstance(found, dict) else {}

    @property
    def name(self) -> str:
        """Its name."""
        return str(self._metadata.get("name", ""))

    @property
    def namespace(self) -> str:
        """Its namespace, which is the region; for a Namespace, its own name."""
        return self.name if self.kind == "Namespace" else str(self._metadata.get("namespace", ""))

    @property
    def spec(self) -> dict[str, Any]:
        """Its specification; empty if it has none."""
        found = self.content.get("spec")
        return found if isinstance(found, dict) else {}

    @property
    def reference(self) -> str:
        """``Kind/name``, for messages; empty for a document that is not a resource."""
        return f"{self.kind}/{self.name}".strip("/")

    def where(self, *path: str | int) -> str:
        """Returns file, line, resource and field, for messages.

        Args:
            path: the path of a field, such as ``"spec", "mirrors", 0``.
        """
        shown, line = locate(self.node, path) if self.node else (dotted(path), self.line)
        return ": ".join(filter(None, (f"{self.source}:{line}", self.reference, shown)))


def dotted(path: Sequence[str | int]) -> str:
    """Formats the path of a field: ``spec.mirrors[0].source``."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).lstrip(".")


def locate(node: yaml.Node, path: Sequence[str | int]) -> tuple[str, int]:
    """Finds a field of a YAML document.

    Args:
        node: the document.
        path: the path of the field; missing parts are skipped, except a last key that is missing.

    Returns:
        The formatted path, and the line of its last part that exists.
    """
    found: list[str | int] = []
    line = node.start_mark.line + 1
    missing: str | int | None = None
    for part in path:
        child = None
        if isinstance(node, yaml.MappingNode):
            child = next(((k, v) for k, v in node.value if k.value == part), None)
            missing = part if child is None else None
        elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
            child = (node.value[part], node.value[part])
        if child is None:
            continue
        found.append(part)
        line = child[0].start_mark.line + 1
        node = child[1]
    return dotted([*found, *([] if missing is None else [missing])]), line


def _refuse_cycles(root: yaml.Node) -> None:
    """Refuses an alias inside its own anchor.

    Raises:
        ConstructorError: the document has one.
    """
    done: set[int] = set()
    above: set[int] = set()
    left: list[tuple[yaml.Node, bool]] = [(root, False)]
    while left:
        node, leaving = left.pop()
        if leaving:
            above.discard(id(node))
            done.add(id(node))
        elif id(node) in above:
            raise ConstructorError(None, None, "an alias is inside its own anchor", node.start_mark)
        elif id(node) not in done and isinstance(node, yaml.CollectionNode):
            above.add(id(node))
            left.append((node, True))
            pairs = node.value if isinstance(node, yaml.MappingNode) else [(child,) for child in node.value]
            left += [(child, False) for pair in pairs for child in pair]


def read_documents(source: str, text: str, expected: str = _RESOURCE) -> list[Document]:
    """Reads every document of a manifest file.

    Args:
        source: the file's name, for messages.
        text: its content: one or more YAML documents.
        expected: what a document must be, for messages.

    Raises:
        WrongUseError: the text is not YAML, is empty, or a document is not a resource.
    """
    found: list[tuple[yaml.Node, Any]] = []
    loader: StrictLoader | None = None
    try:
        loader = StrictLoader(text)
        while loader.check_node():
            node = loader.get_node()
            assert node is not None
            _refuse_cycles(node)
            found.append((node, loader.construct_document(node)))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{source}:{mark.line + 1}" if mark else source
        raise WrongUseError(f"{where}: not YAML: {error.problem}") from error
    except yaml.YAMLError as error:
        raise WrongUseError(f"{source}: not YAML: {error}") from error
    except (ValueError, TypeError, LookupError, ArithmeticError, AttributeError, RecursionError) as error:
        # An impossible date, a malformed number, or endless nesting.
        raise WrongUseError(f"{source}: not YAML: {error}") from error
    finally:
        if loader is not None:
            loader.dispose()
    found = [(node, content) for node, content in found if content is not None]
    if not found:
        raise WrongUseError(
            f"{source}: no resource in this file"
            if expected == _RESOURCE
            else f"{source}: is empty; expected {expected}"
        )
    for node, content in found:
        if not isinstance(content, dict):
            where = f"{source}:{node.start_mark.line + 1}"
            raise WrongUseError(f"{where}: expected {expected}")
    return [Document(source, node.start_mark.line + 1, content, node) for node, content in found]


def read_resources(source: str, text: str) -> list[Document]:
    """Reads manifests in all their forms: also lists, and the output of ``kubectl get -o yaml``.

    Args:
        source: the file's name, for messages.
        text: its content.

    Returns:
        Each resource, without the fields that an API server adds.

    Raises:
        WrongUseError: as ``read_documents``.
    """
    return [
        _without_what_a_server_adds(document) for found in read_documents(source, text) for document in _items(found)
    ]


def _items(document: Document) -> list[Document]:
    """Returns the resources of a ``List``; for any other document, the document itself."""
    items = document.content.get("items")
    if document.kind != "List" or not isinstance(items, list):
        return [document]
    nodes: list[yaml.Node] = []
    if isinstance(document.node, yaml.MappingNode):
        nodes = next((value.value for key, value in document.node.value if key.value == "items"), [])
    for node, item in zip(nodes, items, strict=True):
        if not isinstance(item, dict):
            where = f"{document.source}:{node.start_mark.line + 1}"
            raise WrongUseError(f"{where}: expected a resource (a mapping with apiVersion, kind and metadata)")
    return [
        Document(document.source, node.start_mark.line + 1, item, node) for node, item in zip(nodes, items, strict=True)
    ]


def _without_what_a_server_adds(document: Document) -> Document:
    content = document.content
    metadata = content.get("metadata")
    if "apiVersion" not in content or not isinstance(metadata, dict):
        return document
    dropped = [f"metadata.{name}" for name in _OF_THE_SERVER if name in metadata]
    metadata = {name: value for name, value in metadata.items() if name not in _OF_THE_SERVER}
    annotations = metadata.get("annotations")
    if isinstance(annotations, dict) and (own := [name for name in annotations if name in _OF_KUBECTL]):
        dropped += [f"metadata.annotations.{name}" for name in own]
        left = {name: value for name, value in annotations.items() if name not in _OF_KUBECTL}
        metadata = {name: value for name, value in metadata.items() if name != "annotations"}
        metadata |= {"annotations": left} if left else {}
    content = {**content, "metadata": metadata}
    if "status" in content:
        dropped.append("status")
        del content["status"]
    return replace(document, content=content, dropped=tuple(dropped)) if dropped else document


def read_file(path: Path) -> str:
    """Reads a text file.

    Raises:
        WrongUseError: the file cannot be read, or is not UTF-8.
    """
    shown = os.path.relpath(path)
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise WrongUseError(f"{shown}: cannot be read ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise WrongUseError(f"{shown}: is not UTF-8 text ({error.reason} at byte {error.start})") from error
