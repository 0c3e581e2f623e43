"""The problems of a lab for ``./lab status``, causes first: what is wrong, where, since when, and what to run next."""

from __future__ import annotations

import re
import textwrap
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from loosehanger.kafka.transactions import HANGS
from loosehanger.lab.manifests.views import MIRROR
from loosehanger.lab.mirrors.mirror import Mirror
from loosehanger.lab.mirrors.replication import is_copy, is_internal, offset_syncs, selected_topics, target_topic
from loosehanger.lab.record import Lab
from loosehanger.lab.scenario_index import SETUP
from loosehanger.problems import Problem, Rank, in_order
from loosehanger.times import span

if TYPE_CHECKING:
    from loosehanger.cli.retention_risk import MirrorRisk

Topics = Mapping[str, Mapping[str, int]]
"""By region, the number of partitions of each topic, for the clusters that answer."""
_RANKS = {"Kafka": Rank.CLUSTER, "Link": Rank.LINK, MIRROR: Rank.CONNECTOR, "Deployment": Rank.PROGRAM}
_NAMED = 3
"""Most topics that are compared with the patterns that they nearly match."""
_SIGNS = re.compile(r"[\w.-]")


def apply_again(lab: Lab) -> str:
    """The command that applies the manifests of the lab's stage again."""
    stage = lab.unfinished or lab.stage
    return f"./lab setup {lab.scenario}" if stage in ("", SETUP) else f"./lab stage {stage}"


def find_problems(
    lab: Lab,
    regions: Mapping[str, Sequence[Mapping[str, Any]]],
    known: Iterable[Problem],
    measured: Iterable[MirrorRisk],
    topics: Topics,
    rights: Mapping[tuple[str, str], Sequence[str]],
) -> list[Problem]:
    """Returns the problems of a lab, causes first, each with its next command.

    Args:
        lab: what is set up.
        regions: the health of every resource.
        known: the causes that the platform found.
        measured: the lag and risk of each mirror that has a claim in this stage.
        topics: the topics of each region.
        rights: by region and mirror, a sentence for each user that lacks rights.
    """
    found, measured = list(known), list(measured)
    if lab.unfinished:
        begun = f"the stage '{lab.unfinished}' was begun and not finished"
        found.append(Problem(Rank.LAB, begun, f"{lab.scenario} on {lab.platform}"))
    for (region, name), sentences in rights.items():
        where = _mirror_at(region, name)
        # They name the user, the region and the right, which a trace does not.
        traces = [one for one in found if one.where == where and one.rank == Rank.RIGHTS]
        own = [one for one in measured if (one.mirror.region, one.mirror.name) == (region, name)]
        waiting = min((written for one in own for written in one.waiting.values()), default=None)
        since = min(filter(None, (one.since for one in traces)), default=waiting)
        found = [one for one in found if one not in traces]
        found += [Problem(Rank.RIGHTS, sentence, where, since) for sentence in sentences]
    for standing in measured:
        found += of_mirror(standing)
        found += of_topics(standing.mirror, topics, lab.mirrors)
    named = [one.where for one in found]
    for region, resources in regions.items():
        if not resources:
            found.append(Problem(Rank.LAB, "the region has no resources", region))
        for one in resources:
            where = f"{region}, {one['kind']}/{one['name']}"
            if not one["healthy"] and not one.get("problems") and not any(place.startswith(where) for place in named):
                rank = _RANKS.get(one["kind"], Rank.OTHER)
                found.append(Problem(rank, one["detail"], where, next=f"./lab logs {region}"))
    return in_order(_shared(found))


def _shared(found: Iterable[Problem]) -> Iterator[Problem]:
    """Names a right once that several mirrors lack, because they sign in as the same user."""
    same: dict[tuple[int, str], list[Problem]] = {}
    for one in found:
        same.setdefault((one.rank, one.cause), []).append(one)
    for (rank, _), problems in same.items():
        if rank != Rank.RIGHTS:
            yield from problems
            continue
        places = dict.fromkeys(one.where for one in problems)
        since = min(filter(None, (one.since for one in problems)), default=None)
        yield replace(problems[0], where="; ".join(places), since=since)


