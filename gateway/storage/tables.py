"""Tables, as SQLAlchemy Core knows them; migrations make them. Every table with a tenant is scoped by `tenant`."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Column,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
    text,
)

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(column_0_label)s",
        "uq": "uq_%(table_name)s_%(column_0_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
        "pk": "pk_%(table_name)s",
    }
)

Sequence = BigInteger().with_variant(Integer(), "sqlite")

tenants = Table(
    "tenants",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("settings", Text, nullable=False),  # the tenant's block as JSON, validated on the way in and out
    Column("created_ms", BigInteger, nullable=False),
    Column("removed_ms", BigInteger),
)

api_keys = Table(
    "api_keys",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("tenant", String(64), nullable=False),
    Column("hash", LargeBinary(32), nullable=False),  # HMAC-SHA256 of the secret under the pepper
    Column("origin", String(16), nullable=False),  # config | database
    Column("workload", String(64)),
    Column("models", Text),  # JSON array
    Column("limits", Text),  # JSON object
    Column("created_ms", BigInteger, nullable=False),
    Column("expires_ms", BigInteger),
    Column("revoked_ms", BigInteger),
    UniqueConstraint("hash"),
    Index("ix_api_keys_tenant", "tenant"),
)

_FILTERED = ("outcome", "integrity", "model", "prompt_tokens")

receipts = Table(
    "receipts",
    metadata,
    Column("seq", Sequence, primary_key=True, autoincrement=True),
    Column("id", String(64), nullable=False, unique=True),
    Column("tenant", String(64), nullable=False),
    Column("key_id", String(64), nullable=False),
    Column("time_ms", BigInteger, nullable=False),
    Column("endpoint", String(64), nullable=False),
    Column("session", String(512)),
    Column("deployment", String(64)),
    Column("provider", String(128)),
    Column("model", String(300)),
    Column("requested", String(300)),
    Column("outcome", String(16), nullable=False),
    Column("integrity", String(16), nullable=False),
    Column("status", Integer, nullable=False),
    Column("prompt_tokens", BigInteger),
    Column("completion_tokens", BigInteger),
    Column("cost_nano_usd", BigInteger),
    Column("fingerprint", String(128)),
    Column("tags", Text),
    Column("kid", String(64), nullable=False),
    Column("payload", LargeBinary, nullable=False),
    Column("signature", LargeBinary(64), nullable=False),
    # Wide enough that a search filters in the index and reads only the rows it shows.
    Index("ix_receipts_tenant_time", "tenant", "time_ms", *_FILTERED, "deployment"),
    Index("ix_receipts_deployment_time", "deployment", "time_ms", *_FILTERED),
    Index("ix_receipts_time", "time_ms", *_FILTERED),
    Index(
        "ix_receipts_session",
        "session",
        "time_ms",
        sqlite_where=text("session IS NOT NULL"),
        postgresql_where=text("session IS NOT NULL"),
    ),
    sqlite_autoincrement=True,
)

openings = Table(
    "openings",
    metadata,
    Column("receipt_id", String(64), primary_key=True),
    Column("tenant", String(64), nullable=False),
    Column("keys", LargeBinary, nullable=False),  # the keys of one receipt's commitments, erased together
    sqlite_with_rowid=False,
)

log_entries = Table(
    "log_entries",
    metadata,
    Column("idx", BigInteger().with_variant(Integer(), "sqlite"), primary_key=True, autoincrement=False),
    Column("kind", String(16), nullable=False),
    Column("ref", String(64), nullable=False, unique=True),
    Column("seq", BigInteger, nullable=False),
    Column("entry", LargeBinary(32), nullable=False),
    Column("leaf", LargeBinary(32), nullable=False),
)

checkpoints = Table(
    "checkpoints",
    metadata,
    Column("size", BigInteger().with_variant(Integer(), "sqlite"), primary_key=True, autoincrement=False),
    Column("root", LargeBinary(32), nullable=False),
    Column("text", Text, nullable=False),
    Column("time_ms", BigInteger, nullable=False),
    Column("cosignatures", Integer, nullable=False, server_default="0"),
)

log_state = Table(
    "log_state",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("size", BigInteger, nullable=False),
    Column("minimum", BigInteger, nullable=False),  # entries below it were pruned
    Column("receipt_seq", BigInteger, nullable=False),
    Column("audit_seq", BigInteger, nullable=False),
)

log_subtrees = Table(
    "log_subtrees",
    metadata,
    Column("number", BigInteger().with_variant(Integer(), "sqlite"), primary_key=True, autoincrement=False),
    Column("root", LargeBinary(32), nullable=False),  # of 256 leaves; they outlive pruned leaves
)

key_manifest = Table(
    "key_manifest",
    metadata,
    Column("ref", String(64), primary_key=True),
    Column("time_ms", BigInteger, nullable=False),
    Column("statement", LargeBinary, nullable=False),
)

log_audits = Table(
    "log_audits",
    metadata,
    Column("size", BigInteger().with_variant(Integer(), "sqlite"), primary_key=True, autoincrement=False),
    Column("time_ms", BigInteger, nullable=False),
    Column("receipt_seq", BigInteger, nullable=False),
)

log_lease = Table(
    "log_lease",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("owner", String(128), nullable=False),
    Column("until", BigInteger, nullable=False),
)

audit = Table(
    "audit",
    metadata,
    Column("seq", Sequence, primary_key=True, autoincrement=True),
    Column("time_ms", BigInteger, nullable=False),
    Column("actor", String(128), nullable=False),
    Column("action", String(64), nullable=False),
    Column("object", String(200), nullable=False),
    Column("detail", Text, nullable=False),
    sqlite_autoincrement=True,
)

processes = Table(
    "processes",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("seen_ms", BigInteger, nullable=False),
)

quarantines = Table(
    "quarantines",
    metadata,
    Column("deployment", String(64), primary_key=True),
    Column("since_ms", BigInteger, nullable=False),
    Column("reason", Text, nullable=False),
)
