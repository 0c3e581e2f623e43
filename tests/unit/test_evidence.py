"""Evidence that is signed: whatever is changed in it is noticed, and named in a line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import minisign
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kafka import TopicPartition

from loosehanger.errors import ExitCode, WrongUseError
from loosehanger.mirrorproof import command_line, evidence, verify
from loosehanger.mirrorproof.holding import PartitionNow, held_by, state_of
from loosehanger.mirrorproof.verify_job import _not_given
from loosehanger.proof.compare.digests import Digests, PartitionDigest
from loosehanger.proof.evidence import signatures
from loosehanger.proof.evidence.evidence import Evidence
from loosehanger.proof.evidence.signed_file import write_evidence
from loosehanger.proof.evidence.statement import serialized
from loosehanger.proof.report.page import render
from loosehanger.proof.report.pdf import render_pdf
from tests import samples

PLACES = {
    ("source", TopicPartition("orders", 0)): PartitionDigest(0, 8, ((0, 4, "a" * 64), (1, 3, "b" * 64))),
    ("target", TopicPartition("orders", 0)): PartitionDigest(2, 8, ((0, 2, "c" * 64), (1, 3, "b" * 64))),
}


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("keys") / "mine"
    assert command_line.main(["key", str(path)]) == 0
    return path


@pytest.fixture(scope="module")
def signed(key: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("evidence") / "proof.json"
    found = Evidence(digests=Digests(4, dict(PLACES)), clusters={"source": "S1", "target": "T1"})
    write_evidence(path, found, samples.proof(), signatures.secret_key(key))
    return path


def copied(signed: Path, folder: Path) -> Path:
    path = folder / signed.name
    path.write_bytes(signed.read_bytes())
    signatures.signature_path(path).write_bytes(signatures.signature_path(signed).read_bytes())
    return path


def problem(path: Path, key: Path) -> str:
    return evidence.check(path, f"{key}.pub").problem


def test_it_says_what_was_compared_and_who_signed(signed: Path, key: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command_line.main(["verify", str(signed), "--key", f"{key}.pub", "--json"]) == ExitCode.DONE
    document = json.loads(capsys.readouterr().out)
    public = minisign.PublicKey.from_file(f"{key}.pub")
    assert document["intact"] is True
    assert document["key_id"] == signatures.key_id(public)
    assert (document["partitions"], document["records"]) == (2, 7 + 5)
    assert document["clusters"] == [{"name": "source", "id": "S1"}, {"name": "target", "id": "T1"}]
    assert command_line.main(["verify", str(signed), "--key", signatures.key_text(public)]) == ExitCode.DONE
    shown = capsys.readouterr().out
    assert shown.startswith("INTACT ")
    assert f"verdict     {document['verdict']}" in shown


def paths(document: Any, way: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to everything in a document."""
    children = document.items() if isinstance(document, dict) else enumerate(document)
    for name, value in children:
        yield (*way, name)
        if isinstance(value, dict | list):
            yield from paths(value, (*way, name))


def changed(document: Any, way: tuple[Any, ...], *, removed: bool) -> None:
    for part in way[:-1]:
        document = document[part]
    if removed:
        del document[way[-1]]
    else:
        value = document[way[-1]]
        document[way[-1]] = [] if value else 1


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None)
@given(data=st.data())
def test_every_field_is_signed(data: st.DataObject, signed: Path, key: Path, tmp_path: Path) -> None:
    path, document = copied(signed, tmp_path), json.loads(signed.read_bytes())
    way = data.draw(st.sampled_from(list(paths(document))))
    changed(document, way, removed=data.draw(st.booleans()))
    path.write_bytes(serialized(document) if "partitions" in document else json.dumps(document).encode())
    assert "is not what key" in problem(path, key)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None)
