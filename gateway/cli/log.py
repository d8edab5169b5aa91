"""`assay log`."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

import click

from gateway.cli import fail
from gateway.cli.keys import CONFIG
from gateway.cli.session import Session, with_session
from gateway.receipts.keycheck import KeyCheck
from gateway.receipts.signer import open_keys
from gateway.receipts.tiles import WIDTH, tile_path, tiles_of
from gateway.storage.log_audit import Report, audit
from gateway.storage.log_prune import prune, thin_checkpoints
from gateway.storage.log_store import TransparencyLog


@click.group("log")
def command() -> None:
    """The receipt log: recomputed, pruned, exported.

    Example: assay log audit
    """


@command.command("audit")
@CONFIG
@click.option("--from", "start", type=click.IntRange(0), help="Audits from this entry on; 0 recomputes everything.")
@click.option("--json", "as_json", is_flag=True)
def audit_(config: str | None, start: int | None, as_json: bool) -> None:
    """Recomputes the log from what is stored: entries, records, signatures, checkpoints. Exit 0 if all of it is right.

    Without --from it goes on from where the last audit ended; records that were changed before that point are found
    only with --from.

    Example: assay log audit --from 0
    """

    async def work(session: Session) -> Report:
        check = KeyCheck(open_keys(session.keys_dir, may_create=False))
        return await session.receipts.read(lambda sql: audit(sql, start, check.receipt, check.checkpoint))

    report = with_session(config, work)
    if as_json:
        click.echo(json.dumps(asdict(report), indent=2))
    else:
        for problem in report.problems:
            click.echo(problem, err=True)
        click.echo(
            f"entries {report.start} to {report.size}: {report.entries} recomputed, {report.receipts} receipts and "
            f"{report.checkpoints} checkpoints verified, {len(report.problems)} problem(s)"
        )
    sys.exit(1 if report.problems else 0)


@command.command("prune")
@CONFIG
@click.option("--before", required=True, metavar="DATE", help="Removes receipts made before this date (UTC).")
def prune_(config: str | None, before: str) -> None:
    """Removes old receipts and their entries. Their files go on verifying; newer proofs are not touched.

    Example: assay log prune --before 2026-01-01
    """
    try:
        before_ms = int(datetime.fromisoformat(before).replace(tzinfo=UTC).timestamp() * 1000)
    except ValueError:
        fail("--before takes a date such as 2026-01-01", 2)

    async def work(session: Session) -> tuple[int, int]:
        removed, minimum = await session.receipts.read(lambda sql: prune(sql, before_ms))
        await session.receipts.read(thin_checkpoints)
        await session.audit.add("cli", "log.prune", before, {"entries": removed, "minimum_index": minimum})
        return removed, minimum

    removed, minimum = with_session(config, work)
    click.echo(f"{removed} receipts removed; the log's minimum index is {minimum}")


@command.command("export")
@CONFIG
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
def export(config: str | None, folder: Path) -> None:
    """Writes checkpoint, tiles and entries as static files, laid out as the log serves them.

    Example: assay log export ./log && cd log && python3 -m http.server
    """

    async def work(session: Session) -> int:
        log = TransparencyLog(session.receipts, _never, 1.0, quorum=session.settings.receipts.witness_quorum)
        text = await log.checkpoint()
        if text is None:
            fail("the log has no checkpoint yet")
        size = int(text.split("\n")[1])
        for level, number, width in tiles_of(size):
            _put(folder, tile_path(level, number, width), await log.tile(level, number, width))
        for number in range(-(-size // WIDTH)):
            width = min(WIDTH, size - number * WIDTH)
            _put(folder, tile_path("entries", number, width), await log.bundle(number, width))
        _put(folder, "checkpoint", text.encode())
        return size

    click.echo(f"{with_session(config, work)} entries exported to {folder}")


def _never(size: int, root: bytes) -> str:
    raise AssertionError("an export signs nothing")


def _put(folder: Path, path: str, content: bytes | None) -> None:
    """Pruned tiles are not there."""
    if content is not None:
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
