"""Reading YAML as manifests have it: several documents, each a resource, and no key twice."""

from __future__ import annotations

from typing import Any

import yaml
from yaml.constructor import ConstructorError

from .errors import ManifestError


class _StrictLoader(yaml.SafeLoader):
    """Refuses what YAML readers usually pass over: a key that stands twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if key in seen:
                raise ConstructorError(None, None, f"the key '{key}' stands twice", key_node.start_mark)
            seen.add(key)
        return super().construct_mapping(node, deep)


def read_documents(source: str, text: str) -> list[tuple[dict[str, Any], yaml.Node]]:
    """Reads every document of a manifest file.

    Args:
        source: the file's name, for messages.
        text: its content: one or more YAML documents.

    Returns:
        Each document, and the YAML node that it came from, which knows its lines.

    Raises:
        ManifestError: the text is not YAML, there is nothing in it, or a document is not a resource.
    """
    try:
        nodes = [node for node in yaml.compose_all(text, Loader=_StrictLoader) if node is not None]
        documents = [d for d in yaml.load_all(text, Loader=_StrictLoader) if d is not None]
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{source}:{mark.line + 1}" if mark else source
        raise ManifestError(f"{where}: not YAML: {error.problem}") from error
    except yaml.YAMLError as error:
        raise ManifestError(f"{source}: not YAML: {error}") from error
    if not documents:
        raise ManifestError(f"{source}: there is no resource in it")
    for document, node in zip(documents, nodes, strict=True):
        if not isinstance(document, dict):
            where = f"{source}:{node.start_mark.line + 1}"
            raise ManifestError(f"{where}: expected a resource (a mapping with apiVersion, kind and metadata)")
    return list(zip(documents, nodes, strict=True))
