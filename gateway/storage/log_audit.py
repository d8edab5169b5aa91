"""Recomputes the log from what is stored, and says the first thing that is wrong at each place.

What is signed cannot be changed without the log's key, so everything is held against checkpoints: the entries must
make their roots, in order; each entry must be the hash of the row it stands for; each row must have its entry; each
receipt must be signed. An audit may go on from an earlier one only at a size whose signed root the stored hashes
still make.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from gateway.receipts import merkle
from gateway.storage.log_entries import audit_statement, state
from gateway.storage.log_store import leaves, roots
from gateway.storage.receipts_rows import unpack
from gateway.storage.sql import Sql

_STEP = 1000
_MOST = 100
Verify = Callable[[bytes, str, bytes], bool]  # (statement, kid, signature)
VerifyCheckpoint = Callable[[str], tuple[int, bytes] | None]  # text -> (size, root) when a log key signed it


@dataclass(slots=True)
class Report:
    """What an audit found. `problems` are one line each; there are none in an honest log."""

    start: int
    entries: int = 0
    receipts: int = 0
    checkpoints: int = 0
    size: int = 0
    problems: list[str] = field(default_factory=list)

    def add(self, problem: str) -> None:
        """Keeps the first hundred."""
        if len(self.problems) < _MOST:
            self.problems.append(problem)


class _Frontier:
    """The tree so far, as the roots of its complete subtrees from the largest to the smallest."""

    def __init__(self) -> None:
        self.size = 0
        self._stack: list[tuple[int, bytes]] = []

    def add(self, leaf: bytes, level: int = 0) -> None:
        self.size += 1 << level
        node = leaf
        while self._stack and self._stack[-1][0] == level:
            node = merkle.node_hash(self._stack.pop()[1], node)
            level += 1
        self._stack.append((level, node))

    def root(self) -> bytes:
        if not self._stack:
            return merkle.EMPTY_ROOT
        result = self._stack[-1][1]
        for _, node in reversed(self._stack[:-1]):
            result = merkle.node_hash(node, result)
        return result


def audit(connection: Sql, start: int | None, verify: Verify, verify_checkpoint: VerifyCheckpoint) -> Report:
    """Audits from an entry on (None: from the last audit's end). Records how far it got when nothing is wrong."""
    position = state(connection)
    first = _resume(connection) if start is None else start
    first = max(first - first % 256, position.minimum)
    report = Report(first)
    frontier = _frontier(connection, first, report)
    signed = _checkpoints(connection, first, verify_checkpoint, report)
    last_seq = 0
    for entry in _entries(connection, first):
        index, kind, ref, seq, digest, leaf = entry
        if index != frontier.size:
            report.add(f"entry {frontier.size} is missing")
            return report
        _entry(connection, entry, verify, report)
        if merkle.leaf_hash(digest) != leaf:
            report.add(f"entry {index} ({ref}): its leaf hash is not its own")
        if kind == "receipt":
            if seq <= last_seq:
                report.add(f"entry {index} ({ref}) stands before or beside a receipt that was committed earlier")
            last_seq = seq
            report.receipts += 1
        frontier.add(merkle.leaf_hash(digest))
        report.entries += 1
        root = signed.pop(frontier.size, None)
        if root is not None and root != frontier.root():
            report.add(f"the entries do not make the root of the checkpoint for size {frontier.size}")
    report.size = frontier.size
    for size in sorted(signed):
        report.add(f"a checkpoint for size {size} was signed, and the log has {frontier.size} entries")
    _unlogged(connection, position.receipt_seq, report)
    if not report.problems:
        _remember(connection, report, last_seq)
    return report


def _resume(connection: Sql) -> int:
    found = connection.rows("SELECT COALESCE(MAX(size), 0) FROM log_audits")
    return int(found[0][0])


def _remember(connection: Sql, report: Report, last_seq: int) -> None:
    connection.run(
        "INSERT INTO log_audits (size, time_ms, receipt_seq) VALUES (?, ?, ?) ON CONFLICT (size) DO UPDATE SET "
        "time_ms = excluded.time_ms",
        (report.size, int(time.time() * 1000), last_seq),
    )


def _frontier(connection: Sql, first: int, report: Report) -> _Frontier:
    """The tree of the entries before the start, from the roots of their tiles; checkpoints after it hold it fast."""
    frontier = _Frontier()
    number = 0
    while number < first // 256:
        found = roots(connection, number, min(first // 256, number + _STEP))
        if not found:
            report.add(f"the root of tile {number} is missing")
            break
        for root in found:
            frontier.add(root, 8)
        number += len(found)
    for leaf in leaves(connection, frontier.size, first):
        frontier.add(leaf)
    return frontier


def _checkpoints(connection: Sql, first: int, verify_checkpoint: VerifyCheckpoint, report: Report) -> dict[int, bytes]:
    """Signed roots by size, of the checkpoints after the start."""
    signed: dict[int, bytes] = {}
    for size, root, text in connection.rows(
        "SELECT size, root, text FROM checkpoints WHERE size > ? ORDER BY size", (first,)
    ):
        said = verify_checkpoint(text)
        report.checkpoints += 1
        if said is None:
            report.add(f"the checkpoint for size {size} is not signed by a key of this log")
        elif said != (size, bytes(root)):
            report.add(f"the checkpoint stored for size {size} is about another tree")
        else:
            signed[size] = said[1]
    return signed


def _entries(connection: Sql, first: int) -> Iterator[tuple[int, str, str, int, bytes, bytes]]:
    position = first - 1
    while found := connection.rows(
        "SELECT idx, kind, ref, seq, entry, leaf FROM log_entries WHERE idx > ? ORDER BY idx LIMIT ?",
        (position, _STEP),
    ):
        for row in found:
            yield row[0], row[1], row[2], row[3], bytes(row[4]), bytes(row[5])
        position = found[-1][0]


def _entry(connection: Sql, entry: tuple[int, str, str, int, bytes, bytes], verify: Verify, report: Report) -> None:
    """One entry against the row it stands for."""
    index, kind, ref, seq, digest, _ = entry
    statement = _SOURCES[kind](connection, ref, seq) if kind in _SOURCES else None
    if statement is None:
        report.add(f"entry {index} ({ref}) has no record any more")
        return
    payload, kid, signature = statement
    if hashlib.sha256(payload).digest() != digest:
        report.add(f"entry {index} ({ref}): the record is not the one that was logged")
    elif kid is not None and not verify(payload, kid, signature):
        report.add(f"entry {index} ({ref}): the record's signature does not fit")


Statement = tuple[bytes, str | None, bytes]


def _receipt(connection: Sql, ref: str, seq: int) -> Statement | None:
    found = connection.rows("SELECT payload, kid, signature FROM receipts WHERE seq = ? AND id = ?", (seq, ref))
    if not found:
        return None
    try:
        return unpack(bytes(found[0][0])), found[0][1], bytes(found[0][2])
    except Exception:
        return b"", found[0][1], b""  # what cannot be unpacked is not what was logged


def _audit(connection: Sql, ref: str, seq: int) -> Statement | None:
    found = connection.rows("SELECT seq, time_ms, actor, action, object, detail FROM audit WHERE seq = ?", (seq,))
    return (audit_statement(*found[0]), None, b"") if found else None


def _key(connection: Sql, ref: str, seq: int) -> Statement | None:
    found = connection.rows("SELECT statement FROM key_manifest WHERE ref = ?", (ref,))
    return (bytes(found[0][0]), None, b"") if found else None


_SOURCES: dict[str, Callable[[Sql, str, int], Statement | None]] = {"receipt": _receipt, "audit": _audit, "key": _key}


def _unlogged(connection: Sql, receipt_seq: int, report: Report) -> None:
    """Receipts that should have their entry by now and have none."""
    found: list[Any] = connection.rows(
        "SELECT r.id FROM receipts r WHERE r.seq <= ? AND NOT EXISTS (SELECT 1 FROM log_entries l WHERE l.ref = r.id) "
        "LIMIT 20",
        (receipt_seq,),
    )
    for row in found:
        report.add(f"the receipt {row[0]} has no entry in the log")
