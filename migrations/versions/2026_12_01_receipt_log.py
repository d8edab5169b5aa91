"""The log's own state: position, roots of full tiles, key manifest, audits; cosignatures; indexes for search."""

import hashlib

import sqlalchemy as sa
from alembic import op

revision = "2026_12_01_receipt_log"
down_revision = "2026_12_01_first_tables"
branch_labels = None
depends_on = None

_BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_FILTERED = ["outcome", "integrity", "model", "prompt_tokens"]


def upgrade() -> None:
    """Makes the tables and fills them from a log that is there already."""
    op.create_table(
        "log_state",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("minimum", sa.BigInteger(), nullable=False),
        sa.Column("receipt_seq", sa.BigInteger(), nullable=False),
        sa.Column("audit_seq", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_log_state"),
    )
    op.create_table(
        "log_subtrees",
        sa.Column("number", _BIG, nullable=False, autoincrement=False),
        sa.Column("root", sa.LargeBinary(32), nullable=False),
        sa.PrimaryKeyConstraint("number", name="pk_log_subtrees"),
    )
    op.create_table(
        "key_manifest",
        sa.Column("ref", sa.String(64), nullable=False),
        sa.Column("time_ms", sa.BigInteger(), nullable=False),
        sa.Column("statement", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("ref", name="pk_key_manifest"),
    )
    op.create_table(
        "log_audits",
        sa.Column("size", _BIG, nullable=False, autoincrement=False),
        sa.Column("time_ms", sa.BigInteger(), nullable=False),
        sa.Column("receipt_seq", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("size", name="pk_log_audits"),
    )
    op.add_column("checkpoints", sa.Column("cosignatures", sa.Integer(), nullable=False, server_default="0"))
    _openings()
    _indexes()
    _fill()


def _openings() -> None:
    """One row per receipt instead of one per commitment: half the bytes, and erased in one piece."""
    op.create_table(
        "openings",
        sa.Column("receipt_id", sa.String(64), nullable=False),
        sa.Column("tenant", sa.String(64), nullable=False),
        sa.Column("keys", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("receipt_id", name="pk_openings"),
        sqlite_with_rowid=False,
    )
    connection = op.get_bind()
    rows = connection.execute(sa.text("SELECT receipt_id, tenant, name, key FROM commitment_keys ORDER BY receipt_id"))
    names = ("request", "response", "upstream_request", "upstream_response")
    packed: dict[tuple[str, str], bytes] = {}
    for receipt, tenant, name, key in rows:
        packed[(receipt, tenant)] = packed.get((receipt, tenant), b"") + bytes([names.index(name)]) + bytes(key)
    for (receipt, tenant), keys in packed.items():
        connection.execute(
            sa.text("INSERT INTO openings (receipt_id, tenant, keys) VALUES (:receipt, :tenant, :keys)"),
            {"receipt": receipt, "tenant": tenant, "keys": keys},
        )
    op.drop_table("commitment_keys")


def _indexes() -> None:
    op.drop_index("ix_log_entries_seq", "log_entries")
    for name in ("ix_receipts_tenant_time", "ix_receipts_deployment_time", "ix_receipts_time"):
        op.drop_index(name, "receipts")
    op.create_index("ix_receipts_tenant_time", "receipts", ["tenant", "time_ms", *_FILTERED, "deployment"])
    op.create_index("ix_receipts_deployment_time", "receipts", ["deployment", "time_ms", *_FILTERED])
    op.create_index("ix_receipts_time", "receipts", ["time_ms", *_FILTERED])
    present = sa.text("session IS NOT NULL")
    op.create_index(
        "ix_receipts_session", "receipts", ["session", "time_ms"], sqlite_where=present, postgresql_where=present
    )


def _fill() -> None:
    connection = op.get_bind()
    size = connection.execute(sa.text("SELECT COALESCE(MAX(idx) + 1, 0) FROM log_entries")).scalar_one()
    if size == 0:
        return
    connection.execute(
        sa.text(
            "INSERT INTO log_state (id, size, minimum, receipt_seq, audit_seq) SELECT 1, MAX(idx) + 1, 0, MAX(seq), 0 "
            "FROM log_entries"
        )
    )
    for number in range(size // 256):
        rows = connection.execute(
            sa.text("SELECT leaf FROM log_entries WHERE idx >= :a AND idx < :b ORDER BY idx"),
            {"a": number * 256, "b": number * 256 + 256},
        )
        level = [bytes(row[0]) for row in rows]
        while len(level) > 1:
            level = [hashlib.sha256(b"\x01" + level[i] + level[i + 1]).digest() for i in range(0, len(level), 2)]
        connection.execute(
            sa.text("INSERT INTO log_subtrees (number, root) VALUES (:number, :root)"),
            {"number": number, "root": level[0]},
        )
