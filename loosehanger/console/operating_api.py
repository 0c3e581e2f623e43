"""The API for changes of topics, records and groups, and for their previews."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from loosehanger.console.api import (
    CHANGE,
    MAY,
    READ,
    ConnectorName,
    ContextOf,
    MirrorName,
    RegionName,
    SessionOf,
    TopicName,
    problems,
)
from loosehanger.console.configuration import configuration_of
from loosehanger.console.models import Done
from loosehanger.console.operation_models import (
    MOST_GROUP_NAME,
    ConnectorConfiguration,
    DeletedPart,
    GroupReset,
    NewTopic,
    PartitionCount,
    RecordDeletion,
    ResetPreview,
    Users,
)

router = APIRouter(prefix="/api", responses=READ)
OPERATE = {**CHANGE, **problems(429)}
Group = Annotated[str, Query(min_length=1, max_length=MOST_GROUP_NAME, description="The id of a group of consumers")]


@router.get("/users", summary="Users and their rights")
async def users(context: ContextOf) -> Users:
    """The users of each cluster, with their ACLs. Only the set-up changes them."""
    return await context.operations.users()


@router.get(
    "/regions/{region}/mirrors/{mirror}/connectors/{connector}/configuration",
    summary="A connector's configuration",
    responses=problems(400, 404, 503),
)
async def configuration(
    context: ContextOf, region: RegionName, mirror: MirrorName, connector: ConnectorName
) -> ConnectorConfiguration:
    """Every setting with its default; secrets are left out."""
    return await configuration_of(context.service, region, mirror, connector)


@router.post("/regions/{region}/topics", summary="Create a topic", dependencies=MAY, responses=OPERATE)
async def create_topic(context: ContextOf, session: SessionOf, region: RegionName, wanted: NewTopic) -> Done:
    """With the cluster's default number of replicas."""
    return Done(said=await context.operations.create_topic(session.user, region, wanted))


@router.delete("/regions/{region}/topics/{topic}", summary="Delete a topic", dependencies=MAY, responses=OPERATE)
async def delete_topic(context: ContextOf, session: SessionOf, region: RegionName, topic: TopicName) -> Done:
    """With its records. Copies elsewhere stay."""
    return Done(said=await context.operations.delete_topic(session.user, region, topic))


@router.put(
    "/regions/{region}/topics/{topic}/partitions", summary="Add partitions", dependencies=MAY, responses=OPERATE
)
async def add_partitions(
    context: ContextOf, session: SessionOf, region: RegionName, topic: TopicName, wanted: PartitionCount
) -> Done:
    """Up to a number; Kafka never takes one away."""
    return Done(said=await context.operations.add_partitions(session.user, region, topic, wanted.partitions))


@router.get(
    "/regions/{region}/topics/{topic}/deletion",
    summary="What a deletion of records would do",
    responses=problems(400, 404, 503),
)
async def preview_deletion(
    context: ContextOf,
    region: RegionName,
    topic: TopicName,
    partition: Annotated[str, Query(max_length=20, description="Empty for all")] = "",
    before: Annotated[str, Query(max_length=20, description="The first offset that stays; empty for the end")] = "",
) -> list[DeletedPart]:
    """Each partition with the offsets that it would lose."""
    return await context.operations.preview_deletion(region, topic, partition, before)


@router.post("/regions/{region}/topics/{topic}/deletion", summary="Delete records", dependencies=MAY, responses=OPERATE)
async def delete_records(
    context: ContextOf, session: SessionOf, region: RegionName, topic: TopicName, wanted: RecordDeletion
) -> Done:
    """Those before an offset of each partition."""
    return Done(said=await context.operations.delete_records(session.user, region, topic, wanted))


@router.get("/regions/{region}/reset", summary="What a reset of a group would do", responses=problems(400, 404, 503))
async def preview_reset(
    context: ContextOf,
    region: RegionName,
    group: Group,
    to: Annotated[
        str, Query(max_length=40, description="earliest, latest, an offset, a time, or how long ago, as in 10m")
    ],
    topic: Annotated[str, Query(max_length=249, description="Empty for the partitions that it has committed")] = "",
    partition: Annotated[str, Query(max_length=20)] = "",
) -> ResetPreview:
    """Each offset, and how many records the group would read again or skip."""
    return await context.operations.preview_reset(region, group, to, topic, partition)


@router.post("/regions/{region}/reset", summary="Reset a group", dependencies=MAY, responses=OPERATE)
async def reset(context: ContextOf, session: SessionOf, region: RegionName, wanted: GroupReset) -> Done:
    """To the offsets of a preview: refused once the group has moved on from it, and while the group has members."""
    return Done(said=await context.operations.reset(session.user, region, wanted))


@router.delete("/regions/{region}/groups", summary="Delete a group", dependencies=MAY, responses=OPERATE)
async def delete_group(context: ContextOf, session: SessionOf, region: RegionName, group: Group) -> Done:
    """With its committed offsets: refused while the group has members."""
    return Done(said=await context.operations.delete_group(session.user, region, group))
