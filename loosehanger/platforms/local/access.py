"""Writes the record by which the kit's own clients reach a region, and which ``loosehanger.lab.record`` reads."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from loosehanger.files import write_file
from loosehanger.lab.kit_users import PROVER
from loosehanger.lab.manifests import sign_ins
from loosehanger.lab.manifests.documents import Document
from loosehanger.lab.manifests.resources import Deployment, KafkaMirrorMaker2
from loosehanger.lab.manifests.views import MIRROR
from loosehanger.lab.programs import ledgers, prover_region
from loosehanger.lab.record import region_record
from loosehanger.lab.topology import Topology
from loosehanger.platforms.client_properties import client_file, client_properties
from loosehanger.platforms.local.deployment import LocalProgram
from loosehanger.platforms.local.kafka_cluster import LocalCluster
from loosehanger.platforms.local.mirror_maker import LocalMirrorMaker
from loosehanger.platforms.local.region import LocalRegion
from loosehanger.platforms.local.secret_store import read_secret
from loosehanger.platforms.web_consoles import audit, web_console


def record(region: LocalRegion, documents: Sequence[Document], topology: Topology) -> bool:
    """Writes client configurations for every user of the region, and the region's record; True when it changed.

    The configurations address each region directly. Only provers count as clients of one region, and reach the others
    through links.

    Args:
        region: the region.
        documents: the resources that were applied there.
        topology: all regions.
    """
    given = {document.name for document in documents if document.kind == "Secret"}
    clients, changed = _client_files(region, prover_region(topology), given)
    text = region_record(
        region.name,
        documents,
        clients=clients,
        logs={
            deployment["metadata"]["name"]: str(LocalProgram(region, Deployment.model_validate(deployment)).log)
            for deployment in region.resources("Deployment")
        },
        ledgers={name: str(region.volumes / claim) for (_, name), claim in ledgers(Topology(documents)).items()},
        consoles=[console for deployment in region.resources("Deployment") if (console := web_console(deployment))],
        audits=[found for deployment in region.resources("Deployment") if (found := audit(deployment))],
        exporters=[
            *(
                exporter
                for kafka in region.resources("Kafka")
                for exporter in LocalCluster.of(region, kafka["metadata"]["name"]).exporters()
            ),
            *(
                exporter
                for mirror in region.resources(MIRROR)
                for exporter in LocalMirrorMaker(region, KafkaMirrorMaker2.model_validate(mirror)).exporters()
            ),
        ],
        connect={
            mirror["metadata"]["name"]: LocalMirrorMaker(region, KafkaMirrorMaker2.model_validate(mirror)).access
            for mirror in region.resources(MIRROR)
        },
    )
    return changed | write_file(region.home / "access" / f"{region.name}.json", text)


def _client_files(region: LocalRegion, prover: str, given: Collection[str]) -> tuple[dict[str, str], bool]:
    """Writes the client properties of the region's users; returns each user's file, and whether a file changed.

    Args:
        region: the region.
        prover: the region of the prover.
        given: the secrets of manifests: a password that the platform has made is of no client of an identity provider.
    """
    own = region.home / "access" / region.name
    clients: dict[str, str] = {}
    changed = False
    for user in region.resources("KafkaUser"):
        name = user["metadata"]["name"]
        cluster = LocalCluster.of(region, user["metadata"]["labels"]["strimzi.io/cluster"])
        changed |= write_file(own / "ca.crt", read_secret(region, f"{cluster.name}-cluster-ca-cert")["ca.crt"])
        through_link = name == PROVER and prover in region.others
        secret = read_secret(region, name) if (region.secrets / name).is_dir() else {}
        tokens = sign_ins.tokens_of({"metadata": {"annotations": cluster.kafka.metadata.annotations}})
        sign_in = sign_ins.of_user(cluster.listener.content, user, tokens)
        if sign_in.mechanism == sign_ins.OAUTH and name not in given:
            continue
        properties = client_properties(
            sign_in,
            name,
            {key: value.decode() for key, value in secret.items() if not key.endswith(".p12")},
            ",".join(cluster.addresses_for(prover) if through_link else cluster.addresses(2)),
            str(own / "ca.crt"),
            tokens,
        )
        if properties is None:
            continue
        path = own / f"{name}.properties"
        changed |= write_file(path, client_file(properties))
        clients[name] = str(path)
    for path in own.glob("*.properties"):
        # The files of users that no longer exist.
        if path.stem not in clients:
            path.unlink()
            changed = True
    return clients, changed
