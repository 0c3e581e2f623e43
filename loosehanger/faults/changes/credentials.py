"""Changes to the passwords of a mirror's users."""

from __future__ import annotations

import secrets

from kafka.admin import ScramMechanism, UserScramCredentialUpsertion

from loosehanger.errors import LabError, WrongUseError
from loosehanger.faults.changes.change import Change, Undo
from loosehanger.faults.changes.ends import End, end_region, end_user
from loosehanger.faults.site import FaultSite


class ChangePassword(Change):
    """Changes the password of the mirror's user in one cluster only, so that the mirror signs in with the old one.

    Connections that are open stay signed in: add ``reset_connections``, or wait until the mirror restarts.
    """

    end: End = "source"

    def prepare(self, site: FaultSite) -> Undo:
        """Returns the user; refuses one that does not sign in with SCRAM-SHA-512. Passwords are not recorded."""
        region, user = end_region(site, self.end), end_user(site, self.end)
        if site.connection(region, user).sasl_mechanism != ScramMechanism.SCRAM_SHA_512.name.replace("_", "-"):
            raise WrongUseError(f"{region}: user {user} does not sign in with SCRAM-SHA-512")
        return {"region": region, "user": user}

    def inject(self, site: FaultSite, undo: Undo) -> None:
        """Sets a random password."""
        _set(site, undo, secrets.token_urlsafe(24))

    def heal(self, site: FaultSite, undo: Undo) -> None:
        """Sets the password of the lab's record."""
        _set(site, undo, site.connection(undo["region"], undo["user"]).password or "")


def _set(site: FaultSite, undo: Undo, password: str) -> None:
    region, user = undo["region"], undo["user"]
    with site.admin(region) as admin:
        changed = UserScramCredentialUpsertion(user, ScramMechanism.SCRAM_SHA_512, password)
        if error := admin.alter_user_scram_credentials([changed])[user]:
            raise LabError(f"{region}: Kafka does not change the password of user {user}: {error}")
