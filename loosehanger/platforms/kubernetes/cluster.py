"""A Kubernetes cluster: a client of its API server, for one account of a kubeconfig.

It signs in and discovers kinds with the collection kubernetes.core, so that collection's environment variables
(``K8S_AUTH_…``) apply here too.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import yaml
from ansible_collections.kubernetes.core.plugins.module_utils.k8s import client as collection
from ansible_collections.kubernetes.core.plugins.module_utils.k8s.exceptions import CoreException
from kubernetes.client.exceptions import ApiException
from kubernetes.config import ConfigException
from kubernetes.dynamic.exceptions import DynamicApiError, ResourceNotFoundError
from urllib3.exceptions import HTTPError

from loosehanger.errors import LabError, UnreachableError, WrongUseError
from loosehanger.lab.record import Region
from loosehanger.platforms.kubernetes.resources import FIELD_MANAGER, USER_FIELD_MANAGER, reference

ANSWER_SECONDS = 30
CONNECT_SECONDS = 10
SILENCE_SECONDS = 60
"""Seconds without a line after which a log's connection is reopened: some proxies drop idle connections silently."""
_REFUSED = (400, 409, 422)
"""The API server's status codes for a resource that it refuses."""
_NOT_NOW = (429, 502, 503, 504)
"""Status codes of an API server, or a proxy before it, that is busy, starting or unavailable."""

Document = dict[str, Any]
Documents = list[Document]


class _Uncached(collection.LazyDiscoverer):  # type: ignore[misc]
    """Discovers an API server's kinds anew in each process.

    The collection would keep them in a file of the temporary folder, which stays, and which another user of the machine
    may have written.
    """

    def __init__(self, client: Any, _: str | None) -> None:
        super().__init__(client, f"{os.devnull}/none")

    def _write_cache(self) -> None:
        """Writes no file."""


collection.LazyDiscoverer = _Uncached


class LogCutError(UnreachableError):
    """The connection of a log has closed; the log may continue."""


