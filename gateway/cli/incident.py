"""`assay incident`: exactly which requests were affected, from receipts alone."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

import click

from gateway.cli import fail
from gateway.cli.keys import CONFIG
from gateway.cli.session import Session, with_session
from gateway.receipts.record import ReceiptFilter, StoredReceipt

_PAGE = 1000


@dataclass(frozen=True, slots=True)
class Affected:
    """One request that a deployment served in the window."""

    receipt: str
    tenant: str
    key: str
    time: str
    endpoint: str
    deployment: str
    model: str | None
    fingerprint: str | None
    prompt_tokens: int | None
    outcome: str
    integrity: str


@click.group("incident")
def command() -> None:
    """Finds which requests of which tenants were affected.

    Example: assay incident scope --deployment llama-local --from 2026-08-27 --to 2026-09-10
    """


def _moment(text: str, option: str) -> int:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        fail(f"{option} takes a time such as 2026-08-27 or 2026-08-27T13:22:00Z", 2)
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


@command.command("scope")
@CONFIG
@click.option("--deployment", required=True)
@click.option(
    "--from", "since", required=True, metavar="T", help="Beginning, inclusive (UTC unless it says otherwise)."
)
@click.option("--to", "until", required=True, metavar="T", help="End, exclusive.")
@click.option("--min-prompt-tokens", type=click.IntRange(0))
@click.option("--tenant")
@click.option("--format", "shape", type=click.Choice(["table", "json", "csv"]), default="table")
def scope(
    config: str | None,
    deployment: str,
    since: str,
    until: str,
    min_prompt_tokens: int | None,
    tenant: str | None,
    shape: str,
) -> None:
    """Every request that a deployment answered in a window, with the filters that explain the list.

    Example: assay incident scope --deployment llama-local --from 2026-08-27 --to 2026-09-10 --min-prompt-tokens 681280
    """
    wanted = ReceiptFilter(
        tenant=tenant,
        deployment=deployment,
        since_ms=_moment(since, "--from"),
        until_ms=_moment(until, "--to"),
        min_prompt_tokens=min_prompt_tokens,
        limit=_PAGE,
    )
    found = with_session(config, lambda session: _collect(session, wanted))
    if shape == "json":
        filters = {"deployment": deployment, "from": since, "to": until, "min_prompt_tokens": min_prompt_tokens}
        click.echo(json.dumps({"filters": filters, "affected": [asdict(item) for item in found]}, indent=2))
    elif shape == "csv":
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(Affected.__dataclass_fields__)
        writer.writerows(_safe(item) for item in found)
        click.echo(out.getvalue(), nl=False)
    else:
        _table(found)


async def _collect(session: Session, wanted: ReceiptFilter) -> list[Affected]:
    found: list[Affected] = []
    more = True
    while more:
        page, more = await session.receipts.search(wanted)
        found += [_affected(receipt) for receipt in page]
        if page:
            wanted = ReceiptFilter(**{**asdict(wanted), "after": page[-1].id})
    found.reverse()
    return found


def _affected(receipt: StoredReceipt) -> Affected:
    predicate: dict[str, Any] = json.loads(receipt.payload)["predicate"]
    effective, tokens = predicate["effective"], predicate["tokens"]
    reported = tokens["reported"] or {}
    prompt = reported.get("prompt")
    return Affected(
        receipt.id,
        receipt.tenant,
        receipt.key,
        predicate["time"],
        predicate["endpoint"],
        effective["deployment"],
        effective["model"],
        effective["fingerprint"],
        tokens["counted"]["prompt"] if prompt is None else prompt,
        predicate["outcome"],
        predicate["integrity"],
    )


def _safe(item: Affected) -> list[Any]:
    """Cells that a spreadsheet would run as formulas are text (OWASP, CSV injection)."""
    values = asdict(item).values()
    return [f"'{value}" if isinstance(value, str) and value[:1] in "=+-@\t\r" else value for value in values]


def _table(found: list[Affected]) -> None:
    for tenant, number in sorted(Counter(item.tenant for item in found).items()):
        click.echo(f"{tenant}: {number} request(s)")
        for item in found:
            if item.tenant == tenant:
                click.echo(
                    f"  {item.time}  {item.receipt}  {item.endpoint}  {item.prompt_tokens} prompt tokens  "
                    f"{item.outcome}, integrity {item.integrity}"
                )
    click.echo(f"{len(found)} request(s) in all")
