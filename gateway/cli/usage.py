"""`assay usage`."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from datetime import UTC, datetime

import click

from gateway.cli import fail
from gateway.cli.keys import CONFIG
from gateway.cli.session import Session, with_session
from gateway.receipts.record import UsageRow

_DAY_MS = 86_400_000


@click.command("usage")
@CONFIG
@click.option("--tenant", help="Only this tenant.")
@click.option("--from", "since", metavar="DATE", help="From this date on (UTC); 30 days back if left out.")
@click.option("--to", "until", metavar="DATE", help="Before this date (UTC); now if left out.")
@click.option("--json", "as_json", is_flag=True)
def command(config: str | None, tenant: str | None, since: str | None, until: str | None, as_json: bool) -> None:
    """Requests, tokens and cost by tenant, deployment and effective model, from the receipts.

    Example: assay usage --tenant acme --from 2026-11-01 --to 2026-12-01
    """
    now = int(time.time() * 1000)
    since_ms = _date(since, "--from") if since else now - 30 * _DAY_MS
    until_ms = _date(until, "--to") if until else now + 1000

    async def work(session: Session) -> list[UsageRow]:
        return await session.receipts.usage(tenant, since_ms, until_ms)

    rows = with_session(config, work)
    if as_json:
        click.echo(json.dumps([asdict(row) for row in rows], indent=2))
        return
    click.echo(
        f"{'tenant':20} {'deployment':24} {'model':32} {'requests':>9} {'prompt':>12} {'completion':>12} {'USD':>14}"
    )
    for row in rows:
        cost = f"{row.cost_nano_usd / 1e9:.6f}" + ("+?" if row.unpriced else "")
        click.echo(
            f"{row.tenant:20} {row.deployment or '-':24} {row.model or '-':32} {row.requests:9} {row.prompt_tokens:12} "
            f"{row.completion_tokens:12} {cost:>14}"
        )


def _date(text: str, option: str) -> int:
    try:
        return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)
    except ValueError:
        fail(f"{option} takes a date such as 2026-01-31", 2)
    raise AssertionError("unreachable")
