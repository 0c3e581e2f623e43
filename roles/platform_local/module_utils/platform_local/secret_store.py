"""Secrets: one folder for each, one file for each key, readable by their owner only."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping
from pathlib import Path

from .errors import PlatformError
from .region import Region, remove_folder, write_file


def write_secret(region: Region, name: str, data: Mapping[str, bytes]) -> bool:
    """Makes the secret hold exactly these keys; True when anything changed."""
    folder = region.secrets / name
    changed = False
    for key, value in data.items():
        changed |= write_file(folder / key, value)
    for path in folder.iterdir() if folder.exists() else ():
        if path.name not in data:
            path.unlink()
            changed = True
    return changed


def read_secret(region: Region, name: str) -> dict[str, bytes]:
    """The secret's keys and values.

    Raises:
        PlatformError: there is no such secret.
    """
    folder = region.secrets / name
    if not folder.is_dir():
        raise PlatformError(f"{region.name}: there is no secret '{name}'")
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def copy_secrets(origin: Region, region: Region, names: Iterable[str], *, dry_run: bool = False) -> list[str]:
    """Copies secrets from one region to another; returns the names of those that were missing or differed.

    Raises:
        PlatformError: the region of origin has no such secret.
    """
    copied = []
    for name in names:
        data = read_secret(origin, name)
        if not (region.secrets / name).is_dir() or read_secret(region, name) != data:
            copied.append(name)
            if not dry_run:
                write_secret(region, name, data)
    return copied


def secret_file(region: Region, name: str, key: str) -> Path:
    """The file that holds one key of a secret.

    Raises:
        PlatformError: there is no such secret or key.
    """
    path = region.secrets / name / key
    if not path.is_file():
        raise PlatformError(f"{region.name}: there is no secret '{name}' with a key '{key}'")
    return path


def delete_secret(region: Region, name: str) -> None:
    """Deletes a secret, if it is there."""
    remove_folder(region.secrets / name)


def decode(value: str) -> bytes:
    """Decodes a value of a Secret's ``data``.

    Raises:
        ValueError: it is not base64.
    """
    try:
        return base64.b64decode(value, validate=True)
    except binascii.Error as error:
        raise ValueError("is not base64") from error
