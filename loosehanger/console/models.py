"""The objects that the API returns and the pages show."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

Health = Literal["good", "warning", "bad", "unknown"]


class Model(BaseModel):
    """The base of all."""

    model_config = ConfigDict(extra="forbid")


class Problem(Model):
    """An error's body, as RFC 9457 describes it."""

    type: str = Field(default="about:blank", description="about:blank: the status alone distinguishes the errors")
    title: str = Field(description="The status in words")
    status: int = Field(description="The HTTP status")
    detail: str = Field(description="The problem, its place, and a remedy")
    errors: list[dict[str, object]] | None = Field(
        default=None, description="Of a request with invalid parameters: each with type, loc (its place) and msg"
    )


class SessionInfo(Model):
    """Who is signed in."""

    user: str
    console: str
    control_room: bool
    regions: list[str]
    csrf_token: str = Field(description="Send it as X-CSRF-Token with every change")
    expires: float = Field(description="Seconds since the epoch")


class Setting(Model):
    """One setting of a topic."""

    name: str
    value: str | None = Field(description="None where Kafka keeps it secret")
    source: Literal["topic", "mirror", "broker", "default"] = Field(
        description="topic: an override; mirror: copied by a mirror; broker: the cluster's; default: Kafka's"
    )
    read_only: bool = False
    documentation: str = ""


class Partition(Model):
    """One partition of a topic."""

    number: int
    leader: int | None
    replicas: list[int]
    in_sync: list[int]
    first_offset: int | None
    end_offset: int | None
    bytes: int | None


class Topic(Model):
    """A topic of a region."""

    region: str
    name: str
    partitions: list[Partition]
    bytes: int | None = Field(description="Of all its replicas together")
    records_per_s: float | None = Field(description="None in the first seconds")
    bytes_per_s: float | None
    mirror: str | None = Field(description="The mirror that writes it; None for an original")
    settings: list[Setting] = Field(description="Its overrides; in a topic's own answer, every setting")
    health: Health
    explanation: str = Field(default="", description="Why it is not healthy")

    @property
    def offsets(self) -> int | None:
        """Offsets between the beginning and the end of its partitions."""
        known = [p.end_offset - p.first_offset for p in self.partitions if None not in (p.end_offset, p.first_offset)]  # type: ignore[operator]
        return sum(known) if len(known) == len(self.partitions) else None


class GroupPartition(Model):
    """A group's position in a partition."""

    topic: str
    partition: int
    committed: int
    end_offset: int | None
    lag: int | None


class Member(Model):
    """A member of a group."""

    identity: str
    client: str
    host: str
    partitions: int


class Group(Model):
    """A consumer group."""

    region: str
    name: str
    kind: str = Field(description="consumer; connect for a mirror's workers, which keep their positions elsewhere")
    state: str
    members: list[Member] | None = Field(description="None where they cannot be read")
    partitions: list[GroupPartition]
    lag: int | None = Field(
        description="From its committed offsets to the end offsets; offsets of transaction markers count too"
    )


class Broker(Model):
    """A Kafka node."""

    region: str
    node: int
    host: str
    port: int
    rack: str | None
    controller: bool = Field(description="Whether it is the active controller")
    leads: int = Field(description="Partitions that it leads")
    replicas: int
    behind: int = Field(description="Replicas on it that are not in sync")
    bytes: int | None
    health: Health


class Task(Model):
    """A connector's task."""

    number: int
    state: str
    worker: str
    trace: str = Field(default="", description="Of its failure, now or before its last restart")


class Position(Model):
    """A mirror's position in a partition of its source."""

    topic: str
    partition: int
    offset: int = Field(description="Source offset of the last copied record")


