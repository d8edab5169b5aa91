"""Signing keys: made once, rotated with an overlap, revoked."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from gateway.config.root_secret import KeysUnavailable
from gateway.receipts.checkpoint import parse_checkpoint, sign_checkpoint
from gateway.receipts.envelope import seal
from gateway.receipts.keycheck import KeyCheck
from gateway.receipts.signer import KeyFolder, new_key, open_keys, revoke, rotate

NOW = int(time.time())


def folder(tmp_path: Path) -> Path:
    """Keys that are a day old."""
    for use in ("receipt", "log"):
        new_key(tmp_path / "keys", use, now=NOW - 86_400)  # type: ignore[arg-type]
    return tmp_path / "keys"


def test_keys_are_private_and_never_made_where_they_must_be_mounted(tmp_path: Path) -> None:
    """Mode 0600; without permission to create, an empty folder is an error that says what to do."""
    with pytest.raises(KeysUnavailable, match="mounted"):
        open_keys(tmp_path / "empty", may_create=False)
    open_keys(tmp_path / "keys", may_create=True)
    assert {file.stat().st_mode & 0o777 for file in (tmp_path / "keys").iterdir()} == {0o600}


def test_a_key_that_everybody_can_read_is_refused(tmp_path: Path) -> None:
    """Sloppy permissions are found at start."""
    open_keys(tmp_path / "keys", may_create=True)
    os.chmod(next((tmp_path / "keys").glob("log-*.key")), 0o644)
    with pytest.raises(KeysUnavailable, match="0600"):
        open_keys(tmp_path / "keys", may_create=True)


def test_rotating_one_key_leaves_the_other(tmp_path: Path) -> None:
    """The receipt key changes, the log's does not; the old one stays published until its overlap ends."""
    keys = folder(tmp_path)
    before = open_keys(keys, may_create=False)
    rotated = int(time.time())
    old, new = rotate(keys, "receipt", 3600)
    after = open_keys(keys, may_create=False)
    assert (before.receipt.kid, after.receipt.kid, after.log.kid) == (old, new, before.log.kid)
    published = {key["kid"]: key for key in after.jwks()["keys"]}
    assert set(published) == {old, new, before.log.kid}
    assert rotated + 3600 <= published[old]["exp"] < rotated + 3660
    assert KeyCheck(after).receipt(b"x", old, seal(b"x", before.receipt))


def test_checkpoints_carry_both_signatures_during_the_overlap(tmp_path: Path) -> None:
    """A verifier that knows only the old log key, or only the new one, believes the same checkpoint."""
    keys = folder(tmp_path)
    before = open_keys(keys, may_create=False)
    rotate(keys, "log", 3600)
    after = open_keys(keys, may_create=False)
    text = sign_checkpoint("o/log", 1, b"r" * 32, *after.log_signers(NOW))
    assert len(parse_checkpoint(text).signatures()) == 2
    assert KeyCheck(before).checkpoint(text) == KeyCheck(after).checkpoint(text) == (1, b"r" * 32)
    assert len(after.log_signers(NOW + 7200)) == 1


def test_a_revoked_key_signs_nothing_more_and_says_so(tmp_path: Path) -> None:
    """It is replaced at once, published with the time of its revocation, and entered in the manifest."""
    keys = folder(tmp_path)
    before = open_keys(keys, may_create=False)
    successor = revoke(keys, before.receipt.kid, NOW - 60)
    after = open_keys(keys, may_create=False)
    assert after.receipt.kid == successor != before.receipt.kid
    entry = next(key for key in after.jwks()["keys"] if key["kid"] == before.receipt.kid)
    assert entry["revoked"] == NOW - 60
    assert any(b'"revoked":' in statement for statement in after.manifest())
    with pytest.raises(KeysUnavailable, match="signing list"):
        revoke(keys, "receipt-unknown", NOW)


def test_a_running_process_follows_a_rotation(tmp_path: Path) -> None:
    """No restart; a folder that became unreadable leaves the keys that were."""
    keys = folder(tmp_path)
    opened = KeyFolder(keys, may_create=False, check_every_s=0)
    before = opened.ring().receipt.kid
    _, new = rotate(keys, "receipt", 3600)
    assert opened.ring().receipt.kid == new != before
    for file in keys.glob("receipt-*.key"):
        file.unlink()
    assert opened.ring().receipt.kid == new
