"""What goes into the log, and how far it has got."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from gateway.receipts.canonical import canonical
from gateway.storage.receipts_rows import unpack
from gateway.storage.sql import Sql

AUDIT_TYPE = "urn:assay:audit:v1"
_LATE = 1000  # audit rows that may become visible after a later one


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry to be given its place. `ref` names it once and for all."""

    kind: str
    ref: str
    seq: int
    digest: bytes
    time_ms: int


@dataclass(frozen=True, slots=True)
class Position:
    """How far the log has got. Entries below `minimum` were pruned."""

    size: int = 0
    minimum: int = 0
    receipt_seq: int = 0
    audit_seq: int = 0


_POSITION = "SELECT size, minimum, receipt_seq, audit_seq FROM log_state WHERE id = 1"


def state(connection: Sql) -> Position:
    """Where the log stands."""
    found = connection.rows(_POSITION)
    return Position(*(int(value) for value in found[0])) if found else Position()


def store_state(connection: Sql, before: Position, size: int, entries: Sequence[Entry]) -> None:
    """Records what was taken in."""
    receipt = max((e.seq for e in entries if e.kind == "receipt"), default=before.receipt_seq)
    audit = max((e.seq for e in entries if e.kind == "audit"), default=before.audit_seq)
    connection.run(
        "INSERT INTO log_state (id, size, minimum, receipt_seq, audit_seq) VALUES (1, ?, ?, ?, ?) ON CONFLICT (id) "
        "DO UPDATE SET size = excluded.size, receipt_seq = excluded.receipt_seq, audit_seq = excluded.audit_seq",
        (size, before.minimum, receipt, max(audit, before.audit_seq)),
    )


def receipt_entries(connection: Sql, after: int, limit: int, digests: dict[str, bytes]) -> list[Entry]:
    """Receipts in the order of their commits; appends are serialised, so none appears behind `after` later.

    `digests` are those that this process has just committed, taken out as they are used: what somebody changes in the
    database between commit and integration is then found by the audit instead of being logged.
    """
    found = connection.rows("SELECT seq, id, time_ms FROM receipts WHERE seq > ? ORDER BY seq LIMIT ?", (after, limit))
    if any(row[1] not in digests for row in found):
        last = found[-1][0]
        for id_, payload in connection.rows(
            "SELECT id, payload FROM receipts WHERE seq > ? AND seq <= ? ORDER BY seq", (after, last)
        ):
            if id_ not in digests:
                digests[id_] = hashlib.sha256(unpack(bytes(payload))).digest()
    return [Entry("receipt", id_, seq, digests.pop(id_), time_ms) for seq, id_, time_ms in found]


def audit_statement(seq: int, time_ms: int, actor: str, action: str, object: str, detail: str) -> bytes:
    """The canonical bytes of an audit record."""
    values = {"seq": seq, "time_ms": time_ms, "actor": actor, "action": action, "object": object, "detail": detail}
    return canonical({"type": AUDIT_TYPE, **values})


def audit_entries(connection: Sql, after: int) -> list[Entry]:
    """Audit records that have no place yet. They are written without the append lock, so late ones are looked for."""
    found = connection.rows(
        "SELECT a.seq, a.time_ms, a.actor, a.action, a.object, a.detail FROM audit a WHERE a.seq > ? AND NOT EXISTS "
        "(SELECT 1 FROM log_entries l WHERE l.ref = 'audit-' || a.seq) ORDER BY a.seq LIMIT 1000",
        (max(0, after - _LATE),),
    )
    return [
        Entry("audit", f"audit-{row[0]}", row[0], hashlib.sha256(audit_statement(*row)).digest(), row[1])
        for row in found
    ]


def manifest_entries(connection: Sql, statements: Sequence[bytes], known: set[bytes], wall: float) -> list[Entry]:
    """Statements about keys that the log does not have; they are stored beside it. `known` saves asking again."""
    fresh = []
    for statement in statements:
        digest = hashlib.sha256(statement).digest()
        if digest in known:
            continue
        known.add(digest)
        ref = f"key-{digest.hex()[:32]}"
        if connection.rows("SELECT 1 FROM key_manifest WHERE ref = ?", (ref,)):
            continue
        time_ms = int(wall * 1000)
        connection.run("INSERT INTO key_manifest (ref, time_ms, statement) VALUES (?, ?, ?)", (ref, time_ms, statement))
        fresh.append(Entry("key", ref, 0, digest, time_ms))
    return fresh
