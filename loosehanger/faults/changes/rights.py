"""Changes to the rights of a mirror's users."""

from __future__ import annotations

from typing import Literal

from kafka.admin import ACL

from loosehanger.errors import LabError, WrongUseError
from loosehanger.faults.changes.change import Change, Undo
from loosehanger.faults.changes.ends import End, end_region, end_user, worker_group
from loosehanger.faults.changes.permissions import RULE_S, acl, is_listed
from loosehanger.faults.site import FaultSite
from loosehanger.waiting import wait_for


class RevokeRight(Change):
    """Takes a right from the mirror's user, by a rule that denies it.

    A broker answers the same as if the rule that allows it were missing. One rule to delete is all that healing needs,
    even after an interruption, and a rule that covers many topics need not be taken apart for one of them.
    """

    end: End = "source"
    resource: Literal["topic", "worker_group", "transactional_id"] = "topic"
    operation: Literal["all", "read", "write", "alter_configs", "describe_configs"] = "all"
    """``all`` also denies Describe, so that the resource looks as if it did not exist."""

    def prepare(self, site: FaultSite) -> Undo:
        """Returns the rule; refuses one that the cluster has, or of a resource that the mirror does not use there."""
        region, user = end_region(site, self.end), end_user(site, self.end)
        kind, name, pattern = self._resource(site)
        undo = {
            "region": region,
            "principal": f"User:{user}",
            "kind": kind,
            "name": name,
            "pattern": pattern,
            "operation": self.operation.upper(),
        }
        with site.admin(region) as admin:
            if is_listed(admin, _acl(undo)):
                raise WrongUseError(
                    f"{region}: user {user} is denied {self.operation} on {kind.lower()} {name} already"
                )
        return undo

    def _resource(self, site: FaultSite) -> tuple[str, str, str]:
        if self.resource == "topic":
            return "TOPIC", site.topic if self.end == "source" else site.copy, "LITERAL"
        if self.end == "source":
            raise WrongUseError(f"a mirror does not use its {self.resource.replace('_', ' ')} at its source")
        if self.resource == "worker_group":
            return "GROUP", worker_group(site), "LITERAL"
        return "TRANSACTIONAL_ID", f"{worker_group(site)}-{site.mirror.connector}-", "PREFIXED"

    def inject(self, site: FaultSite, undo: Undo) -> None:
        """Creates the rule, and waits until the broker lists it."""
        with site.admin(undo["region"]) as admin:
            if failed := admin.create_acls([_acl(undo)])["failed"]:
                raise LabError(f"{undo['region']}: Kafka refuses the rule: {failed[0]}")
            wait_for(
                lambda: None if is_listed(admin, _acl(undo)) else "it is not listed", RULE_S, "the rule that denies"
            )

    def heal(self, site: FaultSite, undo: Undo) -> None:
        """Deletes the rule, and waits until the broker no longer lists it."""
        with site.admin(undo["region"]) as admin:
            admin.delete_acls([_acl(undo)])
            wait_for(lambda: "it is listed" if is_listed(admin, _acl(undo)) else None, RULE_S, "the end of the rule")


def _acl(undo: Undo) -> ACL:
    return acl(undo["principal"], undo["kind"], undo["name"], undo["operation"], "DENY", undo["pattern"])
