"""`serve`: one process that listens until it is told to stop."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import uvicorn

from gateway.app import Gateway
from gateway.config.loader import ConfigError, Loaded, load_or_raise
from gateway.http.server import Bounds, bounded
from gateway.storage.database import Database, DatabaseUnusable
from gateway.storage.single import SingleProcess
from gateway.telemetry.logs import configure


def serve(
    path: Path, *, host: str | None = None, port: int | None = None, workers: int | None = None, migrate: bool = False
) -> None:
    """Runs the gateway until it is told to stop. Raises what the command line turns into one line."""
    loaded = load_or_raise(path)
    assert loaded.settings is not None
    server = loaded.settings.server
    configure(server.log_level)
    if (workers or server.workers) > 1:
        raise ConfigError([])
    gateway = Gateway(loaded, migrate=migrate)
    # Held until the process ends, however it ends.
    single = SingleProcess(lock_file(loaded, gateway.database))
    single.acquire()
    bounds = Bounds(body_bytes=int(server.max_body_mb * 1024 * 1024), connections=server.max_connections)
    config = uvicorn.Config(
        gateway.asgi(),
        loop="uvloop",
        http=bounded(bounds),
        ws="none",
        lifespan="on",
        proxy_headers=False,
        server_header=False,
        access_log=False,
        log_config=None,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=int(server.drain_s),
    )
    with _listen(host or server.host, server.port if port is None else port) as listener:
        _Server(config).run(sockets=[listener])


class _Server(uvicorn.Server):
    """uvicorn raises the signal it was stopped by once more at the end; an ordered stop ends with 0 instead."""

    def handle_exit(self, sig: int, frame: Any) -> None:
        super().handle_exit(sig, frame)
        self._captured_signals.clear()


def lock_file(loaded: Loaded, database: Database) -> Path:
    """Beside a SQLite database; in the keys folder for a database elsewhere."""
    assert loaded.settings is not None
    if database.sqlite is not None:
        return database.sqlite.with_name(database.sqlite.name + ".lock")
    return loaded.path.parent / loaded.settings.keys_dir / "gateway.lock"


def _listen(host: str, port: int) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(2048)
        listener.setblocking(False)
        return listener
    except OSError as error:
        raise DatabaseUnusable(f"cannot listen on {host}:{port}: {error.strerror}") from None
