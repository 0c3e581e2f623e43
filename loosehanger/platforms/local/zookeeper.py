"""The ZooKeeper of an old Kafka cluster: one process, which keeps the cluster's metadata, passwords and ACLs.

Only programs with a certificate of the cluster's own authority reach it: Kafka keeps the SCRAM credentials there, and a
port on the loopback address is open to every user of the machine. Source of the settings: KIP-515, and the
administrator's guide of ZooKeeper 3.5.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from loosehanger.files import make_folder, write_file
from loosehanger.kafka.properties import format_properties
from loosehanger.lab.manifests.resources import JvmOptions
from loosehanger.platforms.local import processes
from loosehanger.platforms.local.processes import Process
from loosehanger.ports import LOOPBACK

if TYPE_CHECKING:
    from loosehanger.platforms.local.kafka_cluster import LocalCluster

HEAP = "128m"
SESSION_MS = 6000
"""How long ZooKeeper takes a node that was killed for a running one: as long, its successor cannot register."""


class ZooKeeper:
    """See the file's description.

    Args:
        cluster: the cluster. It listens at the port of the control plane, which the nodes of such a cluster do not
            have, and shows the certificate of the first node.
    """

    def __init__(self, cluster: LocalCluster) -> None:
        self._region, self._java = cluster.region, cluster.java
        self.folder = cluster.folder / "zookeeper"
        self.name = f"{cluster.name}-zookeeper-0"
        """The name of its process, as Strimzi called its pod."""
        self.port = cluster.region.node_port(0, 0)
        self._key_store = cluster.region.secrets / f"{cluster.name}-kafka-0" / "keystore.pem"
        self._authority = cluster.region.secrets / f"{cluster.name}-cluster-ca-cert" / "ca.crt"

    def process(self) -> Process:
        """Writes its settings, and returns its process."""
        settings = format_properties(self._settings())
        make_folder(self.folder / "data")
        write_file(self.folder / "zookeeper.properties", settings)
        write_file(self.folder / "log4j2.properties", self._java.logging_configuration)
        command = self._java.command(
            "org.apache.zookeeper.server.quorum.QuorumPeerMain",
            str(self.folder / "zookeeper.properties"),
            options=JvmOptions(),
            heap=HEAP,
            # Its beans for Log4j 1, which is not there.
            system={**self._java.logging(self.folder), "zookeeper.jmx.log4j.disable": "true"},
            temporary=self._region.temporary,
        )
        return Process(
            name=self.name,
            command=command,
            priority=processes.ZOOKEEPER,
            directory=self.folder,
            environment=self._java.environment,
            digest=processes.digest(settings, self._key_store.read_bytes()),
        )

    def node_properties(self, node: int) -> dict[str, str]:
        """Returns the settings by which a node keeps the cluster's metadata there, and reads its ACLs."""
        return {
            "broker.id": str(node),
            "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
            "zookeeper.connect": f"{LOOPBACK}:{self.port}",
            "zookeeper.session.timeout.ms": str(SESSION_MS),
            "zookeeper.connection.timeout.ms": "30000",
            # What a node creates there, only a certificate with the nodes' name may read and change.
            "zookeeper.set.acl": "true",
            "zookeeper.clientCnxnSocket": "org.apache.zookeeper.ClientCnxnSocketNetty",
            "zookeeper.ssl.client.enable": "true",
            "zookeeper.ssl.keystore.type": "PEM",
            "zookeeper.ssl.keystore.location": str(self._key_store),
            "zookeeper.ssl.truststore.type": "PEM",
            "zookeeper.ssl.truststore.location": str(self._authority),
        }

    def _settings(self) -> dict[str, str]:
        return {
            "dataDir": str(self.folder / "data"),
            "tickTime": "1000",
            "admin.enableServer": "false",
            "maxClientCnxns": "0",
            "autopurge.purgeInterval": "1",
            "secureClientPort": str(self.port),
            "secureClientPortAddress": LOOPBACK,
            "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
            "ssl.clientAuth": "need",
            "ssl.keyStore.type": "PEM",
            "ssl.keyStore.location": str(self._key_store),
            "ssl.trustStore.type": "PEM",
            "ssl.trustStore.location": str(self._authority),
        }
