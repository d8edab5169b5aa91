"""Outbound HTTP proxies: a CONNECT tunnel (RFC 9110, 9.3.6) in which the ordinary connection then lives."""

from __future__ import annotations

import asyncio
import base64
import ssl
from urllib.parse import unquote, urlsplit

from gateway.providers.connection import Connection
from gateway.providers.egress import Resolver, unreachable

_MAX_REPLY = 16 * 1024


class _Handshake(asyncio.Protocol):
    """Reads the proxy's answer to CONNECT and nothing more."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.done: asyncio.Future[bytes] = loop.create_future()
        self._seen = b""

    def data_received(self, data: bytes) -> None:
        self._seen += data
        if self.done.done():
            return
        if b"\r\n\r\n" in self._seen or len(self._seen) > _MAX_REPLY:
            self.done.set_result(self._seen)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.done.done():
            self.done.set_exception(ConnectionResetError("the proxy closed the connection"))


async def tunnel(
    loop: asyncio.AbstractEventLoop,
    proxy: str,
    host: str,
    port: int,
    connection: Connection,
    context: ssl.SSLContext | None,
    resolver: Resolver,
) -> None:
    """Connects `connection` to host:port through an http:// proxy; raises a `connect` failure."""
    parts = urlsplit(proxy)
    if parts.scheme != "http" or not parts.hostname:
        raise unreachable("the outbound proxy must be an http:// URL")
    proxy_port = parts.port or 3128
    family, address = (await resolver.resolve(parts.hostname, proxy_port))[0]
    transport, handshake = await loop.create_connection(lambda: _Handshake(loop), address, proxy_port, family=family)
    try:
        target = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        head = f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n"
        if parts.username:
            pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            head += f"Proxy-Authorization: Basic {base64.b64encode(pair.encode()).decode()}\r\n"
        transport.write(f"{head}\r\n".encode("latin-1"))
        reply = await handshake.done
        status = reply.split(b"\r\n", 1)[0].split(b" ")
        if len(status) < 2 or status[1] != b"200" or not reply.endswith(b"\r\n\r\n"):
            raise unreachable("the outbound proxy refused the connection")
        if context is None:
            transport.set_protocol(connection)
            connection.connection_made(transport)
            return
        secured = await loop.start_tls(transport, connection, context, server_hostname=host)
        if secured is None:
            raise unreachable("the connection through the outbound proxy could not be secured")
        connection.connection_made(secured)
    except BaseException:
        transport.abort()
        raise
