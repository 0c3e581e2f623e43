"""``mirrorproof key FILE``: a pair of keys to sign evidence with."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from loosehanger.arguments import Parser
from loosehanger.errors import ExitCode, WrongUseError
from loosehanger.paths import caller_path


def add_options(parser: Parser) -> None:
    """Adds the file."""
    parser.add_argument(
        "file",
        type=caller_path,
        metavar="FILE",
        help="where the secret key goes; the public one is FILE.pub. With MIRRORPROOF_KEY_PASSWORD it gets a password",
    )


def run(options: argparse.Namespace) -> int:
    """Writes both keys.

    Raises:
        WrongUseError: one of the files exists already.
        OSError: they cannot be written.
    """
    import minisign

    from loosehanger.files import write_file
    from loosehanger.lab.job_options import check_writable
    from loosehanger.proof.evidence.signatures import PASSWORD, key_id, key_text

    secret: Path = options.file
    public = secret.with_name(f"{secret.name}.pub")
    for path in (secret, public):
        if path.exists():
            raise WrongUseError(f"{path}: exists already; name another file")
        check_writable(path)
    pair = minisign.KeyPair.generate()
    pair.public_key.untrusted_comment = f"minisign public key {key_id(pair.public_key)}"
    with pair.secret_key as key:
        if password := os.environ.get(PASSWORD):
            key.encrypt(password)
        write_file(secret, bytes(key) + b"\n")
    write_file(public, bytes(pair.public_key) + b"\n", mode=0o644)
    print(f"{secret}: the secret key; keep it where only you can read it")
    print(f"{public}: the public key {key_text(pair.public_key)}; give it to those who verify")
    return ExitCode.DONE
