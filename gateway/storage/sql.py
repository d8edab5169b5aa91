"""Plain drivers behind one synchronous face: sqlite3, and asyncpg in a thread with a loop of its own.

The receipt writer and the log run the same statements on both. SQL is written with `?`; PostgreSQL gets `$1`, `$2`.
Every failure of a driver becomes `SqlError`, whose `data` says that the values and not the database were at fault.
"""

from __future__ import annotations

import asyncio
import itertools
import sqlite3
import threading
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol, TypeVar

import asyncpg

T = TypeVar("T")
_TIMEOUT_S = 15.0
_PG_SETTINGS = {
    "synchronous_commit": "on",  # durable when COMMIT returns
    "lock_timeout": "4s",
    "statement_timeout": "12s",
    "idle_in_transaction_session_timeout": "5s",  # a half-dead replica must not hold the append lock
}


class SqlError(Exception):
    """The database could not do it; `data` when these values can never be stored."""

    def __init__(self, message: str, *, data: bool = False) -> None:
        super().__init__(message)
        self.data = data


class Sql(Protocol):
    """One connection in autocommit mode; transactions are explicit."""

    def rows(self, statement: str, values: Sequence[Any] = ()) -> list[Any]:
        """What a query gives."""
        ...

    def run(self, statement: str, values: Sequence[Any] = ()) -> int:
        """Runs one statement; returns how many rows it changed."""
        ...

    def many(self, statement: str, values: Sequence[Sequence[Any]]) -> None:
        """Runs one statement for many rows."""
        ...

    def begin(self, lock: int) -> None:
        """Begins a transaction that holds a lock of the whole installation until it ends."""
        ...

    def try_begin(self, lock: int) -> bool:
        """The same, or False at once where another process holds the lock."""
        ...

    def commit(self) -> None:
        """Ends the transaction; what it did is durable when this returns."""
        ...

    def rollback(self) -> None:
        """Undoes the transaction; never raises."""
        ...

    def close(self) -> None:
        """Closes the connection; never raises."""
        ...


@contextmanager
def _mapped() -> Iterator[None]:
    try:
        yield
    except (sqlite3.IntegrityError, sqlite3.DataError, sqlite3.InterfaceError, OverflowError) as error:
        raise SqlError(str(error), data=True) from error
    except sqlite3.Error as error:
        raise SqlError(str(error)) from error


class SqliteSql:
    """sqlite3 in WAL mode with full synchronisation. Its one write lock stands for every named lock."""

    def __init__(self, path: Path, timeout_s: float = 5.0) -> None:
        with _mapped():
            self._connection = sqlite3.connect(path, timeout=timeout_s, isolation_level=None, check_same_thread=False)
            for pragma in (
                "journal_mode=WAL",
                "synchronous=FULL",
                "foreign_keys=ON",
                "temp_store=MEMORY",
                "secure_delete=ON",  # an erased key must not lie in a free page
                "cache_size=-8000",
            ):
                self._connection.execute(f"PRAGMA {pragma}")

    def rows(self, statement: str, values: Sequence[Any] = ()) -> list[Any]:
        with _mapped():
            return self._connection.execute(statement, values).fetchall()

    def run(self, statement: str, values: Sequence[Any] = ()) -> int:
        with _mapped():
            return self._connection.execute(statement, values).rowcount

    def many(self, statement: str, values: Sequence[Sequence[Any]]) -> None:
        with _mapped():
            self._connection.executemany(statement, values)

    def begin(self, lock: int) -> None:
        with _mapped():
            self._connection.execute("BEGIN IMMEDIATE")

    def try_begin(self, lock: int) -> bool:
        self.begin(lock)
        return True

    def commit(self) -> None:
        with _mapped():
            self._connection.execute("COMMIT")

    def rollback(self) -> None:
        if self._connection.in_transaction:
            try:
                self._connection.execute("ROLLBACK")
            except sqlite3.Error:
                self.close()

    def close(self) -> None:
        self._connection.close()


