"""`assay signing`."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from pathlib import Path

import click

from gateway.cli import fail
from gateway.cli.configuration import valid_configuration
from gateway.cli.keys import CONFIG
from gateway.config.root_secret import KeysUnavailable
from gateway.config.settings import Settings
from gateway.receipts.cosignature import ED25519, VerifierKey
from gateway.receipts.signer import OVERLAP_S, FileKey, Use, open_keys, revoke, rotate


@click.group("signing")
def command() -> None:
    """The keys that sign receipts and checkpoints. Running processes follow within a second or two.

    Example: assay signing list
    """


def _folder(config: str | None) -> tuple[Path, Settings]:
    found = valid_configuration(config)
    return found.folder / found.settings.keys_dir, found.settings


def _state(key: FileKey, current: tuple[FileKey, ...]) -> str:
    if key.revoked is not None:
        return "revoked"
    if key in current:
        return "current"
    return "retired" if time.time() < key.not_after else "expired"


@command.command("list")
@CONFIG
@click.option("--json", "as_json", is_flag=True)
def list_(config: str | None, as_json: bool) -> None:
    """Every key with its validity; the log's with the verifier key that witnesses need.

    Example: assay signing list --json
    """
    folder, settings = _folder(config)
    try:
        ring = open_keys(folder, may_create=False)
    except KeysUnavailable as error:
        fail(str(error))
    rows = []
    for key in ring.every():
        row: dict[str, object] = {"kid": key.kid, "use": key.use, "state": _state(key, (ring.receipt, ring.log))}
        row |= {"not_before": _date(key.not_before), "not_after": _date(key.not_after)}
        if key.use == "log":
            row["vkey"] = str(VerifierKey(settings.receipts.log_origin, ED25519, key.public))
        rows.append(row)
    if as_json:
        click.echo(json.dumps(rows, indent=2))
        return
    for row in rows:
        click.echo(f"{row['kid']:26} {row['state']:8} {row['not_before']} to {row['not_after']} {row.get('vkey', '')}")


def _date(unix_s: int) -> str:
    return datetime.fromtimestamp(unix_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@command.command("rotate")
@CONFIG
@click.option("--use", type=click.Choice(["receipt", "log", "both"]), default="both", show_default=True)
@click.option("--overlap-days", type=click.FloatRange(0, 365), default=OVERLAP_S / 86_400, show_default=True)
def rotate_(config: str | None, use: str, overlap_days: float) -> None:
    """New keys sign at once. The old ones stay published; checkpoints carry both signatures during the overlap.

    Example: assay signing rotate --use receipt
    """
    folder, _ = _folder(config)
    uses: tuple[Use, ...] = ("receipt", "log")
    for one in uses:
        if use in (one, "both"):
            try:
                old, new = rotate(folder, one, int(overlap_days * 86_400))
            except (KeysUnavailable, OSError) as error:
                fail(f"{error}" if isinstance(error, KeysUnavailable) else f"{folder}: {error.strerror}")
            click.echo(f"{one}: {old} is retired, {new} signs")


@command.command("revoke")
@CONFIG
@click.argument("kid")
@click.option("--at", metavar="TIME", help="From when on its signatures are worthless (UTC); now if left out.")
def revoke_(config: str | None, kid: str, at: str | None) -> None:
    """Declares a key compromised. What it signed after that time no longer verifies; a current one is replaced.

    Example: assay signing revoke receipt-0123456789abcdef --at 2026-11-30T12:00:00
    """
    folder, _ = _folder(config)
    moment = int(time.time())
    if at is not None:
        try:
            moment = int(datetime.fromisoformat(at.removesuffix("Z")).replace(tzinfo=UTC).timestamp())
        except ValueError:
            fail("--at takes a time such as 2026-11-30T12:00:00", 2)
    try:
        successor = revoke(folder, kid, moment)
    except (KeysUnavailable, OSError) as error:
        fail(f"{error}" if isinstance(error, KeysUnavailable) else f"{folder}: {error.strerror}")
    click.echo(f"{kid} is revoked" + (f", {successor} signs" if successor else ""))