@given(data=st.data())
def test_every_byte_is_signed(data: st.DataObject, signed: Path, key: Path, tmp_path: Path) -> None:
    path = copied(signed, tmp_path)
    place = data.draw(st.sampled_from([path, signatures.signature_path(path)]))
    content = bytearray(place.read_bytes())
    # Comments that are not signed, and the line feed at the end, are not what counts.
    first = content.index(b"\n") + 1 if place != path else 0
    position = data.draw(st.integers(first, len(content) - 2))
    content[position] ^= data.draw(st.integers(1, 255))
    place.write_bytes(bytes(content))
    found = problem(path, key)
    assert found
    assert "\n" not in found


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda text: text[: len(text) // 2], "it may have been cut off"),
        (lambda _: b"hello", "is not complete JSON"),
        (lambda _: b"", "is not complete JSON"),
        (lambda _: b"[" * 100_000, "is not"),
        (lambda text: b"\xff" + text, "byte 0 is not UTF-8"),
        (lambda text: text.replace(b'"chunk"', b'"chunky"'), "chunk: field required"),
        (lambda text: text.replace(b"S1", b"S2"), "was changed since"),
        (lambda text: text.replace(b"evidence 1", b"evidence 9"), "this version reads 'mirrorproof evidence 1'"),
    ],
)
def test_damage_is_named_in_a_line(
    damage: Any, message: str, signed: Path, key: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = copied(signed, tmp_path)
    path.write_bytes(damage(path.read_bytes()))
    assert command_line.main(["verify", str(path), "--key", f"{key}.pub"]) == ExitCode.FAILED
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith(f"NOT INTACT  {path}: is not what key")
    assert message in line


def test_another_key_and_a_missing_signature_are_named(signed: Path, key: Path, tmp_path: Path) -> None:
    path, other = copied(signed, tmp_path), tmp_path / "other"
    assert command_line.main(["key", str(other)]) == 0
    assert "was signed by another key: its id is" in problem(path, other)
    beside = signatures.signature_path(path)
    beside.write_text("no signature\n", encoding="utf-8")
    assert f"{beside}: is damaged" in problem(path, key)
    beside.unlink()
    assert f"{beside}: is missing" in problem(path, key)
    # Signed by the right key, and something else.
    for content, message in ((b"{}", "is not evidence of a proof"), (b"1", "is not evidence of a proof")):
        path.write_bytes(content)
        beside.write_bytes(signatures.sign(content, signatures.secret_key(key), "x"))
        assert message in problem(path, key)
    document = json.loads(signed.read_bytes())
    document["partitions"][0]["chunks"][0][2] = "d" * 64
    path.write_bytes(serialized(document))
    beside.write_bytes(signatures.sign(path.read_bytes(), signatures.secret_key(key), "x"))
    assert "the digest of source's orders-0 does not follow from its chunks" in problem(path, key)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["verify", "{signed}"], "--key"),
        (["verify", "{signed}", "--key", "{key}"], "is not a public key"),
        (["verify", "{signed}", "--key", "/no/such"], "/no/such: cannot be read"),
        (["verify", "/no/such", "--key", "{key}.pub"], "give a file of prove --evidence"),
        (["verify", "{signed}", "--key", "{key}.pub", "--clusters", "one"], "expected 2 arguments"),
        (["key", "{key}"], "exists already"),
        (["prove", "a", "b", "--evidence", "e.json"], "--evidence and --sign go together"),
        (["prove", "a", "b", "--sign", "{key}"], "--evidence and --sign go together"),
    ],
)
def test_wrong_use_is_named(arguments: list[str], message: str, signed: Path, key: Path) -> None:
    with pytest.raises(WrongUseError, match=message):
        command_line.main([one.format(signed=signed, key=key) for one in arguments])


