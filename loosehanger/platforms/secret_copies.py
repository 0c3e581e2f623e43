"""What all platforms say of a secret that has the name of a copy, and is another one."""

from __future__ import annotations

from loosehanger.lab.topology import SecretCopy


def not_a_copy(where: str, name: str, known_as: str | None, wanted: SecretCopy) -> str:
    """What to say of a secret that has the name of a copy, and is another one.

    Args:
        where: the region.
        name: of the secret that is there.
        known_as: the source of the copy that it is; None where it is no copy.
        wanted: the copy that has no place.
    """
    what = f"is a copy of '{known_as}'" if known_as else "is there already, and is not a copy that the kit has made"
    return f"{where}: the secret '{name}' {what}; it is left alone: copy '{wanted.source}' under another name ('as')"
