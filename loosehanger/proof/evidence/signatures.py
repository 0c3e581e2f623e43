"""Signatures of evidence, in the format of minisign: Ed25519, in a file beside the one that is signed.

The format and its cryptography are the library's (``py-minisign``, on top of ``cryptography``). The tool ``minisign``
checks what is signed here, and its keys sign here.
"""

from __future__ import annotations

import base64
import os
import stat
from collections.abc import Mapping
from pathlib import Path

import minisign

from loosehanger.errors import WrongUseError

PASSWORD = "MIRRORPROOF_KEY_PASSWORD"  # noqa: S105 - the name of a variable
"""The variable with the password of a secret key that has one."""
_KEY_ID = slice(2, 10)
_HOW = "make one with mirrorproof key FILE, or with minisign -G"


def signature_path(path: Path) -> Path:
    """Returns where the signature of a file is: beside it, as with minisign."""
    return path.with_name(f"{path.name}.minisig")


def secret_key(path: Path, environment: Mapping[str, str] = os.environ) -> minisign.SecretKey:
    """Reads a secret key.

    Args:
        path: the file.
        environment: has the password of a key that is protected by one.

    Raises:
        WrongUseError: it cannot be read, others can read it, or the password is wrong.
    """
    try:
        mode = path.stat().st_mode
        key = minisign.SecretKey.from_file(path)
    except OSError as error:
        raise WrongUseError(f"{path}: cannot be read ({error.strerror}); {_HOW}") from error
    except minisign.Error as error:
        raise WrongUseError(f"{path}: is not a secret key of minisign ({error}); {_HOW}") from error
    if stat.S_IMODE(mode) & 0o077:
        raise WrongUseError(f"{path}: others can read or replace it; run chmod 600 on it")
    if key.is_encrypted():
        password = environment.get(PASSWORD)
        if password is None:
            raise WrongUseError(f"{path}: has a password; set {PASSWORD}")
        try:
            key.decrypt(password)
        except minisign.Error as error:
            raise WrongUseError(f"{path}: cannot be decrypted ({error}); set {PASSWORD} to its password") from error
    return key


def public_key(given: str) -> minisign.PublicKey:
    """Reads a public key.

    Args:
        given: a file with it, or the key itself, which begins with ``RW``.

    Raises:
        WrongUseError: it is neither.
    """
    try:
        if given.startswith("RW") and not Path(given).exists():
            return minisign.PublicKey.from_base64(given)
        return minisign.PublicKey.from_file(given)
    except OSError as error:
        raise WrongUseError(f"{given}: cannot be read ({error.strerror}); give a file with a public key") from error
    except minisign.Error as error:
        raise WrongUseError(f"{given}: is not a public key of minisign ({error}); give the signer's .pub") from error


def key_text(key: minisign.PublicKey) -> str:
    """Returns a public key as text, as ``minisign -P`` takes it."""
    return bytes(key.to_base64()).decode()


def key_id(key: minisign.PublicKey) -> str:
    """Returns the id of a key, as minisign shows it."""
    return _shown(base64.b64decode(key.to_base64())[_KEY_ID])


def sign(content: bytes, key: minisign.SecretKey, comment: str) -> bytes:
    """Returns the file with a signature.

    Args:
        content: what to sign.
        key: the secret key.
        comment: is signed as well.
    """
    return bytes(key.sign(content, trusted_comment=comment)) + b"\n"


def read_signature(path: Path) -> minisign.Signature:
    """Reads the signature of a file.

    Raises:
        ValueError: there is none, or it is damaged; with the reason.
    """
    beside = signature_path(path)
    try:
        return minisign.Signature.from_file(beside)
    except FileNotFoundError:
        raise ValueError(f"{beside}: is missing, the signature of {path.name}") from None
    except OSError as error:
        raise ValueError(f"{beside}: cannot be read ({error.strerror})") from error
    except minisign.Error as error:
        raise ValueError(f"{beside}: is damaged, or is not a signature of minisign ({error})") from error


def signer_id(signature: minisign.Signature) -> str:
    """Returns the id of the key that a signature names."""
    return _shown(base64.b64decode(bytes(signature).splitlines()[1])[_KEY_ID])


def is_signed(content: bytes, signature: minisign.Signature, key: minisign.PublicKey) -> bool:
    """Whether this is what the key signed."""
    try:
        key.verify(content, signature)
    except minisign.VerifyError:
        return False
    return True


def _shown(identity: bytes) -> str:
    return f"{int.from_bytes(identity, 'little'):016X}"