class Connector(Model):
    """A connector of a mirror."""

    name: str
    kind: str
    state: str
    wanted: str = Field(
        default="", description="RUNNING, PAUSED or STOPPED, by its manifest; empty where that is not known"
    )
    worker: str
    trace: str = ""
    tasks: list[Task]
    source: str = Field(description="Alias of the cluster that it reads")
    target: str
    reads: str = Field(default="", description="The region of that cluster")
    writes: str = Field(default="", description="The region that it writes to")
    topics: str = Field(description="MirrorMaker 2's list of regular expressions")
    topics_exclude: str = Field(default="", description="The same, of the topics that it excludes")
    synchronisation: dict[str, str] = Field(
        default_factory=dict, description="Its settings for which configurations of topics it copies"
    )
    policy: Literal["identity", "default"]
    separator: str = Field(default=".", description="Between the source's alias and a topic's name, in a copy's")
    positions: list[Position]
    records_per_s: float | None = Field(description="From its positions; None until they were read twice")
    lag: int | None = Field(
        default=None,
        description="Records at the source that it has not copied; None where the console has no access to the source",
    )
    lags: dict[str, int] = Field(default_factory=dict, description="The same, by source topic")
    drops: bool = Field(default=False, description="Whether its transforms may drop records")
    found_s: float | None = Field(
        default=None, description="Seconds within which it finds a new topic; None where it does not look for any"
    )
    reads_as: str = Field(default="", description="The user that it reads as; empty where its configuration has none")
    writes_as: str = Field(default="", description="The user that it writes as")
    stalled: str = Field(default="", description="The problem of a connector that runs and delivers nothing")


class Mirror(Model):
    """A KafkaMirrorMaker2 of a region."""

    region: str
    name: str
    answers: bool = Field(description="Whether a Connect worker answers")
    state: str = Field(default="", description="As ./lab status shows it; empty where no worker answers")
    connectors: list[Connector]
    latency_ms_p50: int | None = Field(description="From production to this console, of the last seconds")
    latency_ms_p99: int | None
    health: Health
    explanation: str = Field(description="The problem and a remedy; empty while it is healthy")
    open_to_pods: bool = Field(
        default=False, description="Whether any pod may change it, since Kubernetes enforces no network policies here"
    )


class Flow(Model):
    """The records that a mirror copies from one region to another."""

    source: str
    target: str
    mirror: str
    records_per_s: float | None
    bytes_per_s: float | None
    lag: int | None = Field(
        description="Records at the source that the mirror has not copied yet; counted from its last positions where "
        "its workers do not answer. None while it is not known"
    )
    lag_s: float | None = Field(default=None, description="The age of the oldest of them")
    loss_in_s: float | None = Field(
        default=None, description="Time to loss: seconds until the source may delete the first of them"
    )
    endangered: bool = Field(default=False, description="Whether that is soon, and half of the retention is used up")
    gone: int = Field(default=0, description="Offsets that the source deleted before they were copied")
    latency_ms_p50: int | None
    latency_ms_p99: int | None
    state: str = Field(default="", description="Of its source connector, as ./lab status shows it")
    health: Health
    explanation: str


class Series(Model):
    """The measurements of a flow or a topic: a value for each of `times`, None where it is not known."""

    kind: Literal["flow", "topic"]
    region: str = Field(description="The topic's region, or the flow's target")
    topic: str = Field(description="Empty for a flow")
    source: str = Field(description="The flow's source; empty for a topic")
    mirror: str = Field(description="Empty for a topic")
    records_per_s: list[float | None] = Field(
        description="Growth of offsets since the previous sample: for a flow and its copies the source's copied "
        "offsets, for any other topic its own"
    )
    bytes_per_s: list[float | None] = Field(
        description="Growth of the leaders' logs since the previous sample, in compressed bytes"
    )
    lag: list[float | None] = Field(description="Records at the source that were not copied")
    lag_s: list[float | None] = Field(description="The age of the oldest of them")
    latency_ms_p50: list[float | None] = Field(description="From production to this console, of records that it read")
    latency_ms_p99: list[float | None]


class Past(Model):
    """The last hour."""

    times: list[float] = Field(description="When samples were taken, in seconds since the epoch, the oldest first")
    series: list[Series]
    left_out: int = Field(description="Flows and topics that do not fit into the console's history")


class RegionState(Model):
    """A region at a glance."""

    name: str
    health: Health
    explanation: str
    brokers: int | None
    topics: int | None
    partitions: int | None
    records_per_s: float | None
    bytes_per_s: float | None


class Answer(Model):
    """Lists of several regions, and the regions that could not be read."""

    problems: list[str] = Field(description="Regions that do not answer, each with a remedy")


class Topics(Answer):
    """Topics."""

    topics: list[Topic]


class Groups(Answer):
    """Consumer groups."""

    groups: list[Group]


