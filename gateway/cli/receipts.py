"""`assay receipts`."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime

import click

from gateway.cli import fail
from gateway.cli.keys import CONFIG
from gateway.cli.session import Session, with_session
from gateway.receipts.envelope import envelope
from gateway.receipts.record import ReceiptFilter, StoredReceipt
from gateway.storage.receipts_store import Receipts

_PAGE = 1000


@click.group("receipts")
def command() -> None:
    """Shows, exports and erases receipts.

    Example: assay receipts export --tenant acme
    """


def _store(session: Session) -> Receipts:
    return session.receipts


@command.command("show")
@CONFIG
@click.argument("id")
def show(config: str | None, id: str) -> None:
    """One receipt's statement as JSON.

    Example: assay receipts show rcpt_0123
    """

    async def work(session: Session) -> StoredReceipt | None:
        return await _store(session).get(id, None)

    found = with_session(config, work)
    if found is None:
        fail("there is no such receipt")
    assert found is not None
    click.echo(json.dumps(json.loads(found.payload), indent=2, ensure_ascii=False))


@command.command("export")
@CONFIG
@click.option("--tenant", required=True)
@click.option("--openings", is_flag=True, help="Adds the keys that open commitments.")
def export(config: str | None, tenant: str, openings: bool) -> None:
    """A tenant's receipts as JSON lines, newest first.

    Example: assay receipts export --tenant acme > receipts.jsonl
    """

    async def work(session: Session) -> None:
        store, after, more = _store(session), None, True
        while more:
            page, more = await store.search(ReceiptFilter(tenant=tenant, after=after, limit=_PAGE))
            for receipt in page:
                line: dict[str, object] = {
                    "id": receipt.id,
                    "envelope": envelope(receipt.payload, receipt.kid, receipt.signature),
                    "index": receipt.index,
                }
                if openings:
                    keys = await store.openings(receipt.id)
                    line["openings"] = {name: base64.b64encode(key).decode() for name, key in keys.items()}
                click.echo(json.dumps(line, separators=(",", ":")))
            after = page[-1].id if page else None

    with_session(config, work)


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
        removed = await _store(session).erase(tenant, before_ms)
        await session.audit.add("cli", "receipts.erase", tenant, {"before": before, "receipts": removed})
        return removed

    click.echo(f"{with_session(config, work)} receipts can no longer be opened")
