"""One HTTP/1.1 connection to an upstream: an asyncio.Protocol over httptools, callbacks only, no task.

A connection serves one exchange at a time. Whatever is odd (bytes nobody asked for, an early answer, a broken body, a
deadline, a cancelled caller) makes it unfit for reuse: it is closed and never pooled, so that no reply can reach the
next caller (the 2023 incident, where a cancelled call left its reply on a pooled connection).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

import httptools

from gateway.errors import FailureKind, UpstreamError, UpstreamFailure, UpstreamTimeout, UpstreamTruncated
from gateway.providers.decoding import Identity, Inflate, decoder, protocol_failure

_MAX_HEADERS = 64 * 1024
_HIGH_WATER = 256 * 1024
_LATIN = "latin-1"


class RawHook(Protocol):
    """Takes the raw bytes of an answer's body as they pass, before any decoding (a hash's `update`)."""

    def __call__(self, data: bytes, /) -> object: ...


class Connection(asyncio.Protocol):
    """Created by a pool; `exchange()` starts a request, `head()` and `next_chunk()` wait for its answer."""

    def __init__(self, loop: asyncio.AbstractEventLoop, on_lost: Callable[[Connection], None]) -> None:
        self._loop = loop
        self._on_lost = on_lost
        self.transport: asyncio.Transport | None = None
        self.tls_spki: str | None = None
        self.served = 0
        self.closed = False
        self.busy = False
        self._reset()

    def _reset(self) -> None:
        self.status = 0
        self.headers: list[tuple[str, str]] = []
        self.received = False
        self._header_bytes = 0
        self._chunks: list[bytes] = []
        self._buffered = 0
        self._head_done = False
        self.complete = False
        self._failure: UpstreamFailure | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._decoder: Identity | Inflate | None = None
        self._raw: RawHook | None = None
        self._paused = False
        self._timer: asyncio.TimerHandle | None = None
        self._deadline = 0.0
        self._idle_s = 60.0
        self._keep = False
        self._limit = 0
        self._body_seen = False
        self._streaming = False

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        self._stop_timer()
        if self.busy and not self.complete:
            if self._head_done and self._parser_eof_completes():
                self._finish()
            elif self._failure is None:
                kind: FailureKind = "truncated" if self._head_done else "read"
                answer = UpstreamTruncated if self._head_done else UpstreamError
                self._failure = UpstreamFailure(
                    kind, answer("the upstream closed the connection before it had answered")
                )
        self._wake()
        self._on_lost(self)

    def _parser_eof_completes(self) -> bool:
        """An answer with neither length nor chunked coding ends with the connection (RFC 9112, 6.3)."""
        names = {name for name, _ in self.headers}
        return not names & {"content-length", "transfer-encoding"}

    def data_received(self, data: bytes) -> None:
        if not self.busy or self.complete:
            # Bytes that no request of ours asked for.
            self._keep = False
            self.close()
            return
        self.received = True
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserCallbackError as error:
            cause = error.__context__
            self._fail(
                cause if isinstance(cause, UpstreamFailure) else protocol_failure("the upstream's answer is broken")
            )
        except httptools.HttpParserUpgrade:
            self._fail(protocol_failure("the upstream switched protocols"))
        except httptools.HttpParserError:
            self._fail(protocol_failure("the upstream's answer is not HTTP"))
        self._wake()

    # httptools callbacks

    def on_message_begin(self) -> None:
        if self.complete:
            # A second answer behind the first one: nobody asked for it, and nobody may get it.
            raise protocol_failure("bytes follow the upstream's answer")

    def on_header(self, name: bytes, value: bytes) -> None:
        self._header_bytes += len(name) + len(value)
        if self._header_bytes > _MAX_HEADERS:
            raise protocol_failure("the upstream's headers are too large")
        if self._head_done:
            # A trailer field (RFC 9110, 6.5.1) is never merged into the headers: evidence is read there.
            return
        self.headers.append((name.decode(_LATIN).lower(), value.decode(_LATIN)))

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status < 200:
            self.headers.clear()
            return
        self.status = status
        self._keep = self._parser.should_keep_alive()
        coding = ", ".join([value for name, value in self.headers if name == "content-encoding"])
        self._decoder = decoder(coding, self._limit)
        self._head_done = True

    def on_body(self, data: bytes) -> None:
        if self._raw is not None:
            self._raw(data)
        self._deadline = self._loop.time() + self._idle_s
        self._body_seen = True
        assert self._decoder is not None
        decoded = self._decoder.feed(data)
        if decoded:
            self._chunks.append(decoded)
            self._buffered += len(decoded)
            if self._buffered > _HIGH_WATER and self._streaming and not self._paused and self.transport is not None:
                self._paused = True
                self.transport.pause_reading()

    def on_message_complete(self) -> None:
        if self._head_done:
            self._finish()
        else:
            # An informational answer (1xx) ended; the real one follows.
            self.headers.clear()

    def _finish(self) -> None:
        assert self._decoder is not None
        try:
            self._decoder.finish()
        except UpstreamFailure as failure:
            self._fail(failure)
            return
        self.complete = True
        if self.transport is not None and not self.closed and self.transport.get_write_buffer_size():
            # Answered before it had read the request: what is left of the request would be read as the next one.
            self._keep = False
        self._stop_timer()

    # the exchange

    def exchange(
        self,
        data: bytes,
        *,
        first_byte_s: float,
        idle_s: float,
        limit: int,
        streaming: bool,
        raw: RawHook | None = None,
    ) -> None:
        """Sends one request; nothing of an earlier exchange is left."""
        self._reset()
        self._parser = httptools.HttpResponseParser(self)
        self._idle_s, self._limit, self._raw, self._streaming = idle_s, limit, raw, streaming
        self.busy = True
        self.served += 1
        self._deadline = self._loop.time() + first_byte_s
        self._timer = self._loop.call_at(self._deadline, self._expired)
        assert self.transport is not None
        self.transport.write(data)

    async def head(self) -> None:
        """Waits for status and headers; raises `UpstreamFailure`."""
        while not self._head_done:
            await self._wait()

    async def next_chunk(self) -> bytes:
        """Decoded bytes as they come; `b""` at the clean end. Raises `UpstreamFailure`, after what came before it."""
        while not self._chunks:
            if self.complete:
                return b""
            await self._wait()
        chunks, self._chunks, self._buffered = self._chunks, [], 0
        if self._paused and self.transport is not None:
            self._paused = False
            # While we did not read, the silence was ours.
            self._deadline = self._loop.time() + self._idle_s
            self.transport.resume_reading()
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    async def read(self) -> bytes:
        """The whole decoded body."""
        while not self.complete:
            await self._wait()
        chunks, self._chunks = self._chunks, []
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    def release(self) -> bool:
        """Ends the exchange; True if the connection may serve another."""
        clean = self.complete and self._keep and not self._chunks and self._failure is None and not self.closed
        self.busy = False
        self._stop_timer()
        self._raw = None
        if not clean:
            self.close()
        return clean

    def close(self) -> None:
        """Closes at once, without waiting for what is in flight."""
        self._stop_timer()
        if self.transport is not None and not self.closed:
            self.closed = True
            self.transport.abort()

    async def _wait(self) -> None:
        if self._failure is not None:
            raise self._failure
        if self.closed:
            raise UpstreamFailure("read", UpstreamError("the upstream closed the connection"))
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None
        self._raise_failure()

    def _raise_failure(self) -> None:
        """What came before a failure is delivered before it."""
        if self._failure is not None and not self._chunks:
            raise self._failure

    def _wake(self) -> None:
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def _fail(self, failure: UpstreamFailure) -> None:
        self._keep = False
        if self._failure is None:
            self._failure = failure
        self.close()

    def _expired(self) -> None:
        """One timer per exchange: a deadline that moved on meanwhile is waited for anew."""
        if self.complete or self.closed:
            return
        if self._paused or self._loop.time() < self._deadline:
            self._timer = self._loop.call_at(max(self._deadline, self._loop.time() + 0.05), self._expired)
            return
        kind: FailureKind = "idle" if self._body_seen else "first_byte"
        self._fail(UpstreamFailure(kind, UpstreamTimeout("the upstream did not answer in time")))
        self._wake()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
