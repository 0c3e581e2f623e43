"""The rows of the table of topics. A row is rendered again only when what it shows has changed: of hundreds, few do."""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from jinja2 import Environment
from markupsafe import Markup

from loosehanger.console.formats import rate, size
from loosehanger.console.models import Topic


class TopicRows:
    """Renders rows, and keeps those of the last table.

    Args:
        environment: has the templates.
    """

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._rows: dict[Hashable, str] = {}

    def __call__(self, topics: Iterable[Topic]) -> Markup:
        """The rows of these topics as HTML."""
        row = self._environment.get_template("topic_row.html.j2").module.topic_row  # type: ignore[attr-defined]
        rows: dict[Hashable, str] = {}
        for topic in topics:
            offsets = topic.offsets
            # All that a row shows, as it shows it.
            shown = (
                topic.region, topic.name, len(topic.partitions), offsets, size(topic.bytes), rate(topic.records_per_s),
                topic.mirror, topic.health, topic.explanation, *((one.name, one.value) for one in topic.settings),
            )  # fmt: skip
            rows[shown] = self._rows.get(shown) or row(topic, offsets)
        self._rows = rows
        return Markup("".join(rows.values()))  # noqa: S704 - of templates, which escape