def test_a_secret_key_that_cannot_be_used_is_named(key: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(WrongUseError, match="is not a secret key"):
        signatures.secret_key(Path(f"{key}.pub"))
    with pytest.raises(WrongUseError, match="cannot be read"):
        signatures.secret_key(tmp_path / "none")
    monkeypatch.setenv(signatures.PASSWORD, "right")
    path = tmp_path / "locked"
    assert command_line.main(["key", str(path)]) == 0
    assert signatures.secret_key(path)
    for environment, message in (
        ({}, f"has a password; set {signatures.PASSWORD}"),
        ({signatures.PASSWORD: "x"}, "wrong"),
    ):
        with pytest.raises(WrongUseError, match=message):
            signatures.secret_key(path, environment)
    path.chmod(0o644)
    with pytest.raises(WrongUseError, match="chmod 600"):
        signatures.secret_key(path)


PROVED = evidence.ProvedPartition(
    cluster="c", topic="t", partition=0, start=0, end=10, records=9, sha256="",
    chunks=[[0, 4, "a"], [1, 3, "b"], [2, 2, "c"]],
)  # fmt: skip
SAME = {0: (4, "a"), 1: (3, "b"), 2: (2, "c")}


@pytest.mark.parametrize(
    ("now", "held", "records", "gone", "sentence"),
    [
        (PartitionNow(0, 12, False, SAME), "everything", 9, 0, ""),
        (None, "no longer verifiable", 0, 9, ""),
        (PartitionNow(4, 12, False, {1: (3, "b"), 2: (2, "c")}), "no longer verifiable", 5, 4, ""),
        # A chunk of which retention has removed a part says nothing about the rest of it.
        (PartitionNow(6, 12, False, {1: (1, "x"), 2: (2, "c")}), "no longer verifiable", 2, 7, ""),
        (PartitionNow(12, 12, False, {}), "no longer verifiable", 0, 9, ""),
        (PartitionNow(0, 12, True, SAME | {0: (2, "x")}), "no longer verifiable", 5, 4, ""),
        (PartitionNow(0, 12, True, SAME | {0: (4, "x")}), "changed", 5, 0, "offsets 0 to 3: records were altered"),
        (PartitionNow(0, 12, False, SAME | {0: (3, "x")}), "changed", 5, 0, "offsets 0 to 3: 4 records proved, 3 are"),
        (PartitionNow(0, 12, False, SAME | {1: (4, "x")}), "changed", 6, 0, "offsets 4 to 7: 1 records were added"),
        (PartitionNow(0, 9, False, SAME | {2: (1, "x")}), "changed", 7, 0, "offsets 8 to 9: 2 records proved; the log"),
        (PartitionNow(4, 12, False, {1: (3, "x"), 2: (2, "c")}), "changed", 2, 4, "offsets 4 to 7: records were"),
    ],
)
def test_what_is_still_there(now: PartitionNow | None, held: str, records: int, gone: int, sentence: str) -> None:
    state = state_of(PROVED, 4, now)
    document = held_by([state])
    assert (document["held"], document["records_held"]) == (held, records)
    assert document["records_no_longer_verifiable"] == gone
    assert [one.startswith(sentence) for one in state.changed] == [True] * bool(sentence)


def test_the_page_shows_digests_key_and_signature(key: Path, tmp_path: Path) -> None:
    found = Evidence(digests=Digests(4, dict(PLACES)), clusters={"source": "S1", "target": "<T1>"})
    signed = write_evidence(tmp_path / "p.json", found, samples.proof(), signatures.secret_key(key))
    page = render(samples.proof(), {}, signed)
    for text in (signed["key"], signed["key_id"], signed["sha256"], "&lt;T1&gt;"):
        assert text in page
    assert all(digest.sha256 in page for digest in PLACES.values())
    assert "The evidence" not in render(samples.proof(), {})


def test_the_pdf_has_the_evidence(key: Path, tmp_path: Path) -> None:
    found = Evidence(digests=Digests(4, dict(PLACES)), clusters={"source": "S1", "target": "T1"})
    signed = write_evidence(tmp_path / "p.json", found, samples.proof(), signatures.secret_key(key))
    plain, whole = render_pdf(samples.proof()), render_pdf(samples.proof(), signed)
    assert plain.startswith(b"%PDF-")
    assert len(whole) > len(plain)
    assert render_pdf(samples.broken_proof()).startswith(b"%PDF-")


def test_a_relative_key_is_found_by_the_job_too(signed: Path, key: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The job has another working directory."""
    started: list[list[str]] = []
    monkeypatch.setattr(verify, "start", lambda _, arguments, __: started.append(arguments))
    monkeypatch.chdir(key.parent)
    command_line.main(["verify", str(signed), "--key", f"{key.name}.pub", "--clusters", "a", "b"])
    assert f"--key={key}.pub" in started[0]


@pytest.mark.parametrize(("name", "option"), [("source", "--clusters"), ("new", "--config")])
def test_clusters_by_other_names_are_asked_for_as_they_were_given(name: str, option: str) -> None:
    """A proof of two files has names of its own for their clusters; one of a configuration has that file's."""
    assert f"'{name}', which is not given; use {option}, " in _not_given(name)
