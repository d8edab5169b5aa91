"""First tables: tenants, keys, receipts with their openings, the log, audit, processes, quarantines."""

import sqlalchemy as sa
from alembic import op

revision = "2026_12_01_first_tables"
down_revision = None
branch_labels = None
depends_on = None

_SERIAL = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Creates every table of the first release."""
    _create_api_keys()
    _create_audit()
    _create_checkpoints()
    _create_commitment_keys()
    _create_log_entries()
    _create_log_lease()
    _create_processes()
    _create_quarantines()
    _create_receipts()
    _create_tenants()


def _create_api_keys() -> None:
    op.create_table(
        "api_keys",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("tenant", sa.String(64), nullable=False),
        sa.Column("hash", sa.LargeBinary(32), nullable=False),
        sa.Column("origin", sa.String(16), nullable=False),
        sa.Column("workload", sa.String(64), nullable=True),
        sa.Column("models", sa.Text(), nullable=True),
        sa.Column("limits", sa.Text(), nullable=True),
        sa.Column("created_ms", sa.BigInteger(), nullable=False),
        sa.Column("expires_ms", sa.BigInteger(), nullable=True),
        sa.Column("revoked_ms", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_api_keys"),
        sa.UniqueConstraint("hash", name="uq_api_keys_hash"),
    )
    op.create_index("ix_api_keys_tenant", "api_keys", ["tenant"])


def _create_audit() -> None:
    op.create_table(
        "audit",
        sa.Column("seq", _SERIAL, nullable=False, autoincrement=True),
        sa.Column("time_ms", sa.BigInteger(), nullable=False),
        sa.Column("actor", sa.String(128), nullable=False),
        sa.Column("action", sa.String(64), nullable=False),
        sa.Column("object", sa.String(200), nullable=False),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("seq", name="pk_audit"),
        sqlite_autoincrement=True,
    )


def _create_checkpoints() -> None:
    op.create_table(
        "checkpoints",
        sa.Column("size", _SERIAL, nullable=False, autoincrement=False),
        sa.Column("root", sa.LargeBinary(32), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("time_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("size", name="pk_checkpoints"),
    )


def _create_commitment_keys() -> None:
    op.create_table(
        "commitment_keys",
        sa.Column("receipt_id", sa.String(64), nullable=False),
        sa.Column("name", sa.String(24), nullable=False),
        sa.Column("tenant", sa.String(64), nullable=False),
        sa.Column("key", sa.LargeBinary(32), nullable=False),
        sa.PrimaryKeyConstraint("receipt_id", "name", name="pk_commitment_keys"),
        sqlite_with_rowid=False,
    )


def _create_log_entries() -> None:
    op.create_table(
        "log_entries",
        sa.Column("idx", _SERIAL, nullable=False, autoincrement=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("ref", sa.String(64), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("entry", sa.LargeBinary(32), nullable=False),
        sa.Column("leaf", sa.LargeBinary(32), nullable=False),
        sa.PrimaryKeyConstraint("idx", name="pk_log_entries"),
        sa.UniqueConstraint("ref", name="uq_log_entries_ref"),
    )
    op.create_index("ix_log_entries_seq", "log_entries", ["seq"])


def _create_log_lease() -> None:
    op.create_table(
        "log_lease",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("owner", sa.String(128), nullable=False),
        sa.Column("until", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_log_lease"),
    )


def _create_processes() -> None:
    op.create_table(
        "processes",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("seen_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_processes"),
    )


def _create_quarantines() -> None:
    op.create_table(
        "quarantines",
        sa.Column("deployment", sa.String(64), nullable=False),
        sa.Column("since_ms", sa.BigInteger(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("deployment", name="pk_quarantines"),
    )


def _create_receipts() -> None:
    op.create_table(
        "receipts",
        sa.Column("seq", _SERIAL, nullable=False, autoincrement=True),
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("tenant", sa.String(64), nullable=False),
        sa.Column("key_id", sa.String(64), nullable=False),
        sa.Column("time_ms", sa.BigInteger(), nullable=False),
        sa.Column("endpoint", sa.String(64), nullable=False),
        sa.Column("session", sa.String(512), nullable=True),
        sa.Column("deployment", sa.String(64), nullable=True),
        sa.Column("provider", sa.String(128), nullable=True),
        sa.Column("model", sa.String(300), nullable=True),
        sa.Column("requested", sa.String(300), nullable=True),
        sa.Column("outcome", sa.String(16), nullable=False),
        sa.Column("integrity", sa.String(16), nullable=False),
        sa.Column("status", sa.Integer(), nullable=False),
        sa.Column("prompt_tokens", sa.BigInteger(), nullable=True),
        sa.Column("completion_tokens", sa.BigInteger(), nullable=True),
        sa.Column("cost_nano_usd", sa.BigInteger(), nullable=True),
        sa.Column("fingerprint", sa.String(128), nullable=True),
        sa.Column("tags", sa.Text(), nullable=True),
        sa.Column("kid", sa.String(64), nullable=False),
        sa.Column("payload", sa.LargeBinary(), nullable=False),
        sa.Column("signature", sa.LargeBinary(64), nullable=False),
        sa.PrimaryKeyConstraint("seq", name="pk_receipts"),
        sa.UniqueConstraint("id", name="uq_receipts_id"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_receipts_deployment_time", "receipts", ["deployment", "time_ms"])
    op.create_index("ix_receipts_tenant_time", "receipts", ["tenant", "time_ms"])
    op.create_index("ix_receipts_time", "receipts", ["time_ms"])


def _create_tenants() -> None:
    op.create_table(
        "tenants",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("settings", sa.Text(), nullable=False),
        sa.Column("created_ms", sa.BigInteger(), nullable=False),
        sa.Column("removed_ms", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_tenants"),
    )