def degrade(regions: Mapping[str, Iterable[dict[str, Any]]], problems: Iterable[Problem]) -> None:
    """Shows a running mirror as degraded that a problem is about, such as a setting that was changed by hand.

    Args:
        regions: the health of every resource, which is changed.
        problems: what was found. What could not be measured, or is past, changes nothing.
    """
    places = {place for one in problems if one.rank < Rank.OTHER for place in one.where.split("; ")}
    for region, resources in regions.items():
        for one in resources:
            own = f"{region}, {one['kind']}/{one['name']}"
            if one["healthy"] and one["state"] == "Running" and any(
                place == own or place.startswith(f"{own}, ") for place in places
            ):  # fmt: skip
                one |= {"healthy": False, "state": "Degraded"}


def _mirror_at(region: str, name: str) -> str:
    return f"{region}, {MIRROR}/{name}"


def of_mirror(standing: MirrorRisk) -> Iterator[Problem]:
    """The problems of a mirror's lag, and of the records that it may lose."""
    mirror = standing.mirror
    where = _mirror_at(mirror.region, mirror.name)
    for risk in standing.topics.values():
        place = f"{where}, topic {risk.topic}"
        describe = f"./lab kafka {mirror.source} configs --describe --entity-type topics --entity-name {risk.topic}"
        if risk.made_again:
            yield Problem(
                Rank.TOPIC,
                f"topic {risk.topic} ends in {mirror.source} before the mirror's position: it was deleted and created "
                "again, or has lost its end, and what the new one has is not copied",
                place,
                next=f"./lab kafka {mirror.source} topics --describe --topic {risk.topic}",
            )
        if risk.gone:
            lost = f"retention in {mirror.source} deleted {risk.gone:,} offsets of {risk.topic} before they were copied"
            yield Problem(Rank.TOPIC if risk.behind else Rank.OTHER, lost, place, next=describe)
        if risk.held_by:
            never = f"find-hanging --topic {risk.topic}" if HANGS in risk.held_by else "list"
            held = f"{risk.held:,} offsets of {risk.topic} wait behind an open transaction, {risk.held_by}"
            yield Problem(Rank.TOPIC, held, place, next=f"./lab kafka {mirror.source} transactions {never}")
        if risk.endangered:
            behind = (
                f"the mirror is {risk.behind:,} offsets behind, and {mirror.source} may delete what is not copied of "
                f"{risk.topic} by {risk.by} in {span(risk.loss_in_s)}"
            )
            since = None if risk.age_s is None else time.time() - risk.age_s
            yield Problem(
                Rank.FLOW, behind, place, since, f"./lab topic set {mirror.source} {risk.topic} retention.ms=604800000"
            )
    if standing.stalled:
        yield Problem(Rank.FLOW, standing.stalled, where, next=f"./lab logs {mirror.region}/{mirror.name}")
    if standing.problem:
        unknown = f"the mirror's lag could not be measured: {standing.problem}"
        yield Problem(Rank.OTHER, unknown, where, next="./lab status")


