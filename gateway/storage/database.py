"""The database: opened by URL, migrated, and asked through one engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, event
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

_HERE = Path(__file__).resolve().parent.parent


class DatabaseUnusable(Exception):
    """The database cannot be used; the message says what to do."""


def sqlite_path(url: str, folder: Path) -> Path | None:
    """The file of a `sqlite:///` URL, relative to the configuration's folder; None for other databases."""
    if not url.startswith("sqlite:"):
        return None
    return (
        folder / url.removeprefix("sqlite:").lstrip("/")
        if url.startswith("sqlite:///") and not url.startswith("sqlite:////")
        else Path("/" + url.removeprefix("sqlite:").lstrip("/"))
    )


class Database:
    """One engine for everything that is not the receipt writer."""

    def __init__(self, url: str, folder: Path) -> None:
        self.sqlite = sqlite_path(url, folder)
        if self.sqlite is not None:
            self.sqlite.parent.mkdir(parents=True, exist_ok=True)
            self.engine: AsyncEngine = create_async_engine(f"sqlite+aiosqlite:///{self.sqlite}")
            event.listen(self.engine.sync_engine, "connect", _pragmas)
        else:
            parts = urlsplit(url)
            self.engine = create_async_engine(
                parts._replace(scheme="postgresql+asyncpg").geturl(),
                pool_size=5,
                max_overflow=5,
                pool_timeout=2,
                pool_pre_ping=True,
                connect_args={"timeout": 3, "command_timeout": 5},
            )

    async def state(self) -> tuple[str | None, str | None]:
        """(the schema's revision, the newest one there is)."""
        head = ScriptDirectory.from_config(_config()).get_current_head()

        def current(connection: Connection) -> str | None:
            return MigrationContext.configure(connection).get_current_revision()

        async with self.engine.connect() as connection:
            return await connection.run_sync(current), head

    async def upgrade(self) -> None:
        """Brings the schema to the newest revision; safe when several processes try at once."""

        def run(connection: Connection) -> None:
            config = _config()
            config.attributes["connection"] = connection
            command.upgrade(config, "head")

        async with self.engine.begin() as connection:
            await connection.run_sync(run)

    async def close(self) -> None:
        """Closes every connection."""
        await self.engine.dispose()


def _pragmas(connection: Any, _: Any) -> None:
    cursor = connection.cursor()
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "busy_timeout=5000", "foreign_keys=ON"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _config() -> Config:
    for folder in (_HERE / "_data" / "migrations", _HERE.parent / "migrations"):
        if (folder / "env.py").exists():
            config = Config()
            config.set_main_option("script_location", str(folder))
            return config
    raise DatabaseUnusable("the migrations are missing from this installation")
