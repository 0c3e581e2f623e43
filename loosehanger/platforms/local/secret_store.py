"""Secrets: a folder for each secret and a file for each key, readable by their owner only.

The origin of a copy is noted beside its folder, because every file in the folder is a key.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from loosehanger.errors import LabError, WrongUseError
from loosehanger.files import remove_folder, write_file
from loosehanger.lab.topology import SecretCopy
from loosehanger.platforms.local.region import LocalRegion
from loosehanger.platforms.secret_copies import not_a_copy

_CLIENTS_AUTHORITY = ("-clients-ca", "-clients-ca-cert")
"""Secrets that Strimzi's operators create for every cluster, and the local platform for users with certificates."""


def write_secret(region: LocalRegion, name: str, data: Mapping[str, bytes]) -> bool:
    """Writes a secret with exactly these keys; True when it changed."""
    folder = region.secrets / name
    changed = False
    for key, value in data.items():
        changed |= write_file(folder / key, value)
    for path in folder.iterdir() if folder.exists() else ():
        if path.name not in data:
            path.unlink()
            changed = True
    return changed


def read_secret(region: LocalRegion, name: str) -> dict[str, bytes]:
    """Reads a secret's keys and values.

    Raises:
        LabError: the secret does not exist.
    """
    folder = region.secrets / name
    if not folder.is_dir():
        raise LabError(f"{region.name}: the secret '{name}' does not exist")
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def copy_secrets(
    origin: LocalRegion, region: LocalRegion, copies: Iterable[SecretCopy], *, dry_run: bool = False
) -> list[str]:
    """Copies secrets from one region to another; returns the names of the copies that were missing or outdated.

    Raises:
        WrongUseError: another secret has the name of a copy; no secret is copied.
        LabError: the secret does not exist in its own region.
    """
    every = [
        copy
        for copy in copies
        if (origin.secrets / copy.name).is_dir()
        or not (copy.maker == "Kafka" and copy.name.endswith(_CLIENTS_AUTHORITY))
    ]
    # In check mode the secret or its region may not exist yet.
    coming = [copy for copy in every if dry_run and not (origin.secrets / copy.name).is_dir()]
    wanted = [(copy, read_secret(origin, copy.name)) for copy in every if copy not in coming]
    for copy, data in wanted:
        known_as = _copied_from(region, copy.as_name)
        # After a switch the same secret may come from another region. Copies of older versions have no note.
        is_another = (region.secrets / copy.as_name).is_dir() and known_as != copy.source
        if is_another and not _is_same(read_secret(region, copy.as_name), data, is_copy=known_as is not None):
            raise WrongUseError(not_a_copy(region.name, copy.as_name, known_as, copy))
    copied = [copy.as_name for copy in coming]
    for copy, data in wanted:
        if not (region.secrets / copy.as_name).is_dir() or read_secret(region, copy.as_name) != data:
            copied.append(copy.as_name)
        if not dry_run:
            write_secret(region, copy.as_name, data)
            write_file(_note(region, copy.as_name), copy.source)
    return copied


def _is_same(present: Mapping[str, bytes], data: Mapping[str, bytes], *, is_copy: bool) -> bool:
    """Whether a secret says the same as another.

    Of two copies it is enough that they agree on their common keys: a user with the same password at two clusters has
    further keys only where the cluster's operator makes its credentials.
    """
    if not is_copy:
        return present == data
    common = present.keys() & data.keys()
    return bool(common) and all(present[key] == data[key] for key in common)


def return_secrets(region: LocalRegion, returns: Iterable[SecretCopy]) -> list[str]:
    """Restores a region's missing secrets from the copies in other regions.

    They are the region's own again, not copies. A secret without copies is skipped; the resource that needs it reports
    it.

    Returns:
        The names of the restored secrets.
    """
    returned = []
    for back in returns:
        holder = LocalRegion(region.home, region.checkout, back.origin, 0)
        if not (region.secrets / back.as_name).is_dir() and (holder.secrets / back.name).is_dir():
            write_secret(region, back.as_name, read_secret(holder, back.name))
            returned.append(back.as_name)
    return returned


def delete_copies(region: LocalRegion, names: Iterable[str], *, dry_run: bool = False) -> list[str]:
    """Deletes the copies among these secrets; returns their names. With ``dry_run`` it deletes nothing."""
    found = [name for name in names if _copied_from(region, name) is not None]
    for name in () if dry_run else found:
        delete_secret(region, name)
    return found


def _note(region: LocalRegion, name: str) -> Path:
    return region.folder / "copied-secrets" / name


def _copied_from(region: LocalRegion, name: str) -> str | None:
    """Returns the source of a copied secret; None for any other."""
    note = _note(region, name)
    return note.read_text(encoding="utf-8") if note.is_file() else None


def secret_file(region: LocalRegion, name: str, key: str) -> Path:
    """Returns the file with one key of a secret.

    Raises:
        LabError: the secret or the key does not exist.
    """
    path = region.secrets / name / key
    if not path.is_file():
        raise LabError(f"{region.name}: the secret '{name}' has no key '{key}'")
    return path


def delete_secret(region: LocalRegion, name: str) -> None:
    """Deletes a secret, if it exists."""
    remove_folder(region.secrets / name)
    _note(region, name).unlink(missing_ok=True)