class _LoopThread:
    """An event loop for asyncpg beside the threads that wait for it."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="receipt-postgres", daemon=True)
        self._thread.start()

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs it there; every way in which it fails is a `SqlError`."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result(_TIMEOUT_S)
        except (asyncpg.IntegrityConstraintViolationError, asyncpg.DataError) as error:
            raise SqlError(str(error), data=True) from error
        except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, TimeoutError) as error:
            future.cancel()
            raise SqlError(f"{type(error).__name__}: {error}") from error

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)


@lru_cache(maxsize=512)
def _numbered(statement: str) -> str:
    numbers = itertools.count(1)
    return "".join(f"${next(numbers)}" if part == "?" else part for part in statement)


class PostgresSql:
    """asyncpg. Named locks are advisory locks of the transaction."""

    def __init__(self, loop: _LoopThread, url: str) -> None:
        self._loop = loop
        self._connection = loop.wait(_connect(url))

    def rows(self, statement: str, values: Sequence[Any] = ()) -> list[Any]:
        return self._loop.wait(self._connection.fetch(_numbered(statement), *values))

    def run(self, statement: str, values: Sequence[Any] = ()) -> int:
        status: str = self._loop.wait(self._connection.execute(_numbered(statement), *values))
        last = status.rsplit(" ", 1)[-1]
        return int(last) if last.isdigit() else 0

    def many(self, statement: str, values: Sequence[Sequence[Any]]) -> None:
        self._loop.wait(self._connection.executemany(_numbered(statement), values))

    def begin(self, lock: int) -> None:
        self.run("BEGIN")
        self.rows("SELECT pg_advisory_xact_lock(?)", (lock,))

    def try_begin(self, lock: int) -> bool:
        self.run("BEGIN")
        if self.rows("SELECT pg_try_advisory_xact_lock(?)", (lock,))[0][0]:
            return True
        self.rollback()
        return False

    def commit(self) -> None:
        self.run("COMMIT")

    def rollback(self) -> None:
        try:
            self.run("ROLLBACK")
        except SqlError:
            self.close()

    def close(self) -> None:
        try:
            self._loop.wait(self._connection.close(timeout=2))
        except SqlError:
            self._connection.terminate()


async def _connect(url: str) -> Any:
    return await asyncpg.connect(url, timeout=3, command_timeout=_TIMEOUT_S - 1, server_settings=_PG_SETTINGS)


class Source:
    """Connections to one database: the writer's own, and a few that readers share."""

    def __init__(self, url: str, sqlite: Path | None, *, readers: int = 4) -> None:
        self._url = url
        self._sqlite = sqlite
        self._loop = _LoopThread() if sqlite is None else None
        self._idle: list[Sql] = []
        self._lock = threading.Lock()
        self._slots = threading.BoundedSemaphore(readers)

    @property
    def postgres(self) -> bool:
        """Which of the two it is."""
        return self._loop is not None

    def connect(self) -> Sql:
        """A new connection, the caller's to close."""
        if self._sqlite is not None:
            return SqliteSql(self._sqlite)
        assert self._loop is not None
        return PostgresSql(self._loop, self._url)

    @contextmanager
    def reading(self) -> Iterator[Sql]:
        """A shared connection for a moment; one that failed is not used again."""
        if not self._slots.acquire(timeout=_TIMEOUT_S):
            raise SqlError("no connection became free")
        try:
            with self._lock:
                connection = self._idle.pop() if self._idle else None
            connection = connection or self.connect()
            try:
                yield connection
            except BaseException:  # whatever state it is in, nobody else gets it
                connection.close()
                raise
            with self._lock:
                self._idle.append(connection)
        finally:
            self._slots.release()

    def close(self) -> None:
        """Closes what is idle, and the loop."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()
        if self._loop is not None:
            self._loop.close()
