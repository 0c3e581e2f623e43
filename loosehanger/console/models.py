"""What the API answers, and what the pages show: the same objects."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

Health = Literal["good", "warning", "bad", "unknown"]


class Model(BaseModel):
    """What all have in common."""

    model_config = ConfigDict(extra="forbid")


class Problem(Model):
    """An error's body."""

    detail: str = Field(description="What is wrong, where, and what to do")


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
    value: str | None = Field(description="None where Kafka keeps it to itself")
    source: Literal["topic", "mirror", "broker", "default"] = Field(
        description="topic: set on it here; mirror: copied by a mirror; broker: the cluster's own; default: Kafka's"
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
    bytes: int | None = Field(description="On all its replicas together")
    records_per_s: float | None = Field(description="None until it has been watched for some seconds")
    bytes_per_s: float | None
    mirror: str | None = Field(description="The mirror that writes it; None for an original")
    settings: list[Setting] = Field(description="Those that were set; in a topic's own answer, every one")
    health: Health
    explanation: str = Field(default="", description="Why it is not well")

    @property
    def offsets(self) -> int | None:
        """Offsets between the beginning and the end of its partitions."""
        known = [p.end_offset - p.first_offset for p in self.partitions if None not in (p.end_offset, p.first_offset)]  # type: ignore[operator]
        return sum(known) if len(known) == len(self.partitions) else None


class GroupPartition(Model):
    """How far a group has come in a partition."""

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
    kind: str = Field(description="consumer; connect for workers of a mirror, who keep their positions elsewhere")
    state: str
    members: list[Member] | None = Field(description="None where they cannot be read")
    partitions: list[GroupPartition]
    lag: int | None = Field(description="Records between what it committed and the end; offsets of markers count too")


class Broker(Model):
    """A Kafka node."""

    region: str
    node: int
    host: str
    port: int
    rack: str | None
    controller: bool = Field(description="Whether the others ask it for what changes in the cluster")
    leads: int = Field(description="Partitions whose leader it is")
    replicas: int
    behind: int = Field(description="Replicas on it that are not in sync")
    bytes: int | None
    health: Health


class Task(Model):
    """A connector's task."""

    number: int
    state: str
    worker: str
    trace: str = Field(default="", description="What it died of: now, or before it was started again")


class Position(Model):
    """How far a mirror's connector has read its source."""

    topic: str
    partition: int
    offset: int = Field(description="Offset, at the source, of the last record that was copied")


class Connector(Model):
    """A connector of a mirror."""

    name: str
    kind: str
    state: str
    wanted: str = Field(
        default="", description="RUNNING, PAUSED or STOPPED, as its manifest wants it; empty where that is not known"
    )
    worker: str
    trace: str = ""
    tasks: list[Task]
    source: str = Field(description="Alias of the cluster that it reads")
    target: str
    reads: str = Field(default="", description="The region of that cluster")
    writes: str = Field(default="", description="The region that it writes to")
    topics: str = Field(description="MirrorMaker 2's list of regular expressions")
    topics_exclude: str = Field(default="", description="The same, of topics that it leaves out")
    synchronisation: dict[str, str] = Field(
        default_factory=dict, description="What it sets of which settings of topics it copies"
    )
    policy: Literal["identity", "default"]
    separator: str = Field(default=".", description="Between the source's alias and a topic's name, in a copy's")
    positions: list[Position]
    records_per_s: float | None = Field(description="From its positions; None until they were looked at twice")
    lag: int | None = Field(
        default=None,
        description="Records at the source that it has not copied; None where the console may not look there",
    )
    lags: dict[str, int] = Field(default_factory=dict, description="The same, by the source's topics")
    drops: bool = Field(default=False, description="Whether its transforms may drop records")
    found_s: float | None = Field(
        default=None, description="In how many seconds it finds a new topic; None where it does not look for any"
    )
    reads_as: str = Field(default="", description="The user that it reads as; empty where it does not say")
    writes_as: str = Field(default="", description="The user that it writes as")
    stalled: str = Field(default="", description="What is wrong where it runs and delivers nothing")


class Mirror(Model):
    """A KafkaMirrorMaker2 of a region."""

    region: str
    name: str
    answers: bool = Field(description="Whether a Connect worker answers")
    state: str = Field(default="", description="In a word, as ./lab status has it; empty where no worker answers")
    connectors: list[Connector]
    latency_ms_p50: int | None = Field(description="From production to where it can be read here, of the last seconds")
    latency_ms_p99: int | None
    health: Health
    explanation: str = Field(description="What is wrong, and what to do; empty when all is well")
    open_to_pods: bool = Field(
        default=False, description="Whether any pod may change it, since Kubernetes enforces no network policies here"
    )


class Flow(Model):
    """What a mirror carries from one region to another."""

    source: str
    target: str
    mirror: str
    records_per_s: float | None
    bytes_per_s: float | None
    lag: int | None = Field(
        description="Records at the source that the mirror has not copied yet; where its workers do not answer, since "
        "they did. None while that is not known"
    )
    lag_s: float | None = Field(default=None, description="How old the oldest of them is")
    loss_in_s: float | None = Field(
        default=None, description="In how many seconds, at the earliest, the source may have deleted one of them"
    )
    endangered: bool = Field(
        default=False, description="Whether that is soon, and half of what retention allows is used up"
    )
    gone: int = Field(default=0, description="Offsets that the source deleted before they were copied")
    latency_ms_p50: int | None
    latency_ms_p99: int | None
    state: str = Field(default="", description="Of its source connector, in a word, as ./lab status has it")
    health: Health
    explanation: str


class Series(Model):
    """What was measured of a flow, or of a topic: a value for each of `times`, None where there was nothing to tell."""

    kind: Literal["flow", "topic"]
    region: str = Field(description="Where the topic is, or where the flow goes")
    topic: str = Field(description="Empty for a flow")
    source: str = Field(description="Where the flow comes from; empty for a topic")
    mirror: str = Field(description="Empty for a topic")
    records_per_s: list[float | None] = Field(
        description="Since the sample before, by how far offsets have grown: of a flow and of what it copies, those of "
        "the source that were copied; of any other topic its own"
    )
    bytes_per_s: list[float | None] = Field(
        description="Since the sample before, by what the logs have grown on their leaders: compressed as they are"
    )
    lag: list[float | None] = Field(description="Records at the source that were not copied")
    lag_s: list[float | None] = Field(description="How old the oldest of them was")
    latency_ms_p50: list[float | None] = Field(description="From production to this console, of records that it read")
    latency_ms_p99: list[float | None]


class Past(Model):
    """The last hour."""

    times: list[float] = Field(description="When samples were taken, in seconds since the epoch, the oldest first")
    series: list[Series]
    left_out: int = Field(description="Flows and topics that the console has no room for")


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
    """Lists of several regions: what could be read, and what could not."""

    problems: list[str] = Field(description="Regions that do not answer, with what to do")


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
    """What one client has carried over a link, in one direction."""

    region: str = Field(description="Where it runs")
    client: str = Field(description="As in KafkaMirrorMaker2/mm2-na, Deployment/producer, prove, others")
    bytes: int
    connections: int
    open: int


class LinkDirection(Model):
    """What flows from one region to another over a link."""

    source: str
    target: str
    delay_ms: float
    jitter_ms: float
    bytes_per_s: float | None = Field(description="What the link lets through; null for any")
    silent: bool
    carried: int = Field(description="Bytes handed on since the link's relay was started")
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
    """Links; none where the regions are a cluster's."""

    links: list[Link]


LinkValue = Annotated[str, StringConstraints(min_length=1, max_length=20)]


class LinkChange(Model):
    """A change of a link; what is left out stays as it is."""

    delay: LinkValue | None = Field(None, description="As in 80ms")
    jitter: LinkValue | None = Field(None, description="As in 5ms")
    rate: LinkValue | None = Field(None, description="As in 20MB/s, or unlimited")
    action: Literal["cut", "silent", "heal", "forget"] | None = None
    one_way: bool = Field(default=False, description="Only what flows from the first region to the second")


class Cell(Model):
    """What a region has for a row of a comparison."""

    value: str | None
    source: str = ""


class Row(Model):
    """One thing of a topic, region by region."""

    name: str
    cells: list[Cell] = Field(description="One for each region, in the order of `regions`")
    differs: bool
    copied: bool = Field(default=True, description="Whether mirrors copy it; what none copies may differ for ever")


class Comparison(Answer):
    """A topic that applications write, and its copies, in the regions of this console."""

    topic: str = Field(description="Its name where applications write it")
    regions: list[str]
    names: list[str] = Field(description="What it is called in each of `regions`: a mirror may put a prefix before it")
    rows: list[Row]


class Header(Model):
    """A record's header."""

    name: str
    value: str


class Message(Model):
    """A record, made safe to look at."""

    region: str
    topic: str
    partition: int
    offset: int
    timestamp: int = Field(description="Milliseconds since the epoch")
    arrived: int = Field(description="When this console read it, likewise")
    latency_ms: int | None = Field(description="From production to this console")
    key: str
    summary: str = Field(description="In a reader's words")
    value: str = Field(description="As text, cut after some thousand characters")
    headers: list[Header]
    bytes: int
    raw: str = Field(description="The first bytes of the value, in hexadecimal")


class Messages(Answer):
    """The latest records."""

    messages: list[Message]


class Search(Answer):
    """Records that were found."""

    messages: list[Message] = Field(description="The oldest first")
    read: int = Field(description="How many records were looked at")
    reached: int | None = Field(
        description="Milliseconds since the epoch up to which everything was looked at, where there is more: "
        "search again from there. None where all was"
    )


SettingName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9.]{0,99}$")]
SettingValue = Annotated[str, StringConstraints(max_length=4000)]