class KubernetesCluster:
    """A client of an API server.

    Args:
        kubeconfig: the file; empty for kubectl's default.
        context: the context in it; empty for its current context.

    Raises:
        WrongUseError: the file or the context does not exist.
        LabError: the API server cannot be reached.
    """

    def __init__(self, kubeconfig: str = "", context: str = "") -> None:
        self.name = context or "the current context"
        # The server's certificate is always verified, whatever the kubeconfig says.
        given = {"kubeconfig": kubeconfig or None, "context": context or None, "validate_certs": True}
        try:
            with _bounded_discovery():
                client = collection.get_api_client(**given)
        except (CoreException, ConfigException, yaml.YAMLError, OSError, HTTPError, ApiException) as error:
            if isinstance(error, HTTPError | ApiException):
                raise self._failure(error) from error
            reason = str(error).removeprefix("Could not create API client: ").split("\n")[0]
            raise WrongUseError(
                f"kubeconfig {kubeconfig or '(default)'}, {self.name}: {reason}; "
                "see platform_kubernetes_kubeconfig and platform_kubernetes_context"
            ) from error
        self._client = client.client

    def version(self) -> str:
        """The API server's version, such as ``v1.35.4``."""
        answer = self.request("GET", "/version")
        assert answer is not None
        return str(answer["gitVersion"])

    def serves(self, api_version: str, kind: str) -> bool:
        """Whether the API server serves the kind in this version."""
        try:
            self._resource(api_version, kind)
        except WrongUseError:
            return False
        return True

    def kinds(self, verb: str) -> Iterator[tuple[str, str]]:
        """Yields the namespaced kinds that support a verb, as the preferred ``apiVersion`` and ``kind``."""
        for group_version in ("v1", *(group["preferredVersion"]["groupVersion"] for group in self._groups)):
            root = "api" if group_version == "v1" else "apis"
            try:
                answer = self.request("GET", f"/{root}/{group_version}") or {}
            except LabError:
                continue  # An API extension, such as metrics, that is down.
            for resource in answer.get("resources", ()):
                if resource["namespaced"] and verb in resource["verbs"] and "/" not in resource["name"]:
                    yield group_version, resource["kind"]

    def get(self, api_version: str, kind: str, name: str, namespace: str | None = None) -> Document | None:
        """Returns a resource; None if it or its kind does not exist."""
        try:
            path = self._path(api_version, kind, name, namespace)
        except WrongUseError:
            return None
        return self.request("GET", path)

    def list(self, api_version: str, kind: str, namespace: str | None = None, selector: str = "") -> Documents:
        """Returns the resources of a kind, in one namespace or in all; none if the kind does not exist."""
        try:
            path = self._path(api_version, kind, None, namespace)
        except WrongUseError:
            return []
        answer = self.request("GET", path, label_selector=selector or None)
        items: Documents = (answer or {}).get("items") or []
        return [{"apiVersion": api_version, "kind": kind, **item} for item in items]

    def apply(self, document: Mapping[str, Any], *, dry_run: bool = False) -> Document:
        """Applies a resource with server-side apply, and takes ownership of the fields that the kit sets.

        The API server refuses unknown fields.

        Raises:
            WrongUseError: the API server refuses the resource.
            LabError: the API server refuses the account, or does not answer.
        """
        metadata = document["metadata"]
        path = self._path(document["apiVersion"], document["kind"], metadata["name"], metadata.get("namespace"))
        answer = self.request(
            "PATCH",
            path,
            body=dict(document),
            content_type="application/apply-patch+yaml",
            field_manager=FIELD_MANAGER,
            force_conflicts=True,
            dry_run="All" if dry_run else None,
            query_params=[("fieldValidation", "Strict")],
        )
        if answer is None:
            raise LabError(f"{reference(document)}: no namespace '{metadata.get('namespace')}'")
        return answer

    def change(self, document: Mapping[str, Any], fields: Mapping[str, Any]) -> Document | None:
        """Changes some fields of a resource, and removes those that are None; returns None if it does not exist.

        Raises:
            WrongUseError: the API server refuses the change.
            LabError: the API server refuses the account, or does not answer.
        """
        metadata = document["metadata"]
        path = self._path(document["apiVersion"], document["kind"], metadata["name"], metadata.get("namespace"))
        return self.request(
            "PATCH",
            path,
            body=dict(fields),
            content_type="application/merge-patch+json",
            query_params=[("fieldManager", USER_FIELD_MANAGER), ("fieldValidation", "Strict")],
        )

    def create(self, document: Mapping[str, Any]) -> Document:
        """Creates a resource, or requests a review by the API server."""
        namespace = document["metadata"].get("namespace") if "metadata" in document else None
        path = self._path(document["apiVersion"], document["kind"], None, namespace)
        answer = self.request("POST", path, body=dict(document))
        if answer is None:
            raise LabError(f"{reference(document)}: no namespace '{namespace}'")
        return answer

    def delete(
        self, document: Mapping[str, Any], propagation: str = "Background", grace_seconds: int | None = None
    ) -> bool:
        """Deletes a resource, if it exists: the one that was read, not a later one of the same name.

        Args:
            document: the resource.
            propagation: ``Background`` deletes the objects that it owns too; ``Orphan`` keeps them.
            grace_seconds: how long a pod may take to stop; None for its manifest's value.
        """
        metadata = document["metadata"]
        path = self._path(document["apiVersion"], document["kind"], metadata["name"], metadata.get("namespace"))
        options: Document = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": propagation}
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        if "uid" in metadata:
            options["preconditions"] = {"uid": metadata["uid"]}
        return self.request("DELETE", path, body=options) is not None

    def log(self, namespace: str, pod: str, container: str, lines: int, *, previous: bool = False) -> str:
        """Returns the end of a container's log; empty without one."""
        path = f"/api/v1/namespaces/{namespace}/pods/{pod}/log"
        query = [("container", container), ("tailLines", str(lines)), *([("previous", "true")] if previous else [])]
        try:
            response = self._client.request(
                "GET", path, query_params=query, serialize=False, _request_timeout=ANSWER_SECONDS
            )
        except (DynamicApiError, ApiException, HTTPError):
            return ""
        return str(response.data.decode("utf-8", "replace"))

    def follow(self, namespace: str, pod: str, container: str, since: str = "") -> Iterator[tuple[str, str]]:
        """Follows a container's log until it ends.

        Args:
            namespace: the pod's namespace.
            pod: the pod's name.
            container: the container's name.
            since: the time of the last known line; empty to begin at the beginning.

        Yields:
            Each line with its time, in ascending order.

        Raises:
            LogCutError: the connection closed before the log ended.
            LabError: the API server refuses the request.
        """
        path = f"/api/v1/namespaces/{namespace}/pods/{pod}/log"
        query = [("container", container), ("follow", "true"), ("timestamps", "true")]
        # It ignores fractions of a second; repeated lines are skipped below.
        query += [("sinceTime", f"{since[:19]}Z")] if since else []
        try:
            response = self._client.request(
                "GET",
                path,
                query_params=query,
                serialize=False,
                _request_timeout=(CONNECT_SECONDS, SILENCE_SECONDS),
            )
        except (DynamicApiError, ApiException, HTTPError) as error:
            raise self._failure(error) from error
        rest = b""
        try:
            for part in response.stream():
                *lines, rest = (rest + part).split(b"\n")
                for line in lines:
                    at, _, text = line.decode("utf-8", "replace").partition(" ")
                    if at > since:
                        yield at, text
        except HTTPError as error:
            raise LogCutError(str(error)) from error

    def allowed(self, attributes: Mapping[str, str]) -> bool:
        """Whether the account may do this, by a ``SelfSubjectAccessReview``."""
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": dict(attributes)},
        }
        return bool(self.create(review)["status"]["allowed"])

    def request(self, method: str, path: str, **parameters: Any) -> Document | None:
        """Sends a request to the API server; returns None for 404.

        Raises:
            WrongUseError: the API server refuses the content.
            LabError: the API server refuses the account, or does not answer.
        """
        try:
            response = self._client.request(
                method, path, serialize=False, _request_timeout=ANSWER_SECONDS, **parameters
            )
        except (DynamicApiError, ApiException, HTTPError) as error:
            if getattr(error, "status", None) == 404:
                return None
            raise self._failure(error) from error
        answer: Document = json.loads(response.data)
        return answer

    @cached_property
    def _groups(self) -> Documents:
        groups: Documents = (self.request("GET", "/apis") or {}).get("groups", [])
        return groups

    def _failure(self, error: Exception) -> LabError:
        if isinstance(error, HTTPError):
            reason = _one_line(getattr(error, "reason", None) or error)
            if "CERTIFICATE_VERIFY_FAILED" in reason:
                return WrongUseError(
                    f"{self.name}: the API server's certificate is not signed by an authority in the kubeconfig, and "
                    "the kit always verifies it; add the cluster's authority (certificate-authority-data)"
                )
            return UnreachableError(f"{self.name}: the API server cannot be reached: {reason}")
        status = getattr(error, "status", 0)
        message = _message(error)
        if status in _NOT_NOW:
            return UnreachableError(f"{self.name}: the API server cannot answer: {message}")
        if status == 401:
            return LabError(f"{self.name}: the API server does not know this account; sign in again")
        # An unknown field is reported as an internal server error.
        refused = status in _REFUSED or message.startswith("failed to create typed patch object")
        return (WrongUseError if refused else LabError)(message)

    def _path(self, api_version: str, kind: str, name: str | None, namespace: str | None) -> str:
        resource = self._resource(api_version, kind)
        path: str = resource.path(name=name, namespace=namespace if resource.namespaced else None)
        return path

    def _resource(self, api_version: str, kind: str) -> Any:
        unknown = WrongUseError(f"{self.name}: the cluster does not know {kind} ({api_version})")
        # Discovery starts over for each unknown kind.
        served = {version["groupVersion"] for group in self._groups for version in group["versions"]}
        if api_version not in ("v1", *served):
            raise unknown
        prefix = "api" if api_version == "v1" else "apis"
        try:
            with _bounded_discovery():
                return self._client.resources.get(prefix=prefix, api_version=api_version, kind=kind)
        except ResourceNotFoundError as error:
            raise unknown from error
        except (DynamicApiError, ApiException, HTTPError) as error:
            raise self._failure(error) from error


def cluster_of(region: Region) -> KubernetesCluster:
    """Returns a client of the API server that has a region's resources.

    Raises:
        LabError: the region's record does not say where they are, or the API server cannot be reached.
    """
    if region.kubernetes is None:
        raise LabError(f"{region.name}: the record does not say where its resources are; run the set-up again")
    return KubernetesCluster(region.kubernetes.kubeconfig, region.kubernetes.context)


@contextmanager
def _bounded_discovery() -> Iterator[None]:
    """Bounds the discovery of kinds, which has no time-out parameter.

    The bound applies to the whole process, so it is removed as soon as possible: other sockets would inherit it.
    """
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(CONNECT_SECONDS)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)


def _message(error: Exception) -> str:
    try:
        return _one_line(json.loads(getattr(error, "body", None) or "")["message"])
    except (ValueError, KeyError, TypeError):
        return _one_line(getattr(error, "summary", lambda: error)())


def _one_line(text: object) -> str:
    return " ".join(str(text).split())
