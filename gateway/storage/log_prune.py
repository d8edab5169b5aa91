"""Retention: removes the oldest receipts and entries and keeps the hashes that newer proofs need.

The tree does not change: files of old receipts go on verifying, and proofs of what remains still reach every
checkpoint, because the roots of pruned tiles stay (C2SP tlog-tiles, pruning with a minimum index).
"""

from __future__ import annotations

import time

from gateway.receipts.tiles import WIDTH
from gateway.storage.log_entries import state
from gateway.storage.log_store import LOG_LOCK
from gateway.storage.sql import Sql

_STEP = WIDTH * 16
_DAY_MS = 86_400_000


def prune(connection: Sql, before_ms: int) -> tuple[int, int]:
    """Removes receipts that are older; returns (entries removed, the new minimum index). Safe beside a running log.

    Only whole tiles go, and never the last one.
    """
    goal = _goal(connection, before_ms)
    removed = 0
    while True:
        connection.begin(LOG_LOCK)
        try:
            position = state(connection)
            end = min(goal, position.minimum + _STEP)
            if end <= position.minimum:
                connection.rollback()
                break
            part = (position.minimum, end)
            connection.run(
                "DELETE FROM openings WHERE receipt_id IN "
                "(SELECT ref FROM log_entries WHERE idx >= ? AND idx < ? AND kind = 'receipt')",
                part,
            )
            connection.run(
                "DELETE FROM receipts WHERE id IN "
                "(SELECT ref FROM log_entries WHERE idx >= ? AND idx < ? AND kind = 'receipt')",
                part,
            )
            removed += connection.run("DELETE FROM log_entries WHERE idx >= ? AND idx < ? AND kind = 'receipt'", part)
            connection.run("UPDATE log_state SET minimum = ? WHERE id = 1", (end,))
            connection.commit()
        except BaseException:
            connection.rollback()
            raise
    return removed, state(connection).minimum


def _goal(connection: Sql, before_ms: int) -> int:
    """The first index that must stay: that of the first receipt that is young enough, down to a whole tile."""
    position = state(connection)
    found = connection.rows(
        "SELECT MIN(l.idx) FROM log_entries l JOIN receipts r ON r.seq = l.seq AND r.id = l.ref "
        "WHERE l.kind = 'receipt' AND r.time_ms >= ?",
        (before_ms,),
    )
    first = found[0][0]
    keep = position.size - 1 if first is None else int(first)
    return max(position.minimum, keep - keep % WIDTH)


def thin_checkpoints(connection: Sql) -> int:
    """Keeps every checkpoint of the last day and one an hour before it; returns how many went."""
    border = int(time.time() * 1000) - _DAY_MS
    return connection.run(
        "DELETE FROM checkpoints WHERE time_ms < ? AND size NOT IN "
        "(SELECT MAX(size) FROM checkpoints WHERE time_ms < ? GROUP BY time_ms / 3600000) "
        "AND size < (SELECT MAX(size) FROM checkpoints)",
        (border, border),
    )
