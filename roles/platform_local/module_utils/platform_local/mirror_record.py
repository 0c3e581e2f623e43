"""What the kit's clients must know of a mirror: read from its manifest, as every platform records it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

IDENTITY_POLICY = "org.apache.kafka.connect.mirror.IdentityReplicationPolicy"
_MM2_EXCLUDED = r"mm2.*\.internal,.*\.replica,__.*"


def mirror_entries(document: Mapping[str, Any], connect: Mapping[str, str]) -> list[dict[str, Any]]:
    """Describes the flows of a KafkaMirrorMaker2, as ``lab.access.Mirror`` reads them.

    Args:
        document: the manifest, of Strimzi's API v1, or of v1beta2 with its list of clusters.
        connect: how to reach the REST interface of its workers.

    Returns:
        An entry for each source that has a source connector.
    """
    spec = document["spec"]
    clusters = {cluster["alias"]: cluster for cluster in spec.get("clusters") or ()}
    entries = []
    for mirror in spec["mirrors"]:
        if mirror.get("sourceConnector") is None:
            continue
        source = mirror["source"] if "source" in mirror else clusters[mirror["sourceCluster"]]
        target = spec["target"] if "target" in spec else clusters[mirror["targetCluster"]]
        config = mirror["sourceConnector"].get("config") or {}
        identity = config.get("replication.policy.class") == IDENTITY_POLICY
        entries.append(
            {
                "name": document["metadata"]["name"],
                "source_alias": source["alias"],
                "target_alias": target["alias"],
                "source": _region_of(source["bootstrapServers"]),
                "target": _region_of(target["bootstrapServers"]),
                "policy": "identity" if identity else "default",
                "separator": str(config.get("replication.policy.separator", ".")),
                "topics": mirror.get("topicsPattern", ".*"),
                "topics_exclude": mirror.get("topicsExcludePattern") or _MM2_EXCLUDED,
                "connector": f"{source['alias']}->{target['alias']}.MirrorSourceConnector",
                "connect": dict(connect),
            }
        )
    return entries


def _region_of(bootstrap_servers: str) -> str:
    """``<cluster>-kafka-bootstrap.<namespace>.svc:<port>`` → namespace, which is the region's name."""
    return bootstrap_servers.split(":")[0].split(".")[1]
