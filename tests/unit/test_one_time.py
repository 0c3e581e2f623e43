"""One-time tokens: one console, 30 seconds, once; and the files that hold their key and the pages that post them."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from loosehanger.errors import LabError
from loosehanger.signing import one_time
from loosehanger.signing.one_time import (
    AHEAD_S,
    MOST_TOKEN,
    VALID_S,
    OneTimeTokens,
    lab_key,
    new_token,
    password_key,
    remove_pages,
    write_page,
)
from tests.consoles import Clock

KEY = b"k" * 32


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def tokens(clock: Clock) -> OneTimeTokens:
    return OneTimeTokens("europe", lambda: [KEY], clock)


def test_a_token_is_accepted_once(tokens: OneTimeTokens, clock: Clock) -> None:
    token = new_token(KEY, "europe", clock)
    assert tokens.accept(token)
    assert not tokens.accept(token)
    clock.now += 10
    assert not tokens.accept(token)
    assert tokens.accept(new_token(KEY, "europe", clock)), "others are not affected"


def test_a_token_expires(tokens: OneTimeTokens, clock: Clock) -> None:
    first, second = new_token(KEY, "europe", clock), new_token(KEY, "europe", clock)
    clock.now += VALID_S
    assert tokens.accept(first)
    clock.now += 0.1
    assert not tokens.accept(second)


def test_a_used_token_is_remembered_until_it_expires_and_no_longer(tokens: OneTimeTokens, clock: Clock) -> None:
    for _ in range(3):
        clock.now += VALID_S + AHEAD_S
        token = new_token(KEY, "europe", clock)
        assert tokens.accept(token)
        assert len(tokens._used) == 1
    clock.now += VALID_S
    assert not tokens.accept(token)


def test_a_token_from_the_future_is_refused(tokens: OneTimeTokens) -> None:
    ahead = Clock()
    ahead.now += AHEAD_S + 1
    assert not tokens.accept(new_token(KEY, "europe", ahead))
    ahead.now -= 1
    assert tokens.accept(new_token(KEY, "europe", ahead))


def test_a_restarted_console_refuses_what_an_earlier_run_may_have_accepted(clock: Clock) -> None:
    token = new_token(KEY, "europe", clock)
    assert OneTimeTokens("europe", lambda: [KEY], clock).accept(token)
    clock.now += 1
    assert not OneTimeTokens("europe", lambda: [KEY], clock).accept(token)


@pytest.mark.parametrize("console", ["control-room", "", "EUROPE", "europe "])
def test_a_token_for_another_console_is_refused(tokens: OneTimeTokens, clock: Clock, console: str) -> None:
    assert not tokens.accept(new_token(KEY, console, clock))


def test_a_token_under_another_key_is_refused(tokens: OneTimeTokens, clock: Clock) -> None:
    assert not tokens.accept(new_token(b"x" * 32, "europe", clock))
    assert not tokens.accept(new_token(password_key("europe", "password"), "europe", clock))
    assert password_key("europe", "password") != password_key("control-room", "password")


def test_any_key_of_the_console_will_do_and_a_token_is_still_used_once(clock: Clock) -> None:
    keys = [KEY, b"x" * 32]
    tokens = OneTimeTokens("europe", lambda: keys, clock)
    assert tokens.accept(new_token(keys[1], "europe", clock))
    kept = new_token(keys[1], "europe", clock)
    keys.pop()
    assert not tokens.accept(kept), "a key that is no longer valid"


@pytest.mark.parametrize(
    "token", ["", ".", "a.b", "e30.x", "\ud800", "…", "a" * MOST_TOKEN, "a" * 1_000_000, "[" * 399]
)
def test_what_is_no_token_is_refused(tokens: OneTimeTokens, token: str) -> None:
    assert not tokens.accept(token)
    assert not tokens._used


def test_every_changed_character_makes_a_token_invalid(tokens: OneTimeTokens, clock: Clock) -> None:
    token = new_token(KEY, "europe", clock)
    for place in range(len(token) - 1):  # The last one has bits that carry nothing.
        changed = token[:place] + ("A" if token[place] != "A" else "B") + token[place + 1 :]
        assert not tokens.accept(changed), place
    assert tokens.accept(token)


def test_used_tokens_take_bounded_memory(tokens: OneTimeTokens, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(one_time, "MOST_USED", 3)
    accepted = [tokens.accept(new_token(KEY, "europe", clock)) for _ in range(5)]
    assert accepted == [True] * 3 + [False] * 2
    clock.now += VALID_S + AHEAD_S
    assert tokens.accept(new_token(KEY, "europe", clock))


def test_the_labs_key_is_made_once_and_only_its_owner_can_read_it(tmp_path: Path) -> None:
    found: list[bytes] = []
    threads = [threading.Thread(target=lambda: found.append(lab_key(tmp_path))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert len(set(found)) == 1
    (path,) = (tmp_path / "access").iterdir()
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert lab_key(tmp_path / "other") != found[0]


def test_a_key_that_others_could_read_or_replace_is_not_used(tmp_path: Path) -> None:
    lab_key(tmp_path)
    path = tmp_path / "access" / "sign-in.key"
    path.chmod(0o640)
    with pytest.raises(LabError, match=r"only you can read; delete it"):
        lab_key(tmp_path)
    path.chmod(0o600)
    path.write_bytes(b"short")
    with pytest.raises(LabError, match="32 bytes"):
        lab_key(tmp_path)
    path.unlink()
    path.symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").write_bytes(KEY)
    with pytest.raises(LabError, match="cannot be read"):
        lab_key(tmp_path)


def test_a_page_is_for_its_owner_alone_and_goes_when_its_token_has_expired(tmp_path: Path, clock: Clock) -> None:
    old = write_page(tmp_path, "europe", "http://europe.localhost:1/sign-in/once", "a token")
    new = write_page(tmp_path, "europe", "http://europe.localhost:1/sign-in/once", '"><script>')
    assert old.stat().st_mode & 0o777 == 0o600
    assert old.parent.stat().st_mode & 0o777 == 0o700
    assert "a token" in old.read_text()
    assert "a token" not in str(old)
    assert '"><script>' not in new.read_text()
    os.utime(old, (clock.now - VALID_S - 1,) * 2)
    os.utime(new, (clock.now - VALID_S,) * 2)
    remove_pages(tmp_path, clock)
    assert [old.exists(), new.exists()] == [False, True]
    remove_pages(tmp_path / "nothing", clock)
