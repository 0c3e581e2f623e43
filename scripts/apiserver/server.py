"""Runs etcd, kube-apiserver and some of Kubernetes' controllers on the loopback address, and sends them requests.

There are no nodes: resources are checked and stored, and nothing runs. The test writes what an operator or a kubelet
would report.
"""

from __future__ import annotations

import base64
import ipaddress
import json
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import requests
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from loosehanger.errors import LabError
from loosehanger.platforms.local.certificates import begin_certificate, key_usage
from loosehanger.ports import LOOPBACK, free_ports
from loosehanger.process_lifetime import end_with_parent
from loosehanger.waiting import wait_for
from scripts.apiserver.build import CONTROLLER_MANAGER

READY_SECONDS = 120.0
"""A start takes 3 seconds, and longer on a busy machine."""
STOP_SECONDS = 15.0
STARTS = 3
"""How often a start is tried: another program can take a free port before it is used here."""
CONTROLLERS = (
    "clusterrole-aggregation-controller",
    "garbage-collector-controller",
    "namespace-controller",
    "persistentvolumeclaim-protection-controller",
    "root-ca-certificate-publisher-controller",
    "serviceaccount-controller",
)
"""The controllers that create and delete namespaces. None of them reports on workloads: the tests do that."""

Document = dict[str, Any]


class RefusedError(LabError):
    """The API server's refusal of a request."""

    def __init__(self, status: Document) -> None:
        """Takes the server's own ``Status``."""
        super().__init__(status.get("message"))
        self.code: int = status.get("code", 0)
        self.reason: str = status.get("reason", "")


@dataclass(frozen=True)
class Account:
    """Credentials of an account: the server's address, its certificate authority, and a client certificate."""

    name: str
    address: str
    authority: bytes
    certificate: bytes
    key: bytes

    def write_kubeconfig(self, path: Path, context: str = "kubernetes", namespace: str = "default") -> Path:
        """Writes a kubeconfig with one context, and returns its path."""
        return write_kubeconfig(path, {context: self}, namespace)


def write_kubeconfig(path: Path, contexts: Mapping[str, Account], namespace: str = "default") -> Path:
    """Writes a kubeconfig, readable by its owner only, and returns its path.

    Args:
        path: the file to write.
        contexts: accounts by the names of their contexts, on one server or several; the first context is the current.
        namespace: the namespace of a client that names none.
    """

    def encoded(content: bytes) -> str:
        return base64.b64encode(content).decode()

    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {
                "name": name,
                "cluster": {"server": account.address, "certificate-authority-data": encoded(account.authority)},
            }
            for name, account in contexts.items()
        ],
        "users": [
            {
                "name": name,
                "user": {
                    "client-certificate-data": encoded(account.certificate),
                    "client-key-data": encoded(account.key),
                },
            }
            for name, account in contexts.items()
        ],
        "contexts": [
            {"name": name, "context": {"cluster": name, "user": name, "namespace": namespace}} for name in contexts
        ],
        "current-context": next(iter(contexts)),
    }
    _write_private(path, yaml.safe_dump(document).encode())
    return path


