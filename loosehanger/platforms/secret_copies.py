"""The message, on all platforms, for a secret that has the name of a copy and is another one."""

from __future__ import annotations

from loosehanger.lab.topology import SecretCopy


def not_a_copy(where: str, name: str, known_as: str | None, wanted: SecretCopy) -> str:
    """Returns the message for a secret that has the name of a copy and is another one.

    Args:
        where: the region.
        name: the name of the existing secret.
        known_as: the source of the existing secret; None if it is not a copy.
        wanted: the copy that is needed.
    """
    what = f"is a copy of '{known_as}'" if known_as else "already exists and is not a copy made by the kit"
    return f"{where}: the secret '{name}' {what}; not changed. Copy '{wanted.source}' under another name ('as')"
