"""The templates of the reports' pages."""

from __future__ import annotations

from collections.abc import Callable

from jinja2 import Environment, PackageLoader, StrictUndefined, Template

from loosehanger.proof.difference import printable


def template(name: str, **filters: Callable[..., str]) -> Template:
    """Returns a template by its file's name, with its filters beside ``visible``, which every page has."""
    environment = Environment(
        loader=PackageLoader("loosehanger.proof.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"visible": printable, **filters}
    return environment.get_template(name)
