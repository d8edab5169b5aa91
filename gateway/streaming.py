"""One stream from its first event to its end: headers, relay, inspection, and the order in which it closes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Protocol

from gateway.dispatch import Answered, feed
from gateway.errors import AssayError, IntegrityViolation, UpstreamError, UpstreamFailure, UpstreamTruncated
from gateway.exchange import Check, EventView, Exchange, Usage
from gateway.integrity.checks import StreamChecks
from gateway.leaks import LeakScan, StreamHold
from gateway.protocols.stream import Relay, Relayed, error_event
from gateway.providers.evidence import effective, merge
from gateway.receipts.commitments import Committer
from gateway.replies import ReplyPort, header_pairs

_KEPT_TEXT = 256 * 1024
KEEP_ALIVE = b": keep-alive\n\n"
#: Checks that the first event decides.
IDENTITY = frozenset({"binding", "unique_id", "model", "created"})


class Inspect(Protocol):
    """The pipeline's inspection of an answer as far as it has come."""

    def __call__(
        self, exchange: Exchange, answered: Answered, *, finished: bool, usage: Usage | None
    ) -> AssayError | None: ...


class StreamSession:
    """The client's side of one stream. Headers go out with the first event, or as `pending` after `header_wait_s`."""

    def __init__(
        self,
        exchange: Exchange,
        reply: ReplyPort,
        header_wait_s: float,
        keep_alive_s: float,
        reservation_headers: tuple[tuple[str, str], ...],
        leaks: LeakScan,
    ) -> None:
        self._exchange = exchange
        self._reply = reply
        self._header_wait_s = header_wait_s
        self._keep_alive_s = keep_alive_s
        self._extra = reservation_headers
        self._leaks = leaks
        self._hold: StreamHold | None = None
        self._response = Committer()
        self._timer: asyncio.TimerHandle | None = None
        self._last_write = 0.0
        self._texts: list[str] = []
        self._text_length = 0
        self.opened = False
        self.answered: Answered | None = None
        self.events = 0
        self._error_bytes = b""

    def expect(self) -> None:
        """Starts to wait for the first event."""
        self._timer = asyncio.get_running_loop().call_later(self._header_wait_s, self._tick)

    def _tick(self) -> None:
        """Nothing came for a while: open the stream, or keep it alive."""
        loop = asyncio.get_running_loop()
        if not self.opened:
            self._open(pending=True)
            self._write(KEEP_ALIVE)
        elif loop.time() - self._last_write >= self._keep_alive_s:
            self._write(KEEP_ALIVE)
        self._timer = loop.call_later(self._keep_alive_s, self._tick)

    def _open(self, *, pending: bool) -> None:
        self.opened = True
        self._reply.open(header_pairs(self._exchange, self._extra, pending=pending))

    def _write(self, data: bytes) -> None:
        if data:
            self._response.update(data)
            self._reply.write(data)
            self._last_write = asyncio.get_running_loop().time()

    def text(self) -> str:
        """What the model wrote, as far as it was delivered (bounded)."""
        return "".join(self._texts)

    async def relay(self, answered: Answered, inspect: Inspect, before_end: Callable[[], Awaitable[None]]) -> None:
        """Delivers the stream. Raises the contract's error when it breaks; the caller ends it with one event."""
        exchange = self._exchange
        relay = answered.relay
        assert relay is not None
        self.answered = answered
        exchange.attempts.append(answered.attempt)
        identity = inspect(exchange, answered, finished=True, usage=None)
        exchange.checks = [check for check in exchange.checks if check.name in IDENTITY]
        if identity is not None and any(check.verdict != "passed" for check in exchange.checks):
            raise identity
        exchange.integrity = "pending"
        checks = StreamChecks(exchange.request.choices if exchange.request else 1)
        self._hold = await self._leaks.hold(exchange, answered.deployment.id)
        if not self.opened:
            self._open(pending=False)
        try:
            await self._pump(answered, relay, checks)
        except UpstreamFailure as failure:
            if not relay.complete:
                raise failure.answer from failure
        finally:
            exchange.repairs += relay.repairs
            exchange.usage = relay.usage
        await self._complete(answered, inspect)
        exchange.outcome = "completed"
        tail = relay.end(exchange.receipt_id)
        self._response.update(tail)
        exchange.commitments["response"] = self._response.done()
        answered.commit_response(exchange)
        self._stop_timer()
        await before_end()
        self._reply.on_gone(None)
        self._reply.end(tail)

    async def _pump(self, answered: Answered, relay: Relay, checks: StreamChecks) -> None:
        items = answered.pending
        while True:
            self._deliver(items, answered, checks)
            if relay.done:
                if not relay.complete:
                    raise UpstreamFailure("truncated", UpstreamTruncated("the upstream ended its stream too soon"))
                answered.answer.close()
                return
            await self._reply.drain()
            waited = time.monotonic()
            chunk = await answered.answer.next_chunk()
            self._exchange.upstream_ms += (time.monotonic() - waited) * 1000
            if not chunk:
                if not relay.complete:
                    raise UpstreamFailure("truncated", UpstreamTruncated("the upstream's stream ended too soon"))
                return
            items = feed(relay, chunk)

    def _deliver(self, items: list[Relayed], answered: Answered, checks: StreamChecks) -> None:
        out: list[bytes] = []
        try:
            for item in items:
                view = item.view
                if view is not None:
                    self._look_at(view, item.text, answered, checks)
                elif item.text:
                    self._stop_for(checks.content())
                if item.text:
                    self._note(item.text)
                out.append(self._held_back(item.out, item.text))
        finally:
            self._write(b"".join(out))

    def _look_at(self, view: EventView, text: str, answered: Answered, checks: StreamChecks) -> None:
        """Evidence and checks of an event that says anything but text."""
        if view.kind == "error":
            message = view.error.get("message") if view.error else None
            raise UpstreamFailure("server", UpstreamError(str(message or "the upstream reported an error")[:500]))
        if view.kind != "data":
            return
        self._stop_for(checks.event(view, has_content=bool(text)))
        who = answered.effective
        if (view.fingerprint and not who.fingerprint.value) or (view.model and not who.model.value):
            later = effective(answered.deployment, answered.answer.headers, view)
            answered.effective = merge(who, later)

    def _held_back(self, data: bytes, text: str) -> bytes:
        """In guard mode nothing leaves before it was scanned together with what followed it."""
        if self._hold is None:
            return data
        released, found = self._hold.pass_on(data, text)
        self._stop_for(found)
        return released

    def _stop_for(self, found: Check | None) -> None:
        if found is not None:
            self._exchange.checks.append(found)
            raise IntegrityViolation(f"the integrity check `{found.name}` failed; the stream was ended")

    def _note(self, text: str) -> None:
        self.events += 1
        if self._text_length < _KEPT_TEXT:
            self._texts.append(text)
            self._text_length += len(text)

    async def _complete(self, answered: Answered, inspect: Inspect) -> None:
        exchange = self._exchange
        foreign = await self._leaks.whole(exchange, answered.deployment.id, (self.text(),), self._hold)
        if foreign is not None and foreign.hard:
            self._stop_for(foreign)
        if self._hold is not None:
            rest, found = self._hold.finish()
            self._stop_for(found)
            self._write(rest)
        identity = exchange.checks
        ended = replace(answered.attempt, ended=time.time())
        exchange.attempts[-1] = answered.attempt = ended
        error = inspect(exchange, answered, finished=True, usage=exchange.usage)
        # The identity was judged with the first event; an id that is now known would look repeated.
        if foreign is not None:
            exchange.checks.append(foreign)
        named = {check.name for check in identity}
        exchange.checks = [*identity, *(check for check in exchange.checks if check.name not in named)]
        failed = [check for check in exchange.checks if check.verdict == "failed" and check.hard]
        if error is not None and failed:
            raise error
        if failed or foreign is not None:
            exchange.integrity = "flagged"
        elif any(check.verdict == "inconclusive" for check in exchange.checks):
            exchange.integrity = "inconclusive"
        elif not any(check.verdict == "failed" for check in exchange.checks):
            exchange.integrity = "passed"

    def commit_error(self, error: AssayError) -> None:
        """Fixes the bytes that will end the stream, so that the receipt commits to them."""
        self._stop_timer()
        self._error_bytes = self._error_event(error, self._exchange.receipt_id)
        self._response.update(self._error_bytes)
        self._exchange.commitments["response"] = self._response.done()

    def end_with_error(self, error: AssayError) -> None:
        """Sends the one error event and no end marker."""
        if error.code == "receipt_unavailable":
            self._error_bytes = self._error_event(error, None)
        self._reply.end(self._error_bytes)

    def _error_event(self, error: AssayError, receipt: str | None) -> bytes:
        if self.answered is not None and self.answered.relay is not None:
            return self.answered.relay.error(error, receipt)
        return error_event(self._exchange.endpoint.dialect, error, receipt)

    def stop(self) -> None:
        """Closes the upstream of a stream that will not be finished, and commits to what was written."""
        self._stop_timer()
        if self.answered is not None:
            self.answered.answer.close()
            attempts = self._exchange.attempts
            if attempts and attempts[-1].sent_id == self.answered.attempt.sent_id:
                attempts[-1] = replace(attempts[-1], ended=time.time())
        if self.opened:
            self._exchange.commitments["response"] = self._response.done()

    def close(self) -> None:
        """Stops timers; always called."""
        self._stop_timer()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