class Brokers(Answer):
    """Kafka nodes."""

    brokers: list[Broker]


class Mirrors(Answer):
    """Mirrors."""

    mirrors: list[Mirror]


class Flows(Answer):
    """Flows, and the regions at their ends."""

    flows: list[Flow]
    regions: list[RegionState]


class LinkClient(Model):
    """One client's traffic over a link, in one direction."""

    region: str = Field(description="Where it runs")
    client: str = Field(description="As in KafkaMirrorMaker2/mm2-na, Deployment/producer, prove, others")
    bytes: int
    connections: int
    open: int


class LinkDirection(Model):
    """A link's traffic and settings from one region to another."""

    source: str
    target: str
    delay_ms: float
    jitter_ms: float
    bytes_per_s: float | None = Field(description="The link's rate limit; null for none")
    silent: bool
    refuses: bool = Field(default=False, description="Whether a firewall there refuses connections from here")
    connections: int = Field(default=0, description="Connections that clients in the source region opened")
    turned_away: int = Field(default=0, description="Connections that the firewall refused")
    carried: int = Field(description="Bytes delivered since the link's relay was started")
    on_the_way: int
    clients: list[LinkClient]


class Link(Model):
    """A link between two regions, on the local platform."""

    between: tuple[str, str]
    state: str = Field(description="open, cut, silent, silent to REGION, or down")
    health: Health
    explanation: str
    since: float | None
    directions: list[LinkDirection]


class Links(Model):
    """Links; empty where the regions are in a Kubernetes cluster."""

    links: list[Link]


LinkValue = Annotated[str, StringConstraints(min_length=1, max_length=20)]


class LinkChange(Model):
    """A change of a link; settings that are left out stay as they are."""

    delay: LinkValue | None = Field(None, description="As in 80ms")
    jitter: LinkValue | None = Field(None, description="As in 5ms")
    rate: LinkValue | None = Field(None, description="As in 20MB/s, or unlimited")
    action: Literal["cut", "silent", "heal", "forget"] | None = None
    one_way: bool = Field(default=False, description="Only the direction from the first region to the second")


class Cell(Model):
    """A region's value in a row of a comparison."""

    value: str | None
    source: str = ""


class Row(Model):
    """One setting of a topic, region by region."""

    name: str
    cells: list[Cell] = Field(description="One for each region, in the order of `regions`")
    differs: bool
    copied: bool = Field(default=True, description="Whether a mirror copies it; otherwise it may differ permanently")


class Comparison(Answer):
    """A topic that applications write, and its copies, in the regions of this console."""

    topic: str = Field(description="Its name where applications write it")
    regions: list[str]
    names: list[str] = Field(description="Its name in each of `regions`: a mirror may add a prefix")
    rows: list[Row]


class Header(Model):
    """A record's header."""

    name: str
    value: str


class Message(Model):
    """A record as text that is safe to show."""

    region: str
    topic: str
    partition: int
    offset: int
    timestamp: int = Field(description="Milliseconds since the epoch")
    arrived: int = Field(description="When this console read it, in milliseconds since the epoch")
    latency_ms: int | None = Field(description="From production to this console")
    key: str
    summary: str = Field(description="The event in a sentence")
    value: str = Field(description="As text, truncated after some thousand characters")
    headers: list[Header]
    bytes: int
    raw: str = Field(description="The first bytes of the value, in hexadecimal")


class Messages(Answer):
    """The latest records."""

    messages: list[Message]


class Search(Answer):
    """Records that were found."""

    messages: list[Message] = Field(description="In the order that was asked for; the oldest first by default")
    read: int = Field(description="How many records were searched")
    reached: int | None = Field(
        description="Milliseconds since the epoch up to which everything was searched, or back to which: continue "
        "from there. None where everything was searched"
    )
    older: str = Field(default="", description="The position of the records before these, for `at` with order=newest")
    newer: str = Field(default="", description="The position of the records after these, for `at` with order=oldest")
    notes: list[str] = Field(default_factory=list, description="Regions that do not have the topic or the partition")


class RecordPart(Model):
    """A key, a value or a header's value in full."""

    text: str | None = Field(description="None for a null, and where it is not valid UTF-8")
    base64: str | None = Field(description="Where it is not valid UTF-8; None otherwise")
    bytes: int
    null: bool = Field(description="Null differs from empty; a record with a null value is a tombstone")


