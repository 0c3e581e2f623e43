"""``Mirror``, one source of a KafkaMirrorMaker2, and its form as one line of text for programs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, urlencode

from loosehanger.lab.mirrors.renaming import Renaming


@dataclass(frozen=True)
class Mirror:
    """One source of a KafkaMirrorMaker2: its ends, patterns and connectors."""

    name: str
    """The resource's name."""
    source_alias: str
    target_alias: str
    source: str
    """The region it reads."""
    target: str
    """The region it writes."""
    policy: str
    """``identity`` keeps topic names; ``default`` prefixes them with the source's alias and a separator;
    ``renamed`` applies ``renaming``."""
    separator: str
    topics: str
    """Which topics: MM2's own list of regular expressions."""
    topics_exclude: str
    connector: str
    """The name of its source connector."""
    connect: Mapping[str, str] = field(default_factory=dict)
    """Connect's REST interface: ``url``, ``other_urls`` (of further workers, with blanks between them), and if it
    requires them ``username``, ``password_file``, ``ca_file``."""
    region: str = ""
    """The region it runs in."""
    groups: str = ""
    """Which consumer groups it translates; empty without a checkpoint connector."""
    groups_exclude: str = ""
    checkpoint_connector: str = ""
    """The name of its checkpoint connector; empty for none."""
    offset_syncs: str = "source"
    """The cluster with the offset-syncs topic: ``source`` or ``target``."""
    state: str = "running"
    """The state of its source connector in its manifest: ``running``, ``paused`` or ``stopped``."""
    transforms: bool = False
    """Whether its source connector transforms records."""
    hops: tuple[str, ...] = ()
    """For a chain, the ids of its mirrors in order; empty otherwise."""
    checkpoint_state: str = "running"
    """The state of its checkpoint connector in its manifest."""
    synchronisation: Mapping[str, str] = field(default_factory=dict)
    """Its source connector's settings for copying topic configurations and ACLs: see ``replication.synchronises``."""
    renaming: Renaming | None = None
    """The rule for the names of copies, of clusters of the user's own only."""

    @property
    def translates(self) -> bool:
        """Whether it translates the offsets of consumer groups."""
        return bool(self.groups) and self.checkpoint_state == "running"

    @property
    def id(self) -> str:
        """Unique id of this source of this mirror: ``region/name/source-alias->target-alias``."""
        return f"{self.region}/{self.name}/{self.source_alias}->{self.target_alias}".lstrip("/")


_ROUTE = (
    "name", "region", "source_alias", "target_alias", "source", "target", "policy", "separator", "topics",
    "topics_exclude", "connector",
)  # fmt: skip


def routes_text(mirrors: Iterable[Mirror]) -> str:
    """Returns the routes of mirrors as one line without quotation marks, for programs that have no record.

    It has neither states nor tuning, so a change of those does not change the text or restart the program.
    """
    return " ".join(urlencode({name: getattr(mirror, name) for name in _ROUTE}) for mirror in mirrors)


def read_routes(text: str) -> tuple[Mirror, ...]:
    """Parses the result of ``routes_text``.

    Raises:
        ValueError: the text is not a list of mirrors.
    """
    try:
        routes = [dict(parse_qsl(word, keep_blank_values=True, strict_parsing=True)) for word in text.split()]
        return tuple(Mirror(**{name: route[name] for name in _ROUTE}) for route in routes)  # type: ignore[arg-type]
    except (KeyError, ValueError) as error:
        raise ValueError(f"'{text}' is not a list of mirrors") from error