class ApiServer:
    """One API server with an etcd of its own."""

    def __init__(self, programs: Path, folder: Path) -> None:
        """Starts nothing yet.

        Args:
            programs: the folder with etcd and kube-apiserver.
            folder: an empty folder for keys, data and logs.
        """
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.programs = programs
        self.folder = folder
        self.address = ""
        self._authority = _Authority()
        self._running: list[subprocess.Popen[bytes]] = []
        self._plurals: dict[str, dict[str, Document]] = {}
        self._session = requests.Session()

    @property
    def has_controllers(self) -> bool:
        """Whether namespaces get their service accounts, and disappear after they were deleted."""
        return os.access(self.programs / CONTROLLER_MANAGER, os.X_OK)

    def start(self) -> None:
        """Starts everything and waits until it is ready.

        Raises:
            LabError: it did not become ready; the message has the end of its log.
        """
        for attempt in range(1, STARTS + 1):
            try:
                self._start()
            except LabError as error:
                self.stop()
                if attempt == STARTS or "address already in use" not in str(error):
                    raise
            else:
                return

    def stop(self) -> None:
        """Stops everything, in the reverse order of its start."""
        while self._running:
            process = self._running.pop()
            process.terminate()
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def account(self, name: str, *groups: str) -> Account:
        """Creates an account that can sign in and has no rights until RBAC grants some."""
        certificate, key = self._authority.sign(name, groups)
        return Account(name, self.address, self._authority.pem, certificate, key)

    def administrator(self) -> Account:
        """Returns an account with all rights."""
        return self.account("administrator", "system:masters")

    def request(self, method: str, path: str, body: Any = None, **parameters: Any) -> Document:
        """Sends a request to the API server as its administrator.

        Args:
            method: GET, POST, PUT, PATCH or DELETE; a PATCH is a server-side apply.
            path: with the leading slash.
            body: for the request, as JSON.
            parameters: of the query.

        Raises:
            RefusedError: the server refuses it.
        """
        kind = "application/apply-patch+yaml" if method == "PATCH" else "application/json"
        answer = self._session.request(
            method,
            self.address + path,
            params=parameters,
            data=None if body is None else json.dumps(body),
            headers={"Content-Type": kind},
            timeout=60,
        )
        # For an API that it does not serve, the server answers in plain text.
        if not answer.headers.get("Content-Type", "").startswith("application/json"):
            raise RefusedError({"code": answer.status_code, "message": f"{path}: {answer.text.strip()}"})
        document: Document = answer.json()
        if not answer.ok:
            raise RefusedError(document)
        return document

    def path(self, document: Document, *, of_kind: bool = False) -> str:
        """Returns the path of a resource, which need not exist; with ``of_kind`` that of its kind in its namespace.

        Raises:
            RefusedError: the server does not know the kind.
        """
        version, kind, metadata = document["apiVersion"], document["kind"], document.get("metadata", {})
        root = f"/apis/{version}" if "/" in version else f"/api/{version}"
        if kind not in self._plurals.get(version, {}):
            resources = self.request("GET", root)["resources"]
            self._plurals[version] = {entry["kind"]: entry for entry in resources if "/" not in entry["name"]}
        entry = self._plurals[version].get(kind)
        if entry is None:
            raise RefusedError({"code": 404, "reason": "NotFound", "message": f"no kind {kind} in {version}"})
        if entry["namespaced"]:
            root += f"/namespaces/{metadata.get('namespace', 'default')}"
        return f"{root}/{entry['name']}" + ("" if of_kind else f"/{metadata['name']}")

    def apply(self, document: Document, *, manager: str = "test", dry_run: bool = False) -> Document:
        """Applies a resource with server-side apply, which refuses unknown fields.

        Raises:
            RefusedError: the server refuses it.
        """
        parameters = {"fieldManager": manager, "fieldValidation": "Strict", "force": "true"}
        if dry_run:
            parameters["dryRun"] = "All"
        return self.request("PATCH", self.path(document), document, **parameters)

    def get(self, document: Document) -> Document | None:
        """Returns a resource by apiVersion, kind, namespace and name; None if it does not exist."""
        try:
            return self.request("GET", self.path(document))
        except RefusedError as error:
            if error.code == 404:
                return None
            raise

    def set_status(self, document: Document, status: Document) -> Document:
        """Writes a status, as an operator or a kubelet would, for the resource as it is now.

        Raises:
            RefusedError: the server refuses it, or the resource does not exist.
        """
        path = self.path(document)
        return self.request("PUT", f"{path}/status", self.request("GET", path) | {"status": status})

    def delete(self, document: Document) -> None:
        """Deletes a resource if it exists, without waiting until it is gone."""
        try:
            self.request("DELETE", self.path(document), {"propagationPolicy": "Background"})
        except RefusedError as error:
            if error.code != 404:
                raise

    def install(self, definitions: Sequence[Document]) -> None:
        """Applies CustomResourceDefinitions and waits until the server serves them.

        Raises:
            RefusedError: the server refuses a definition.
            LabError: the server does not serve one in time.
        """
        for definition in definitions:
            self.apply(definition)

        def missing() -> str | None:
            for definition in definitions:
                status = (self.get(definition) or {}).get("status", {})
                conditions = {entry["type"]: entry["status"] for entry in status.get("conditions") or ()}
                if conditions.get("Established") != "True":
                    return f"{definition['metadata']['name']} is not served"
            return None

        wait_for(missing, READY_SECONDS, "custom resources")
        self._plurals.clear()

    def _start(self) -> None:
        keys = self.folder / "keys"
        etcd, api = free_ports(2)
        self.address = f"https://{LOOPBACK}:{api}"
        _write_private(keys / "ca.crt", self._authority.pem)
        for name in ("etcd", "kube-apiserver"):
            self._write_pair(name, *self._authority.sign(name, server=True))
        service_account = ec.generate_private_key(ec.SECP256R1())
        _write_private(keys / "service-account.key", _private_pem(service_account))
        self._run_etcd(etcd)
        self._run(
            "kube-apiserver",
            {
                "etcd-servers": f"https://{LOOPBACK}:{etcd}",
                "etcd-cafile": keys / "ca.crt",
                "etcd-certfile": keys / "kube-apiserver.crt",
                "etcd-keyfile": keys / "kube-apiserver.key",
                "bind-address": LOOPBACK,
                "advertise-address": LOOPBACK,
                "secure-port": api,
                # Nothing in the cluster reaches the server by the service `kubernetes`: there are no pods.
                "endpoint-reconciler-type": "none",
                "tls-cert-file": keys / "kube-apiserver.crt",
                "tls-private-key-file": keys / "kube-apiserver.key",
                "client-ca-file": keys / "ca.crt",
                "service-account-issuer": "https://kubernetes.default.svc",
                "service-account-key-file": keys / "service-account.key",
                "service-account-signing-key-file": keys / "service-account.key",
                "service-cluster-ip-range": "10.96.0.0/16",
                "authorization-mode": "RBAC",
                "profiling": "false",
            },
        )
        administrator = self.administrator()
        self._write_pair("administrator", administrator.certificate, administrator.key)
        self._session = requests.Session()
        # The environment's proxies and certificate authorities are not for this server.
        self._session.trust_env = False
        self._session.verify = str(keys / "ca.crt")
        self._session.cert = (str(keys / "administrator.crt"), str(keys / "administrator.key"))
        wait_for(self._not_ready, READY_SECONDS, "the API server")
        if self.has_controllers:
            kubeconfig = keys / "controllers.kubeconfig"
            self.account("system:kube-controller-manager").write_kubeconfig(kubeconfig)
            self._run(
                CONTROLLER_MANAGER,
                {
                    "kubeconfig": kubeconfig,
                    "secure-port": 0,
                    "leader-elect": "false",
                    "use-service-account-credentials": "true",
                    "service-account-private-key-file": keys / "service-account.key",
                    "root-ca-file": keys / "ca.crt",
                    "controllers": ",".join(CONTROLLERS),
                },
            )

    def _run_etcd(self, port: int) -> None:
        keys = self.folder / "keys"
        etcd_tls = {
            "cert-file": keys / "etcd.crt",
            "key-file": keys / "etcd.key",
            "trusted-ca-file": keys / "ca.crt",
            "client-cert-auth": "true",
        }
        self._run(
            "etcd",
            {
                "data-dir": self.folder / "data",
                "listen-client-urls": f"https://{LOOPBACK}:{port}",
                "advertise-client-urls": f"https://{LOOPBACK}:{port}",
                "listen-peer-urls": f"https://{LOOPBACK}:0",
                **etcd_tls,
                **{f"peer-{name}": value for name, value in etcd_tls.items()},
                # A test's data need not survive a crash.
                "unsafe-no-fsync": "true",
                "log-level": "warn",
            },
        )

    def _not_ready(self) -> str | None:
        for process in self._running:
            if process.poll() is not None:
                name = Path(str(process.args[0])).name  # type: ignore[index]
                raise LabError(f"{name} ended with {process.returncode}: {self._end_of_log(name)}")
        try:
            answer = self._session.get(f"{self.address}/readyz", timeout=5)
        except requests.RequestException as error:
            return str(error)
        return None if answer.ok else answer.text

    def _end_of_log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(encoding="utf-8", errors="replace").strip()[-1500:]

    def _run(self, program: str, options: Mapping[str, object]) -> None:
        command = [str(self.programs / program), *(f"--{name}={value}" for name, value in options.items())]
        with (self.folder / f"{program}.log").open("wb") as log:
            process = subprocess.Popen(
                command,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                # Ctrl-C must reach only the tests, which then stop these processes in order.
                start_new_session=True,
                # However the tests end, these are killed: without its etcd an API server would not shut down.
                preexec_fn=partial(end_with_parent, signal.SIGKILL),
            )
        self._running.append(process)

    def _write_pair(self, name: str, certificate: bytes, key: bytes) -> None:
        _write_private(self.folder / "keys" / f"{name}.crt", certificate)
        _write_private(self.folder / "keys" / f"{name}.key", key)