class RecordHeader(Model):
    """A header in full."""

    name: str
    value: RecordPart


class WholeRecord(Model):
    """One record in full."""

    region: str
    topic: str
    partition: int
    offset: int
    timestamp: int = Field(description="Milliseconds since the epoch")
    key: RecordPart
    value: RecordPart
    decoded: dict[str, Any] | None = Field(
        description="Of an internal topic of MM2 or Connect: kind and fields, or an error; None of others"
    )
    headers: list[RecordHeader]


class ProducedRecord(Model):
    """A record to write. Null and an empty text differ."""

    key: Annotated[str, StringConstraints(max_length=60_000)] | None = None
    value: Annotated[str, StringConstraints(max_length=60_000)] | None = Field(
        default=None, description="Null for a tombstone, which needs a key"
    )
    headers: Annotated[list[Annotated[str, StringConstraints(max_length=4000)]], Field(max_length=50)] = Field(
        default_factory=list, description="Each as name: value"
    )
    partition: Annotated[int, Field(ge=0, lt=2**31)] | None = Field(
        default=None, description="Null to choose it by the key"
    )


class Produced(Model):
    """Where an acknowledged record is."""

    region: str
    topic: str
    partition: int
    offset: int
    timestamp: int = Field(description="Milliseconds since the epoch")


SettingName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9.]{0,99}$")]
SettingValue = Annotated[str, StringConstraints(max_length=4000)]


class SettingsChange(Model):
    """Settings of a topic to change."""

    settings: Annotated[dict[SettingName, SettingValue | None], Field(min_length=1, max_length=50)] = Field(
        description="name → value; null removes the override", examples=[{"retention.ms": "3600000"}]
    )


class Done(Model):
    """A change was carried out."""

    said: str


class Change(Model):
    """A change that was made through a console, or tried."""

    at: float = Field(description="Seconds since the epoch")
    user: str
    region: str = Field(description="Empty for a change of no region")
    action: str = Field(description="As in create topic")
    subject: str = Field(description="The name of what was changed")
    done: bool = Field(description="False where it was refused, failed or interrupted")
    said: str = Field(description="The outcome, or the reason")


class Changes(Model):
    """The latest changes."""

    changes: list[Change] = Field(description="The last one first")
    operator: bool = Field(description="Whether this console may change topics, groups and records")


class Step(Model):
    """A step of a job."""

    said: str = Field(description="The job's message; a later message of the same step replaces it")
    begun: float = Field(description="Seconds after the job's beginning")
    seconds: float | None = Field(description="How long it took; None while it runs")


class VerdictOfClaim(Model):
    """A claim of a proof, and its verdict."""

    id: str
    says: str
    verdict: str


class PastProof(Model):
    """A proof that was run from here."""

    id: str = Field(description="Of its report: /proof/report?of=ID")
    started: float = Field(description="Seconds since the epoch")
    seconds: float
    verdict: str = Field(description="proved, disproved or inconclusive; failed where it reached none")
    explanation: str = Field(description="Why it reached no verdict")
    claims: list[VerdictOfClaim]
    report: bool = Field(description="Whether its report is still kept")


class PastProofs(Model):
    """The proofs that were run from here, the latest first."""

    proofs: list[PastProof]


class JobState(Model):
    """A job of the control room, and its outcome."""

    name: str
    state: Literal["never", "running", "done", "failed", "unavailable"]
    explanation: str
    started: float | None = Field(description="Seconds since the epoch")
    seconds: float | None
    progress: list[str] = Field(description="The last lines of its output")
    steps: list[Step] = Field(default_factory=list, description="Its last steps")
    exit_code: int | None
    result: dict[str, object] | None = Field(description="Its JSON document")
    report: bool = Field(default=False, description="Whether there is an HTML report")
    report_id: str = Field(default="", description="Its id, as in /proof/report?of=ID")


class Manifest(Model):
    """A file of the scenario."""

    name: str
    text: str


class Exercise(Model):
    """A step of the scenario's lab text."""

    number: int
    title: str
    markdown: str


class Scenario(Model):
    """The scenario that is set up."""

    name: str
    manifests: list[Manifest]
    exercises: list[Exercise]
