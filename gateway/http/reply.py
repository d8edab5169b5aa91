"""How an answer leaves: the port that the pipeline writes to, over one `Cycle` of the server protocol.

`Reply` owns the header block: the contract's `x-assay-*` headers, CORS where an origin is configured, and the ids that
every response carries as far as its exchange got.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from urllib.parse import quote

from gateway.http.server import Cycle

#: Response headers a browser may read; RFC 9110 token names, all ours or standard.
EXPOSED = (
    "x-request-id, x-assay-receipt, x-assay-deployment, x-assay-provider, x-assay-region, x-assay-model, "
    "x-assay-requested-model, x-assay-attempts, x-assay-fallback, x-assay-evidence, x-assay-integrity, x-assay-policy, "
    "x-assay-cache, x-assay-overhead-ms, x-assay-cost-usd, x-ratelimit-limit-requests, x-ratelimit-remaining-requests, "
    "x-ratelimit-reset-requests, x-ratelimit-limit-tokens, x-ratelimit-remaining-tokens, x-ratelimit-reset-tokens, "
    "retry-after"
)
_PLAIN = re.compile(r"^[\x21-\x7e]{0,128}$")
_SAFE = "".join(chr(c) for c in range(0x21, 0x7F) if chr(c) != "%")


def header_value(text: str) -> bytes:
    """Foreign text as a header value: percent-encoded outside 0x21-0x7E and cut at 128 bytes."""
    if _PLAIN.match(text) and "%" not in text:
        return text.encode("ascii")
    encoded = quote(text.encode("utf-8", "surrogatepass"), safe=_SAFE)[:128]
    return re.sub(r"%[0-9A-F]?$", "", encoded).encode("ascii")


def header_block(pairs: Iterable[tuple[str, str]]) -> bytes:
    """Header lines, each ending in CRLF. Values are encoded by `header_value`."""
    return b"".join(b"%b: %b\r\n" % (name.encode("ascii"), header_value(value)) for name, value in pairs)


class Reply:
    """One answer to one client: whole (`send`) or streamed (`open`, `write`, `end`)."""

    __slots__ = ("_cors", "_cycle", "opened")

    def __init__(self, cycle: Cycle, cors: bytes = b"") -> None:
        self._cycle = cycle
        self._cors = cors
        self.opened = False

    @property
    def gone(self) -> bool:
        """True when the client has closed its connection before the answer was complete."""
        return bool(self._cycle.disconnected)

    def on_gone(self, callback: Callable[[], object] | None) -> None:
        """Calls back once, at once, when the client goes away."""
        self._cycle.gone = callback

    def send(self, status: int, headers: Iterable[tuple[str, str]], body: bytes) -> None:
        """A whole JSON answer in one write."""
        self.opened = True
        head = b"content-type: application/json\r\n" + header_block(headers) + self._cors
        self._cycle.start(status, head, length=len(body), body=body, end=True)

    def open(self, headers: Iterable[tuple[str, str]]) -> None:
        """Begins an event stream (WHATWG server-sent events) in the chunked coding."""
        self.opened = True
        self._cycle.start(
            200,
            b"content-type: text/event-stream; charset=utf-8\r\ncache-control: no-cache\r\nx-accel-buffering: no\r\n"
            + header_block(headers)
            + self._cors,
            length=None,
        )

    def write(self, data: bytes) -> None:
        """Sends bytes of an opened stream."""
        self._cycle.write(data)

    async def drain(self) -> None:
        """Waits for a slow client; its upstream is held back meanwhile."""
        await self._cycle.drain()

    def end(self, data: bytes = b"") -> None:
        """Sends the last bytes of an opened stream."""
        self._cycle.end(data)


class Cors:
    """Which origins may read answers. Nothing configured: no header at all (Fetch standard, CORS protocol)."""

    def __init__(self, origins: tuple[str, ...]) -> None:
        self._origins = frozenset(origin.encode("latin-1", "ignore") for origin in origins)
        self._exposed = EXPOSED.encode()

    def headers(self, request_headers: list[tuple[bytes, bytes]]) -> bytes:
        """Header lines for an answer to a request with these headers."""
        if not self._origins:
            return b""
        for name, value in request_headers:
            if name == b"origin" and value in self._origins:
                return (
                    b"access-control-allow-origin: "
                    + value
                    + b"\r\nvary: origin\r\naccess-control-expose-headers: "
                    + self._exposed
                    + b"\r\n"
                )
        return b"vary: origin\r\n"

    def preflight(self, request_headers: list[tuple[bytes, bytes]], allow: bytes) -> bytes:
        """Header lines for an OPTIONS answer; without a configured origin it permits nothing."""
        lines = self.headers(request_headers)
        if b"access-control-allow-origin" not in lines:
            return lines + b"allow: " + allow + b"\r\n"
        asked = next((v for n, v in request_headers if n == b"access-control-request-headers"), b"")
        permitted = b", ".join(part.strip() for part in asked.split(b",") if part.strip().replace(b"-", b"").isalnum())
        return (
            lines
            + b"access-control-allow-methods: "
            + allow
            + b"\r\naccess-control-allow-headers: "
            + permitted
            + b"\r\naccess-control-max-age: 600\r\nallow: "
            + allow
            + b"\r\n"
        )
