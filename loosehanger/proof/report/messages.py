"""Sentences for people about claims and findings. No program parses them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import groupby
from typing import Any

from loosehanger.headers import SEQ
from loosehanger.lab.claims.claims import Claim, KeptIn
from loosehanger.proof.compare.configurations import TOPIC
from loosehanger.proof.difference import Difference
from loosehanger.proof.evidence.findings import Finding
from loosehanger.proof.flows import Flow, FlowId
from loosehanger.proof.judge import FAULT_KEYS
from loosehanger.proof.read.external import EXTERNAL, said
from loosehanger.proof.read.mirrors import describe

_PHRASES = {kind.value: kind.phrase for kind in Difference}
_SINGLE = {kind.value: kind.single for kind in Difference} | {"configuration differences": "configuration difference"}
_MOST = 5
"""Ranges of records in a sentence."""
_MOST_PLACES = 10
"""Partitions of a flow that are named one by one."""
_MOST_HOLDERS = 3
"""Open transactions in a sentence."""
Details = Mapping[str, Any]


def says(claim: Claim) -> str:
    """A claim as a sentence."""
    subject = claim.subject
    match claim.kind:
        case "copy" if subject["mirror"] == EXTERNAL:
            return f"{subject['target']} has an exact copy of {subject['source']}'s topics"
        case "copy":
            return (
                f"{subject['target']} has an exact copy of all that {said(subject['mirror'])} takes from "
                + (subject["source"])
            )
        case "contains":
            return f"{subject['target']} has every record that mirror {subject['mirror']} takes from " + (
                f"{subject['source']}{', up to the fence of the mirror' if claim.window is not None else ''}"
            )
        case "through":
            return (
                f"what {subject['source']} writes goes through {subject['by']} to {subject['target']}, each record once"
            )
        case "absent":
            kinds = (("topics", "topic"), ("headers", "header"), ("fields", "field"), ("groups", "trace of group"))
            what = ", ".join(f"no {name} {subject[kind]}" for kind, name in kinds if kind in subject)
            return f"{subject['region']} has {what}, and no user there can read such a topic at its origin"
        case "rights":
            return f"{subject['region']} has no ACL that the manifests do not list"
        case "whole":
            return f"{subject['region']} sees the {subject['topic']} of every region, each record once"
        case "kept":
            kept_in = claim.kept_in or KeptIn()
            without, where = " and ".join(kept_in.not_in), " or ".join(kept_in.regions) or "a surviving cluster"
            return f"every record of {subject['producer']} that was acknowledged is in {where}" + (
                f", {without} not counted" if without else ""
            )
        case "groups":
            group, target = subject["group"], subject["target"]
            return f"{group} continued in {target}: nothing skipped, and read again what was predicted"


def counted(faults: Mapping[str, int]) -> str:
    """Numbers with what they count, for example ``1 duplicate, 2 missing``."""
    return ", ".join(
        f"{count:,} {(_SINGLE if count == 1 else _PHRASES).get(name, name)}" for name, count in faults.items()
    )


def sentences(findings: Iterable[Finding], flows: Iterable[Flow]) -> list[str]:
    """The findings in words, each sentence once.

    Args:
        findings: of any claims, in reading order; the faults of a flow stand together.
        flows: the flows that the findings are about.
    """
    where = _places(flows)
    found: list[str] = []
    for (flow, is_fault), group in groupby(findings, lambda finding: (finding.flow, finding.kind in FAULT_KEYS)):
        together = list(group)
        found += _faults(together, where[flow or ""]) if is_fault else [_sentence(one, where) for one in together]
    return list(dict.fromkeys(found))


def _places(flows: Iterable[Flow]) -> dict[FlowId, str]:
    """The name of each flow: with its mirror where another flow has the same topic and regions."""
    flows = list(flows)
    alike = Counter((flow.topic, flow.source, flow.target) for flow in flows)
    return {"": ""} | {
        flow.id: f"{flow.topic}, {flow.source} → {flow.target}"
        + (
            f" by {said(flow.mirror.name).removeprefix('mirror ')}"
            if alike[flow.topic, flow.source, flow.target] > 1
            else ""
        )
        + ": "
        for flow in flows
    }


def _faults(findings: list[Finding], where: str) -> list[str]:
    """One sentence with all numbers of a flow, and one for each detail."""
    return [
        where + counted({finding.kind: finding.count for finding in findings}),
        *(sentence for finding in findings for sentence in _more(finding, where)),
    ]


def _more(finding: Finding, where: str) -> Iterator[str]:
    begins, deleted = finding.details.get("log_begins", ()), finding.details.get("source_offsets", ())
    for entry in begins[:_MOST_PLACES]:
        yield (
            f"{where}the target's partition {entry['partition']} begins at offset {entry['offset']:,}, "
            "records before it were deleted"
        )
    if more := len(begins[_MOST_PLACES:]):
        yield f"{where}{more:,} more of the target's partitions begin later"
    for entry in deleted[:_MOST_PLACES]:
        yield (
            f"{where}partition {entry['partition']}: source offsets {entry['first']:,} to {entry['last']:,} were "
            "deleted before they were mirrored"
        )
    if more := len(deleted[_MOST_PLACES:]):
        yield f"{where}source offsets of {more:,} more partitions were deleted before they were mirrored"


def _sentence(finding: Finding, where: Mapping[FlowId, str]) -> str:
    details = {**finding.details, "count": finding.count}
    sentence = _SENTENCES[finding.kind]
    # A topic that was not compared is not a known flow; its sentence names it.
    return where.get(finding.flow or "", "") + (
        sentence.format_map(details) if isinstance(sentence, str) else sentence(details)
    )


def _config_difference(details: Details) -> str:
    if details["name"] == TOPIC:
        return f"the target has no copy of topic {details['source']}"
    sides = (f"{side} {'not set' if details[side] is None else details[side]}" for side in ("source", "target"))
    return f"{details['name']} differs: {', '.join(sides)}"


def _settings_differ(details: Details) -> str:
    topics = details["topics"]
    of = f"topic {topics[0]}"
    if len(topics) > 1:
        of = f"{len(topics)} topics ({', '.join(topics[:_MOST])}{', …' if len(topics) > _MOST else ''})"
    return f"{_config_difference(details)}, of {of}; not judged"


def _no_topics(details: Details) -> str:
    excluded = f", without '{details['exclude']}'" if details["exclude"] else ""
    return (
        f"{said(details['mirror'])}: {details['source']} has no topic that matches '{details['pattern']}'{excluded} "
        f"and that the user '{details['user']}' may see"
    )


def _chooser(details: Details) -> str:
    return "--topics" if details["mirror"] == EXTERNAL else said(details["mirror"])


def _named_topic_absent(details: Details) -> str:
    return f"{details['source']} has no topic {details['topic']}, which {_chooser(details)} names"


def _named_topic_left_out(details: Details) -> str:
    return (
        f"{details['source']}'s topic {details['topic']} is not compared, though {_chooser(details)} names it: "
        "its name is that of an internal topic, of an excluded one, or of a copy from the target"
    )


def _pattern_matches_nothing(details: Details) -> str:
    return f"{details['source']} has no topic that matches '{details['pattern']}' of {_chooser(details)}"


def _right_missing(details: Details) -> str:
    return f"{said(details['mirror'])}: {details['lacks']}"


def _right_unlisted(details: Details) -> str:
    origin = f"; {said(details['mirror'])} copies ACLs (sync.topic.acls.enabled)" if details["mirror"] else ""
    return f"{details['region']} has an ACL that no manifest lists: {details['rule']}{origin}"


def _only_at_target(details: Details) -> str:
    reason = f"cannot be seen: {details['lacks']}" if details["lacks"] else f"{details['source']} does not have"
    return f"{details['topic']} {'is' if details['certain'] else 'may be'} a copy of a topic that {reason}"


def _other_writer(details: Details) -> str:
    verb = "writes" if details["writes"] else "is held now, but may have written"
    return f"{said(details['mirror'])} {verb} into the same topic, from {details['source']}'s {details['topic']}"


def _covered_twice(details: Details) -> str:
    ways = (
        f"{way['topic']} (mirror {way['mirror']})" if way["mirror"] else str(way["topic"]) for way in details["ways"]
    )
    return f"{details['region']} has the records of {details['origin']} more than once: {' and '.join(ways)}"


def _stray_topic(details: Details) -> str:
    by = [f"mirror {entry['mirror']} makes it of {entry['source']}'s {entry['topic']}" for entry in details["by"]]
    return (
        f"{details['region']} has topic {details['topic']}, which a subscription by pattern reads too, and which is no "
        f"copy of any region's own: {' and '.join(by) or 'no mirror of the lab makes it'}"
    )


def _held_back(details: Details) -> str:
    partitions = details["partitions"]
    first = partitions[0]
    where = f"partition {first['partition']}" if len(partitions) == 1 else f"{len(partitions):,} partitions"
    stable = f" {first['last_stable_offset']:,}" if len(partitions) == 1 else ""
    holders = list(dict.fromkeys(one["holder"] for one in partitions if one["holder"]))
    more = f" and {len(holders) - _MOST_HOLDERS} more" if len(holders) > _MOST_HOLDERS else ""
    return (
        f"in {details['region']}, up to {details['count']:,} records of {where} are behind the last stable "
        f"offset{stable}, where no consumer of committed records sees them"
        + (f": {'; '.join(holders[:_MOST_HOLDERS])}{more}" if holders else "")
    )


def _latency_by_hop(details: Details) -> str:
    hops = ", ".join(f"{hop['region']} {hop['p50']:,}" for hop in details["hops"])
    return f"milliseconds since a record was produced in {details['source']}, half of them within: {hops}"


def _lost(details: Details) -> str:
    age = details["rpo_seconds"]
    recovery_point = "" if age is None else f"; the oldest was acknowledged {age:.1f} s before (the recovery point)"
    return (
        f"{details['count']:,} acknowledged records are in no surviving cluster, {details['processed']:,} of them had "
        f"been processed{recovery_point}: {_listed(details['records'])}"
    )


def _skipped(details: Details) -> str:
    return f"{details['group']} skipped {details['count']:,} records: {_listed(details['records'])}"


def _listed(ranges: list[Mapping[str, Any]]) -> str:
    """The first of many ranges; the document has all of them."""
    listed = [f"{one['topic']}-{one['partition']} {SEQ} {one['first']} to {one['last']}" for one in ranges[:_MOST]]
    return ", ".join(listed) + (f" and {len(ranges) - _MOST} more" if len(ranges) > _MOST else "")


def _group_skips(details: Details) -> str:
    places = [f"{one['records']:,} of partition {one['partition']}" for one in details["partitions"]]
    more = f" and {len(places) - _MOST} more partitions" if len(places) > _MOST else ""
    return (
        f"group {details['group']} would skip {details['count']:,} records after a switch, as its offsets at the "
        f"target are ahead: {', '.join(places[:_MOST])}{more}"
    )


def _group_absent(details: Details) -> str:
    places = [str(partition) for partition in details["partitions"]]
    which = "partition" if len(places) == 1 else "partitions"
    named = ", ".join(places[:_MOST_PLACES]) + (", …" if len(places) > _MOST_PLACES else "")
    return (
        f"group {details['group']} has no offset at the target in {which} {named}: after a switch it begins where "
        "auto.offset.reset says; have its offsets synchronised, or set them"
    )


def _recovery(details: Details) -> str:
    legs = ", ".join(
        f"{name} {'not yet' if seconds is None else f'{seconds:.1f}'}" for name, seconds in details["legs"].items()
    )
    return f"seconds from {details['begins']}: {legs}"


def _nothing_to_prove(details: Details) -> str:
    if since := details.get("since"):
        return f"nothing to prove: every record of the mirrored topics is older than {since} (--since)"
    return "nothing to prove: the mirrored topics have no records at the source"


_SENTENCES: Mapping[str, str | Callable[[Details], str]] = {
    # Of flows.
    "archive": ("{target}'s {topic} begins with up to {count:,} records of a former cluster, which are not compared"),
    "config_difference": _config_difference,
    "log_append_time": (
        "{target}'s topic {topic} has message.timestamp.type=LogAppendTime: each copy gets the time of its arrival, "
        "and so differs from its record; set CreateTime, and copy again"
    ),
    "never_mirrored_at_most": (
        "partition {partition}: at most {count:,} records may have been deleted at the source before they were mirrored"
    ),
    "compacted": (
        "the topic is compacted and has other writers, so missing records cannot be distinguished from replaced ones"
    ),
    "held_back": _held_back,
    "group_absent": _group_absent,
    "group_not_judged": "the offsets of group {group} are not judged: {reason}",
    "group_reads_again": "group {group} would read {count:,} records again after a switch",
    "group_skips": _group_skips,
    "not_compared": "{reason}",
    "order_differs": "{count:,} records are in another order; not judged",
    "only_at_target": _only_at_target,
    "other_writer": _other_writer,
    "settings_differ": _settings_differ,
    "settings_unknown": "neither its settings nor what retention has deleted can be judged: {lacks}",
    "untimed": "{count:,} records have no timestamp; their copies have the time at which they were copied",
    "topic_made_again": ("partition {partition}: the topic seems to have been recreated at the source: {reason}"),
    # Of mirrors.
    "failed": "mirror {mirror}: {reason}",
    "group_unknown": (
        "group {group} has committed no offset in the compared topics of {source}; name a group that reads them there"
    ),
    "groups_unread": "the offsets of its consumer groups cannot be read: {reason}",
    "mirror_behind": describe,
    "named_topic_absent": _named_topic_absent,
    "named_topic_left_out": _named_topic_left_out,
    "pattern_matches_nothing": _pattern_matches_nothing,
    "no_snapshot": "no snapshot has the position of mirror {mirror} at its fence",
    "no_topics": _no_topics,
    "not_claimed": "no claim covers mirror {mirror} in this stage",
    "own_topic": (
        "{target} has topic {target_topic}, and {source} does not: the pattern of mirror {mirror} covers its name, but "
        "the mirror has never copied into it"
    ),
    "right_missing": _right_missing,
    "unreachable": "{reason}",
    # Of chains.
    "ends_early": "goes no further than {region}, as {topic}: the next mirror's pattern does not take it",
    "not_there_yet": "has not reached {region} yet, as {topic}",
    "latency_by_hop": _latency_by_hop,
    "no_chain": "{by}: some of these mirrors do not exist, or they do not form a chain",
    "no_exact_hop": "goes by {hop}, which is {verdict}",
    # Of isolation.
    "field_present": (
        "{region}: {count:,} records of {topic} have a field {name}, the first one {topic}-{partition} at {offset}"
    ),
    "group_present": "{region}: {count:,} records of {topic} name a group {name}",
    "header_present": (
        "{region}: {count:,} records of {topic} have a header {name}, the first one {topic}-{partition} at {offset}"
    ),
    "name_present": "{region}: {count:,} records of {topic} name a topic {name}",
    "not_looked_through": "{region} was not scanned for what it must not have",
    "right_too_many": "{region} has the password of {origin}'s user {user}, who may read {topic} there (by {rule})",
    "right_unlisted": _right_unlisted,
    "rights_unread": "the ACLs of {region} were not read",
    "topic_present": "{region} has a topic {topic}",
    # Of regions as a whole.
    "covered_twice": _covered_twice,
    "no_exact_copy": "{region} sees this copy, which is {verdict}",
    "not_covered": "{region} has no copy of the {topic} of {origin}",
    "not_produced": "no region has a topic {topic} of its own",
    "stray_topic": _stray_topic,
    # Of switches.
    "acknowledged": "{count:,} records of {producer} were acknowledged",
    "given_up": (
        "{count:,} more were lost in an earlier disaster: they were only in a cluster that was wiped and rebuilt since"
    ),
    "lost": _lost,
    "not_passed": "{group} has not yet read all that was in {target} when it moved there",
    "nothing_acknowledged": "the ledger of {producer} has no acknowledged record",
    "read_again": "{group} read {count:,} records again; {predicted:,} were predicted",
    "recovery": _recovery,
    "retired": "{count:,} acknowledged records were deleted by retention",
    "sent_twice": "{count:,} records are stored twice: their producer got no answer and sent them again",
    "skipped": _skipped,
    # Of the proof.
    "broke_off": "the proof broke off: {reason}",
    "no_spark": "{reason}",
    "nothing_to_prove": _nothing_to_prove,
    "inconclusive": "{reason}",
}
