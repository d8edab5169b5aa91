"""The upstream transport: sends one request, gives back its answer, and decides which connections live on."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from gateway.config.secrets import Secret
from gateway.config.snapshot import Provider, Timeouts
from gateway.errors import UpstreamFailure
from gateway.providers.connection import Connection, RawHook
from gateway.providers.egress import Resolver
from gateway.providers.pool import Origin, Pool


@dataclass(frozen=True, slots=True)
class UpstreamRequest:
    """One HTTP request to a provider. `path` is absolute on the provider's origin; header values are latin-1 safe."""

    path: str
    headers: tuple[tuple[str, str], ...]
    body: bytes
    streaming: bool
    method: str = "POST"


class UpstreamAnswer:
    """Status and headers of an answer, and its body as it comes. Must be ended by `close()` or by reading it all."""

    __slots__ = ("_connection", "_pool", "headers", "host", "status", "tls_spki")

    def __init__(self, pool: Pool, connection: Connection) -> None:
        self._pool = pool
        self._connection: Connection | None = connection
        self.status = connection.status
        self.headers = connection.headers
        self.host = pool.origin.authority
        self.tls_spki = connection.tls_spki

    def header(self, name: str) -> str | None:
        """The first value of a header (lower-case name)."""
        for key, value in self.headers:
            if key == name:
                return value
        return None

    async def read(self) -> bytes:
        """The whole decoded body; the connection is given back."""
        assert self._connection is not None
        try:
            return await self._connection.read()
        finally:
            self.close()

    async def next_chunk(self) -> bytes:
        """The next decoded bytes; `b""` at the clean end, when the connection is given back."""
        if self._connection is None:
            return b""
        try:
            chunk = await self._connection.next_chunk()
        except BaseException:
            self.close()
            raise
        if not chunk:
            self.close()
        return chunk

    def close(self) -> None:
        """Ends the exchange. A connection whose answer was not read to its clean end is closed, never pooled."""
        connection, self._connection = self._connection, None
        if connection is not None:
            self._pool.give_back(connection)


class Transport:
    """Pools of every provider. One per process; used from one event loop."""

    def __init__(self, max_body_bytes: int) -> None:
        self._limit = max_body_bytes
        self._resolver = Resolver()
        self._by_id: dict[tuple[str, str], Pool] = {}
        self._origins: dict[str, Provider] = {}

    def pool(self, provider: Provider, credential: Secret | None) -> Pool:
        """The pool of a provider and credential; another configuration of the provider gets a new one."""
        key = (provider.id, credential.reveal() if credential else "")
        known = self._origins.get(provider.id)
        if known is not provider:
            if known is not None and (known.base_url, known.network) != (provider.base_url, provider.network):
                self._drop(provider.id)
            self._origins[provider.id] = provider
        pool = self._by_id.get(key)
        if pool is None:
            pool = self._by_id[key] = Pool(Origin.of(provider.base_url), provider.network, self._resolver)
        return pool

    def _drop(self, provider_id: str) -> None:
        for key in [key for key in self._by_id if key[0] == provider_id]:
            self._by_id.pop(key).close()

    async def open(
        self,
        provider: Provider,
        credential: Secret | None,
        timeouts: Timeouts,
        request: UpstreamRequest,
        raw: RawHook | None = None,
    ) -> UpstreamAnswer:
        """Sends and waits for the head of the answer, or raises `UpstreamFailure`; cancelled, it closes the socket."""
        pool = self.pool(provider, credential)
        data = _serialise(pool.origin, request)
        connection = pool.reuse()
        reused = connection is not None
        if connection is None:
            connection = await pool.connect(timeouts.connect_s)
        while True:
            connection.exchange(
                data,
                first_byte_s=timeouts.first_byte_s,
                idle_s=timeouts.idle_s,
                limit=self._limit,
                streaming=request.streaming,
                raw=raw,
            )
            try:
                await connection.head()
            except UpstreamFailure as failure:
                pool.give_back(connection)
                if reused and failure.kind == "read" and not connection.received:
                    # The upstream closed an idle connection as we wrote to it: nothing was answered, one new try.
                    connection, reused = await pool.connect(timeouts.connect_s), False
                    continue
                raise
            except asyncio.CancelledError:
                connection.close()
                raise
            return UpstreamAnswer(pool, connection)

    def close(self) -> None:
        """Closes idle connections of every pool."""
        for pool in self._by_id.values():
            pool.close()


def _serialise(origin: Origin, request: UpstreamRequest) -> bytes:
    head = [f"{request.method} {request.path} HTTP/1.1\r\nhost: {origin.authority}\r\n"]
    for name, value in request.headers:
        head.append(f"{name}: {value}\r\n")
    if request.method == "POST":
        head.append(f"content-length: {len(request.body)}\r\n")
    head.append("\r\n")
    return "".join(head).encode("latin-1") + request.body