def of_topics(mirror: Mirror, topics: Topics, mirrors: Iterable[Mirror]) -> Iterator[Problem]:
    """The problems that the names and partitions of a mirror's topics show.

    Args:
        mirror: the mirror.
        topics: the topics of each region; nothing is said of a region that is left out.
        mirrors: all mirrors of the lab.
    """
    if mirror.source not in topics or mirror.target not in topics:
        return
    source, target = topics[mirror.source], topics[mirror.target]
    where = _mirror_at(mirror.region, mirror.name)
    for topic in selected_topics(mirror, source):
        copy = target_topic(mirror, topic)
        if (there := target.get(copy, source[topic])) < source[topic]:
            yield Problem(
                Rank.TOPIC,
                f"topic {copy} has {there} partitions in {mirror.target}, and its source {topic} has {source[topic]} "
                f"in {mirror.source}: records of partition {there} and above cannot be copied",
                f"{where}, topic {copy}",
                next=f"./lab kafka {mirror.target} topics --alter --topic {copy} --partitions {source[topic]}",
            )
    region, syncs = offset_syncs(mirror)
    if mirror.translates and mirror.state == "running" and syncs not in topics[region]:
        yield Problem(
            Rank.TOPIC,
            f"the offset-syncs topic {syncs} does not exist in {region}, so no group's offset is translated",
            where,
            next=f"restart the connector {mirror.connector} in the console of {mirror.region}: it creates the topic",
        )
    others = [one for one in mirrors if one.source == mirror.source]
    into = [one for one in mirrors if one.target == mirror.source]
    unmatched = [
        topic
        for topic in source
        if not is_internal(topic) and not any(is_copy(one, topic) for one in into)
        and not any(selected_topics(one, [topic]) or _excluded(one, topic) for one in others)
    ]  # fmt: skip
    near = [topic for topic in sorted(unmatched)[: _NAMED * 10] if nearly_matches(mirror.topics, topic)]
    for topic in near[:_NAMED]:
        yield Problem(
            Rank.TOPIC,
            f"topic {topic} of {mirror.source} is not copied: it differs by one character from the mirror's pattern "
            f"{mirror.topics}",
            f"{where}, topic {topic}",
            next="correct topicsPattern in the mirror's manifest or the topic's name, and apply the manifests again",
        )


def _excluded(mirror: Mirror, topic: str) -> bool:
    """Whether a topic matches a mirror's pattern, and is excluded."""
    return any(re.fullmatch(pattern.strip(), topic) for pattern in mirror.topics.split(","))


def nearly_matches(patterns: str, topic: str) -> bool:
    """Whether a topic's name with one character added, removed or changed matches one of the regular expressions.

    Args:
        patterns: MM2's list of regular expressions.
        topic: a name that matches none of them.
    """
    known = [re.compile(pattern.strip()) for pattern in patterns.split(",")]
    signs = sorted({*_SIGNS.findall(patterns)})
    names = {topic[:place] + topic[place + 1 :] for place in range(len(topic))}
    for place in range(len(topic) + 1):
        names |= {topic[:place] + sign + topic[place:] for sign in signs}
        names |= {topic[:place] + sign + topic[place + 1 :] for sign in signs}
    return any(pattern.fullmatch(name) for name in names for pattern in known)


def as_json(problem: Problem, again: str) -> dict[str, str | None]:
    """The document of a problem: its cause, where, since (ISO 8601, or null) and next."""
    since = datetime.fromtimestamp(problem.since).astimezone() if problem.since else None
    return {
        "cause": problem.cause,
        "where": problem.where,
        "since": since.isoformat(timespec="seconds") if since else None,
        "next": problem.next or again,
    }


def as_lines(problem: Problem, again: str, width: int) -> Iterator[str]:
    """The lines of a problem for a person: the cause, where and since when, and the next command.

    Args:
        problem: the problem.
        again: the command that applies the manifests again.
        width: how many characters a line may have; the command is never broken.
    """
    room = max(width - 2, 20)
    yield from textwrap.wrap(problem.cause, room, break_on_hyphens=False, break_long_words=False)
    since = ""
    if problem.since:
        at = datetime.fromtimestamp(problem.since).astimezone()
        since = f", since {at:%H:%M:%S} ({span(max(time.time() - problem.since, 0.0))})"
    yield from textwrap.wrap(
        f"{problem.where}{since}", room, initial_indent="  where ", subsequent_indent="        ",
        break_on_hyphens=False, break_long_words=False,
    )  # fmt: skip
    yield f"  next  {problem.next or again}"
