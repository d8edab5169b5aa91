"""The bench's load: a closed loop of connections, whole answers or streams, for a time; prints counts and latencies."""

from __future__ import annotations

import asyncio
import json
import sys
import time

import uvloop

CONTENT = "Tell me what the harbour office wrote about the northern berth and who signed for it. " * 7


class Caller(asyncio.Protocol):
    """One connection that asks again as soon as it was answered."""

    def __init__(self, request: bytes, stream: bool, until: float, done: asyncio.Future[None]) -> None:
        self.request, self.stream, self.until, self.done = request, stream, until, done
        self.latencies: list[float] = []
        self.events = self.errors = 0
        self.buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.ask()

    def ask(self) -> None:
        self.began = time.perf_counter()
        self.transport.write(self.request)

    def data_received(self, data: bytes) -> None:
        if self.stream:
            self.events += data.count(b"data: {")
        self.buffer = (self.buffer + data)[-8192:] if self.stream else self.buffer + data
        if self.stream:
            complete = self.buffer.endswith(b"0\r\n\r\n")
        else:
            head, found, body = self.buffer.partition(b"\r\n\r\n")
            at = head.lower().find(b"content-length: ")
            complete = bool(found) and at >= 0 and len(body) >= int(head[at + 16 :].split(b"\r\n", 1)[0])
        if not complete:
            return
        if not self.stream and not self.buffer.startswith(b"HTTP/1.1 200"):
            self.errors += 1
        self.latencies.append(time.perf_counter() - self.began)
        self.buffer = b""
        if time.perf_counter() < self.until:
            self.ask()
        else:
            self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.done.done():
            self.done.set_result(None)


async def main() -> None:
    port, connections, seconds, stream, key = (
        int(sys.argv[1]),
        int(sys.argv[2]),
        float(sys.argv[3]),
        sys.argv[4] == "s",
        sys.argv[5],
    )
    fields = {"model": "mock", "messages": [{"role": "user", "content": CONTENT}], "max_tokens": 300}
    if stream:
        fields["stream"] = True
    body = json.dumps(fields).encode()
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {key}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    loop = asyncio.get_running_loop()
    until = time.perf_counter() + seconds
    callers, waits = [], []
    for _ in range(connections):
        done = loop.create_future()
        _, caller = await loop.create_connection(
            lambda done=done: Caller(head.encode() + body, stream, until, done), "127.0.0.1", port
        )
        callers.append(caller)
        waits.append(done)
    await asyncio.wait_for(asyncio.gather(*waits), seconds + 30)
    latencies = sorted(value for caller in callers for value in caller.latencies)
    print(
        json.dumps(
            {
                "requests": len(latencies),
                "events": sum(caller.events for caller in callers),
                "errors": sum(caller.errors for caller in callers),
                "p50_ms": 1000 * latencies[len(latencies) // 2],
                "p99_ms": 1000 * latencies[int(len(latencies) * 0.99)],
            }
        )
    )


uvloop.run(main())