class _Authority:
    """Signs the certificates of one server and of its clients."""

    def __init__(self) -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kubernetes")])
        self.certificate = (
            begin_certificate(self.name, self.name, self.key.public_key(), 1)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(key_usage(authority=True), critical=True)
            .sign(self.key, hashes.SHA256())
        )
        self.pem = self.certificate.public_bytes(serialization.Encoding.PEM)

    def sign(self, name: str, groups: Sequence[str] = (), *, server: bool = False) -> tuple[bytes, bytes]:
        """Returns a certificate and its key: a client's in these groups, and a loopback server's if ``server``."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
        subject.append(x509.NameAttribute(NameOID.COMMON_NAME, name))
        usages = [ExtendedKeyUsageOID.CLIENT_AUTH]
        names: list[x509.GeneralName] = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address(LOOPBACK))]
        builder = (
            begin_certificate(x509.Name(subject), self.name, key.public_key(), 1)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(key_usage(authority=False), critical=True)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key()), critical=False)
        )
        if server:
            usages.append(ExtendedKeyUsageOID.SERVER_AUTH)
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        certificate = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False).sign(
            self.key, hashes.SHA256()
        )
        return certificate.public_bytes(serialization.Encoding.PEM), _private_pem(key)


def _private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    # The format that Kubernetes accepts for the keys of service accounts.
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )


def _write_private(path: Path, content: bytes) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    with open(path, "xb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
        file.write(content)
