"""The server side of HTTP/1.1: uvicorn's httptools protocol with bounds, and a reply port without ASGI messages.

uvicorn itself has no limit on header bytes (20 MB reached an app) and trusts proxy headers by default; here header
bytes, count and time, request-line length, body bytes and body time are bounded, and what breaks a bound is answered
in the contract's error shape. The request path writes through `Cycle.start/write/end` (one system call for a whole
answer); everything else uses ordinary ASGI messages of the same cycle.
"""

from __future__ import annotations

import asyncio
import logging
import urllib.parse
from asyncio import TimerHandle
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import httptools
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from gateway.errors import AssayError, HeadersTooLarge, InvalidRequest, Overloaded, RequestTooLarge, render

LOG = logging.getLogger("assay.http")
_NO_BODY = frozenset({204, 304})


@dataclass(frozen=True, slots=True)
class Bounds:
    """What one connection may cost before anybody is authenticated. Bytes and seconds."""

    header_bytes: int = 32 * 1024
    header_count: int = 100
    url_bytes: int = 8 * 1024
    head_s: float = 10.0
    body_bytes: int = 32 * 1024 * 1024
    body_idle_s: float = 20.0
    connections: int = 20_000


class Cycle(RequestResponseCycle):
    """One request and its reply. `gone` is called once when the client goes away before the reply is complete."""

    gone: Callable[[], object] | None = None

    def start(self, status: int, head: bytes, *, length: int | None, body: bytes = b"", end: bool = False) -> None:
        """Writes status line, header lines (`head`: each ends in CRLF) and the first bytes of the body at once.

        With `length` None the body goes out in the chunked coding. `end` completes the reply. Never blocks: callers
        that stream use `drain()`.
        """
        if self.disconnected or self.response_started:
            return
        self.response_started = True
        self.waiting_for_100_continue = False
        parts = [STATUS_LINE[status]]
        for name, value in self.default_headers:
            parts += (name, b": ", value, b"\r\n")
        parts.append(head)
        without_body = self.scope["method"] == "HEAD" or status in _NO_BODY
        chunked = length is None and not without_body
        self.chunked_encoding = chunked
        parts.append(b"transfer-encoding: chunked\r\n" if chunked else b"content-length: %d\r\n" % (length or 0))
        if not self.keep_alive:
            parts.append(b"connection: close\r\n")
        parts.append(b"\r\n")
        if body and not without_body:
            parts += (b"%x\r\n" % len(body), body, b"\r\n") if chunked else (body,)
        if end and chunked:
            parts.append(b"0\r\n\r\n")
        self.transport.write(b"".join(parts))
        if end:
            self._complete()

    def write(self, data: bytes) -> None:
        """Writes one chunk of a chunked body."""
        if data and not self.disconnected and not self.response_complete:
            self.transport.write(b"%x\r\n%b\r\n" % (len(data), data))

    def end(self, data: bytes = b"") -> None:
        """Writes the last bytes of a chunked body and completes the reply."""
        if self.disconnected or self.response_complete:
            return
        self.transport.write(b"%x\r\n%b\r\n0\r\n\r\n" % (len(data), data) if data else b"0\r\n\r\n")
        self._complete()

    async def drain(self) -> None:
        """Waits until the client has taken what was written, above the transport's high-water mark."""
        if self.flow.write_paused and not self.disconnected:
            await self.flow.drain()

    def _complete(self) -> None:
        self.response_complete = True
        self.message_event.set()
        if not self.keep_alive:
            self.transport.close()
        self.on_response()

    async def read_body(self, limit: int) -> bytes:
        """The whole request body, at most `limit` bytes; `ConnectionResetError` when it broke off."""
        if self.more_body:
            while True:
                message: dict[str, Any] = await self.receive()  # type: ignore[assignment]
                if message["type"] == "http.disconnect":
                    raise ConnectionResetError("the client left before its body was complete")
                self._collected += message["body"]
                if len(self._collected) > limit:
                    self.keep_alive = False
                    raise RequestTooLarge(f"the body is larger than {limit} bytes")
                if not message["more_body"]:
                    body, self._collected = bytes(self._collected), bytearray()
                    return body
        body, self.body = bytes(self.body), bytearray()
        if len(body) > limit:
            raise RequestTooLarge(f"the body is larger than {limit} bytes")
        return body

    @property
    def _collected(self) -> bytearray:
        parts: bytearray = self.__dict__.setdefault("_parts", bytearray())
        return parts

    @_collected.setter
    def _collected(self, value: bytearray) -> None:
        self.__dict__["_parts"] = value


