"""A mirror, as the rest of the model and everybody who asks it speaks of one; and as one line for programs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, urlencode


@dataclass(frozen=True)
class Mirror:
    """One source of a KafkaMirrorMaker2: what it copies, from where to where."""

    name: str
    """The resource's name."""
    source_alias: str
    target_alias: str
    source: str
    """The region it reads."""
    target: str
    """The region it writes."""
    policy: str
    """``identity`` keeps topic names; ``default`` puts the source's alias and a separator before them."""
    separator: str
    topics: str
    """Which topics: MM2's own list of regular expressions."""
    topics_exclude: str
    connector: str
    """The name of its source connector."""
    connect: Mapping[str, str] = field(default_factory=dict)
    """Connect's REST interface: ``url``, and where it asks for them ``username``, ``password_file``, ``ca_file``."""
    region: str = ""
    """The region that it runs in."""
    groups: str = ""
    """Which consumer groups it translates; empty where it has no checkpoint connector."""
    groups_exclude: str = ""
    checkpoint_connector: str = ""
    """The name of its checkpoint connector; empty for none."""
    offset_syncs: str = "source"
    """Where the map of offsets is kept: ``source`` or ``target``."""
    state: str = "running"
    """What its manifest wants its source connector to be: ``running``, ``paused`` or ``stopped``."""
    transforms: bool = False
    """Whether its source connector changes records on their way."""
    hops: tuple[str, ...] = ()
    """The ids of those that it stands for, one after the other; empty for a mirror of its own."""
    checkpoint_state: str = "running"
    """The same of its checkpoint connector."""
    synchronisation: Mapping[str, str] = field(default_factory=dict)
    """What its source connector sets of how it copies topics' settings: see ``topic_rules.synchronises``."""

    @property
    def translates(self) -> bool:
        """Whether it translates the offsets of consumer groups now."""
        return bool(self.groups) and self.checkpoint_state == "running"

    @property
    def id(self) -> str:
        """What tells it from every other source of every mirror: ``region/name/source-alias->target-alias``."""
        return f"{self.region}/{self.name}/{self.source_alias}->{self.target_alias}".lstrip("/")


_ROUTE = (
    "name", "region", "source_alias", "target_alias", "source", "target", "policy", "separator", "topics",
    "topics_exclude", "connector",
)  # fmt: skip


def routes_text(mirrors: Iterable[Mirror]) -> str:
    """What of mirrors says where topics go, as one line without quotation marks, for programs that have no record.

    How a mirror works, and whether it runs, is not in it: whoever has it need not be told of such changes.
    """
    return " ".join(urlencode({name: getattr(mirror, name) for name in _ROUTE}) for mirror in mirrors)


def read_routes(text: str) -> tuple[Mirror, ...]:
    """The mirrors of ``routes_text``.

    Raises:
        ValueError: it is something else.
    """
    try:
        routes = [dict(parse_qsl(word, keep_blank_values=True, strict_parsing=True)) for word in text.split()]
        return tuple(Mirror(**{name: route[name] for name in _ROUTE}) for route in routes)  # type: ignore[arg-type]
    except (KeyError, ValueError) as error:
        raise ValueError(f"'{text}' is not a list of mirrors") from error
