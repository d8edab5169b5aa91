"""Keep-alive pools: one per provider origin and credential, so that a connection never changes its credential."""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from gateway.config.snapshot import Network
from gateway.errors import UpstreamFailure
from gateway.providers.connection import Connection
from gateway.providers.egress import Resolver, unreachable
from gateway.providers.proxy import tunnel
from gateway.providers.tls import client_context, spki_sha256

_MAX_IDLE = 256


@dataclass(frozen=True, slots=True)
class Origin:
    """Scheme, host and port of a configured base URL."""

    scheme: str
    host: str
    port: int
    path: str = field(compare=False)

    @classmethod
    def of(cls, base_url: str) -> Origin:
        parts = urlsplit(base_url)
        assert parts.hostname is not None
        return cls(
            parts.scheme, parts.hostname, parts.port or (443 if parts.scheme == "https" else 80), parts.path.rstrip("/")
        )

    @property
    def authority(self) -> str:
        """The Host header's value (RFC 9110, 7.2)."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        default = 443 if self.scheme == "https" else 80
        return host if self.port == default else f"{host}:{self.port}"


class Pool:
    """Connections to one origin under one credential."""

    def __init__(self, origin: Origin, network: Network, resolver: Resolver) -> None:
        self.origin = origin
        self._network = network
        self._resolver = resolver
        self._idle: list[Connection] = []
        self._all: set[Connection] = set()
        self._tls: ssl.SSLContext | None = None
        self._closed = False

    def reuse(self) -> Connection | None:
        """The most recently used idle connection that is still open."""
        while self._idle:
            connection = self._idle.pop()
            if not connection.closed:
                return connection
        return None

    async def connect(self, connect_s: float) -> Connection:
        """A new connection within the deadline; raises a `connect` failure."""
        loop = asyncio.get_running_loop()
        connection = Connection(loop, self._lost)
        try:
            async with asyncio.timeout(connect_s):
                await self._dial(loop, connection)
        except TimeoutError:
            connection.close()
            raise unreachable("the upstream could not be reached in time") from None
        except ssl.SSLError:
            connection.close()
            raise unreachable("the upstream's certificate was not accepted") from None
        except OSError:
            connection.close()
            raise unreachable("the upstream refused the connection") from None
        except UpstreamFailure:
            connection.close()
            raise
        except asyncio.CancelledError:
            connection.close()
            raise
        assert connection.transport is not None
        tls = connection.transport.get_extra_info("ssl_object")
        if tls is not None:
            connection.tls_spki = spki_sha256(tls)
        self._all.add(connection)
        return connection

    async def _dial(self, loop: asyncio.AbstractEventLoop, connection: Connection) -> None:
        origin = self.origin
        context = None
        if origin.scheme == "https":
            context = self._tls = self._tls or client_context(self._network)
        if self._network.proxy:
            await tunnel(loop, self._network.proxy, origin.host, origin.port, connection, context, self._resolver)
            return
        last: OSError | None = None
        for family, address in await self._resolver.resolve(origin.host, origin.port):
            try:
                await loop.create_connection(
                    lambda: connection,
                    address,
                    origin.port,
                    family=family,
                    ssl=context,
                    server_hostname=origin.host if context else None,
                )
                return
            except ssl.SSLError:
                raise
            except OSError as error:
                last = error
        raise last or OSError("no address")

    def give_back(self, connection: Connection) -> None:
        """Ends a connection's exchange; keeps it only when nothing about it was odd."""
        if connection.release() and not self._closed and len(self._idle) < _MAX_IDLE:
            self._idle.append(connection)
        else:
            connection.close()

    def _lost(self, connection: Connection) -> None:
        self._all.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)

    def close(self) -> None:
        """Closes what is idle; connections in use are closed when they are given back."""
        self._closed = True
        for connection in list(self._idle):
            connection.close()
        self._idle.clear()