class BoundedHttpProtocol(HttpToolsProtocol):
    """uvicorn's httptools protocol with the bounds of `Bounds`; a breach is answered and the connection closed."""

    bounds = Bounds()

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._head_bytes = 0
        self._head_timer: TimerHandle | None = None
        self._body_timer: TimerHandle | None = None
        self._refused = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self.bounds.connections:
            self._refuse(Overloaded("too many open connections"))
            return
        self._arm_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._disarm()
        for waiting, _ in self.pipeline:
            waiting.disconnected = True
        self.pipeline.clear()
        super().connection_lost(exc)
        cycle = self.cycle
        if isinstance(cycle, Cycle) and not cycle.response_complete and cycle.gone is not None:
            gone, cycle.gone = cycle.gone, None
            gone()

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        self._unset_keepalive_if_required()
        if self._head_bytes >= 0:
            self._head_bytes += len(data)
        elif self._body_timer is None and self.cycle is not None and self.cycle.response_complete:
            self._arm_head()
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserCallbackError as error:
            cause = error.__context__ or error.__cause__
            self._refuse(cause if isinstance(cause, AssayError) else InvalidRequest("the request is not valid HTTP"))
            return
        except httptools.HttpParserError:
            self._refuse(InvalidRequest("the request is not valid HTTP"))
            return
        except httptools.HttpParserUpgrade:
            # RFC 9110, 7.8: a server may ignore Upgrade; no other protocol is spoken here.
            self._refuse(InvalidRequest("protocol upgrades, WebSocket among them, are not supported"))
            return
        if self._head_bytes > self.bounds.header_bytes + HIGH_WATER_LIMIT:
            self._refuse(HeadersTooLarge("the request's headers are too large"))

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._size = 0
        if self._head_timer is None:
            self._arm_head()

    def on_url(self, url: bytes) -> None:
        self.url += url
        if len(self.url) > self.bounds.url_bytes:
            raise HeadersTooLarge("the request target is too long")

    def on_header(self, name: bytes, value: bytes) -> None:
        self._size += len(name) + len(value) + 4
        if self._size > self.bounds.header_bytes or len(self.headers) >= self.bounds.header_count:
            raise HeadersTooLarge("the request's headers are too large")
        name = name.lower()
        if name == b"expect" and value.lower() == b"100-continue":
            self.expect_100_continue = True
        elif name == b"content-length" and int(value or b"0") > self.bounds.body_bytes:
            raise RequestTooLarge(f"the body is larger than {self.bounds.body_bytes} bytes")
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        self._disarm()
        self._head_bytes = -1
        scope = self.scope
        parser = self.parser
        http_version = parser.get_http_version()
        scope["method"] = parser.get_method().decode("ascii")
        if http_version != "1.1":
            scope["http_version"] = http_version
        parsed = httptools.parse_url(self.url)
        raw_path = parsed.path or b"/"
        path = raw_path.decode("latin-1")
        scope["path"] = urllib.parse.unquote(path) if "%" in path else path
        scope["raw_path"] = raw_path
        scope["query_string"] = parsed.query or b""
        previous = self.cycle
        cycle = Cycle(
            scope=scope,
            transport=self.transport,
            flow=self.flow,
            logger=self.logger,
            access_logger=self.access_logger,
            access_log=False,
            default_headers=self.server_state.default_headers,
            message_event=asyncio.Event(),
            expect_100_continue=self.expect_100_continue,
            keep_alive=http_version != "1.0" and parser.should_keep_alive(),
            on_response=self.on_response_complete,
        )
        scope["extensions"] = {"assay.cycle": cycle}  # type: ignore[dict-item]
        self.cycle = cycle
        if previous is None or previous.response_complete:
            self._start_asgi_task(cycle, self.app)
        else:
            self.flow.pause_reading()
            self.pipeline.appendleft((cycle, self.app))

    def on_body(self, body: bytes) -> None:
        super().on_body(body)
        self._arm_body()

    def on_message_complete(self) -> None:
        if self._body_timer is not None:
            self._body_timer.cancel()
            self._body_timer = None
        super().on_message_complete()
        self._head_bytes = 0

    def on_response_complete(self) -> None:
        if isinstance(self.cycle, Cycle):
            self.cycle.gone = None
        super().on_response_complete()

    def shutdown(self) -> None:
        self._disarm()
        super().shutdown()

    def _arm_head(self) -> None:
        self._head_bytes = 0
        self._head_timer = self.loop.call_later(self.bounds.head_s, self._too_slow)

    def _arm_body(self) -> None:
        """A body must keep coming; a client that trickles nothing for `body_idle_s` is let go."""
        if self._body_timer is not None:
            self._body_timer.cancel()
        self._body_timer = self.loop.call_later(self.bounds.body_idle_s, self._too_slow)

    def _disarm(self) -> None:
        for timer in (self._head_timer, self._body_timer):
            if timer is not None:
                timer.cancel()
        self._head_timer = self._body_timer = None

    def _too_slow(self) -> None:
        """RFC 9110, 15.5.9: the client may repeat the request; nothing of it was processed."""
        if not self.transport.is_closing() and (self.cycle is None or not self.cycle.response_started):
            self.transport.close()

    def _refuse(self, error: AssayError) -> None:
        """Answers in the contract's shape and closes; whatever else the connection says is not read."""
        self._refused = True
        self._disarm()
        body = render(error)
        self.transport.write(
            STATUS_LINE[error.status]
            + b"content-type: application/json\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % len(body)
            + body
        )
        self.transport.close()


def bounded(bounds: Bounds) -> type[BoundedHttpProtocol]:
    """The protocol class with these bounds, as uvicorn's `http` setting takes it."""
    return type("BoundedHttpProtocol", (BoundedHttpProtocol,), {"bounds": bounds})