class SettingsChange(Model):
    """Settings of a topic to change."""

    settings: Annotated[dict[SettingName, SettingValue | None], Field(min_length=1, max_length=50)] = Field(
        description="name → value; null gives a setting its default again", examples=[{"retention.ms": "3600000"}]
    )


class Done(Model):
    """A change was carried out."""

    said: str


class Step(Model):
    """What a job said that it does."""

    said: str = Field(description="In its words; what it says again of the same step takes the place of what it said")
    begun: float = Field(description="Seconds after the job's beginning")
    seconds: float | None = Field(description="How long it took; None while it is doing it")


class VerdictOfClaim(Model):
    """A claim of a proof, and what came of it."""

    id: str
    says: str
    verdict: str


class PastProof(Model):
    """A proof that was run from here."""

    id: str = Field(description="Of its report: /proof/report?of=ID")
    started: float = Field(description="Seconds since the epoch")
    seconds: float
    verdict: str = Field(description="proved, disproved or inconclusive; failed where it came to none")
    explanation: str = Field(description="Why it came to none")
    claims: list[VerdictOfClaim]
    report: bool = Field(description="Whether its report is still there")


class PastProofs(Model):
    """The proofs that were run from here, the latest first."""

    proofs: list[PastProof]


class JobState(Model):
    """A job of the control room: it runs, or this came of it."""

    name: str
    state: Literal["never", "running", "done", "failed", "unavailable"]
    explanation: str
    started: float | None = Field(description="Seconds since the epoch")
    seconds: float | None
    progress: list[str] = Field(description="The last lines that it said")
    steps: list[Step] = Field(default_factory=list, description="The last steps that it named")
    exit_code: int | None
    result: dict[str, object] | None = Field(description="Its JSON document")
    report: bool = Field(default=False, description="Whether there is a page for people")
    report_id: str = Field(default="", description="Which: /proof/report?of=ID")


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
    """What is set up."""

    name: str
    manifests: list[Manifest]
    exercises: list[Exercise]
