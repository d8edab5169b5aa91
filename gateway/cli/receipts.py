"""`assay receipts`."""

from __future__ import annotations

import base64
import importlib
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from gateway.cli import fail
from gateway.cli.keys import CONFIG
from gateway.cli.session import Session, with_session
from gateway.receipts.document import document
from gateway.receipts.record import ReceiptFilter, StoredReceipt
from gateway.storage.log_store import TransparencyLog

_PAGE = 1000


@click.group("receipts")
def command() -> None:
    """Shows, exports and erases receipts.

    Example: assay receipts export --tenant acme
    """


@command.command("show")
@CONFIG
@click.argument("id")
def show(config: str | None, id: str) -> None:
    """One receipt's statement as JSON.

    Example: assay receipts show rcpt_0123
    """

    async def work(session: Session) -> StoredReceipt | None:
        return await session.receipts.get(id, None)

    found = with_session(config, work)
    if found is None:
        fail("there is no such receipt")
    click.echo(json.dumps(json.loads(found.payload), indent=2, ensure_ascii=False))


@command.command("export")
@CONFIG
@click.option("--tenant", required=True)
@click.option("--openings", is_flag=True, help="Adds the keys that open commitments.")
@click.option("--parquet", type=click.Path(path_type=Path, dir_okay=False), help="Writes this file (extra `parquet`).")
def export(config: str | None, tenant: str, openings: bool, parquet: Path | None) -> None:
    """A tenant's receipts, newest first, as JSON lines: each line is a file that `assay verify` takes.

    Example: assay receipts export --tenant acme > receipts.jsonl
    """

    async def lines(session: Session) -> AsyncIterator[dict[str, Any]]:
        store, after, more = session.receipts, None, True
        log = TransparencyLog(store, _signs_nothing, 1.0, quorum=session.settings.receipts.witness_quorum)
        while more:
            page, more = await store.search(ReceiptFilter(tenant=tenant, after=after, limit=_PAGE))
            for receipt in page:
                yield await document(store, log, receipt, openings=openings)
            after = page[-1].id if page else None

    async def work(session: Session) -> None:
        if parquet is not None:
            await _parquet(parquet, lines(session))
            return
        async for line in lines(session):
            click.echo(json.dumps(line, separators=(",", ":")))

    with_session(config, work)


def _signs_nothing(size: int, root: bytes) -> str:
    raise AssertionError("an export signs nothing")


async def _parquet(file: Path, lines: AsyncIterator[dict[str, Any]]) -> None:
    """One row per receipt: its id, its time, and the whole receipt file as JSON."""
    try:
        arrow = importlib.import_module("pyarrow")
        writers = importlib.import_module("pyarrow.parquet")
    except ImportError:
        fail("Parquet needs the extra `parquet`: pip install 'assay-gateway[parquet]'", 2)
    schema = arrow.schema([("id", arrow.string()), ("statement", arrow.string()), ("receipt", arrow.string())])
    with writers.ParquetWriter(str(file), schema, compression="zstd") as out:
        rows: list[dict[str, str]] = []
        async for line in lines:
            statement = base64.b64decode(line["envelope"]["payload"]).decode()
            rows.append({"id": line["id"], "statement": statement, "receipt": json.dumps(line)})
            if len(rows) == _PAGE:
                out.write_table(arrow.Table.from_pylist(rows, schema))
                rows = []
        out.write_table(arrow.Table.from_pylist(rows, schema))


@command.command("erase")
@CONFIG
@click.option("--tenant", required=True)
@click.option("--before", metavar="DATE", help="Only receipts made before this date (UTC).")
def erase(config: str | None, tenant: str, before: str | None) -> None:
    """Removes the keys that open a tenant's commitments. Signatures and proofs go on verifying.

    Example: assay receipts erase --tenant acme --before 2026-01-01
    """
    before_ms = None
    if before is not None:
        try:
            before_ms = int(datetime.fromisoformat(before).replace(tzinfo=UTC).timestamp() * 1000)
        except ValueError:
            fail("--before takes a date such as 2026-01-01", 2)

    async def work(session: Session) -> int:
        removed = await session.receipts.erase(tenant, before_ms)
        await session.audit.add("cli", "receipts.erase", tenant, {"before": before, "receipts": removed})
        return removed

    click.echo(f"{with_session(config, work)} receipts can no longer be opened")
