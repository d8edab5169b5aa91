"""A caller that is cancelled at any await leaves no connection behind that another caller could get."""

from __future__ import annotations

import asyncio

import pytest

from gateway.config.secrets import Secret
from gateway.config.snapshot import Provider, Timeouts
from gateway.providers.transport import Transport, UpstreamRequest

BODY = b'{"ok": true}'
REQUEST = UpstreamRequest("/v1/x", (), b"{}", True)


class Slow:
    """An upstream that stops before each byte range until it is told to go on."""

    def __init__(self) -> None:
        self.gates = [asyncio.Event() for _ in range(4)]
        self.reached = [asyncio.Event() for _ in range(4)]
        self.closed = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"{}")
            head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
            pieces = [head[:20], head[20:], b"%x\r\n%b\r\n" % (len(BODY), BODY), b"0\r\n\r\n"]
            for gate, reached, piece in zip(self.gates, self.reached, pieces, strict=True):
                reached.set()
                await gate.wait()
                writer.write(piece)
                await writer.drain()
            await reader.read()
        except ConnectionError:
            pass
        finally:
            self.closed.set()
            writer.close()


@pytest.mark.parametrize("stage", range(4))
async def test_cancelled_at_each_stage_of_an_answer(stage: int) -> None:
    """Before the head, within it, before the body, before the end: the socket is closed and nothing is pooled."""
    slow = Slow()
    server = await asyncio.start_server(slow.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    credential = Secret("credential-0123456789")
    provider = Provider("p", "openai-compatible", f"http://127.0.0.1:{port}/v1", (credential,), "eu", True, False)
    transport = Transport(1 << 20)

    async def call() -> bytes:
        answer = await transport.open(provider, credential, Timeouts(5, 5, 5), REQUEST)
        data = b""
        while chunk := await answer.next_chunk():
            data += chunk
        return data

    task = asyncio.ensure_future(call())
    for gate in slow.gates[:stage]:
        gate.set()
    await asyncio.wait_for(slow.reached[stage].wait(), 5)
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    for gate in slow.gates:
        gate.set()
    await asyncio.wait_for(slow.closed.wait(), 1)
    assert transport.pool(provider, credential)._idle == []
    server.close()


async def test_cancelled_while_connecting() -> None:
    """An address that accepts and says nothing during TLS: no socket stays open."""
    gone = asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(1024):
            pass
        gone.set()
        writer.close()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    provider = Provider("p", "openai-compatible", f"https://127.0.0.1:{port}/v1", (), "eu", True, False)
    transport = Transport(1 << 20)
    task = asyncio.ensure_future(transport.open(provider, None, Timeouts(5, 5, 5), REQUEST))
    await asyncio.sleep(0.2)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.wait_for(gone.wait(), 2)
    server.close()
