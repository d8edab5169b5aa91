"""Upstreams that are almost right: each edge keeps its answer whole and its connection out of the pool."""

from __future__ import annotations

import asyncio
import random
import zlib

import pytest

from gateway.config.snapshot import Provider, Timeouts
from gateway.providers.decoding import Inflate
from gateway.providers.egress import permitted
from gateway.providers.transport import Transport, UpstreamRequest


async def call(answer: bytes, body: bytes = b"{}", *, wait_for_body: bool = True) -> tuple[bytes, dict[str, str], int]:
    """One exchange with a server of these bytes; body, headers, and how many connections stay pooled."""
    over = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        if wait_for_body:
            await reader.readexactly(len(body))
        writer.write(answer)
        await over.wait()
        writer.transport.abort()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    provider = Provider("p", "openai-compatible", f"http://127.0.0.1:{port}/v1", (), "eu", True, False)
    transport = Transport(1 << 20)
    got = await transport.open(provider, None, Timeouts(5, 5, 5), UpstreamRequest("/v1/x", (), body, False))
    content = await got.read()
    pooled = len(transport.pool(provider, None)._idle)
    transport.close()
    over.set()
    server.close()
    return content, dict(got.headers), pooled


async def test_a_trailer_is_no_header() -> None:
    """A field behind the body cannot replace the evidence that stood before it."""
    data = (
        b"HTTP/1.1 200 OK\r\nx-ms-served-model: small\r\ntransfer-encoding: chunked\r\n\r\n"
        b"2\r\n{}\r\n0\r\nx-ms-served-model: large\r\n\r\n"
    )
    content, headers, _ = await call(data)
    assert content == b"{}" and headers["x-ms-served-model"] == "small"


async def test_an_answer_before_the_request_was_read_ends_the_connection() -> None:
    """The rest of the request would be taken for the next one."""
    big = b"x" * (32 << 20)
    _, _, pooled = await call(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}", big, wait_for_body=False)
    assert pooled == 0
    _, _, pooled = await call(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")
    assert pooled == 1


@pytest.mark.parametrize("around", [-1, 0, 1, 257, 258])
def test_unpacking_loses_nothing_at_its_step(around: int) -> None:
    """Output that is still inside the decoder when a step is full comes out too."""
    noise = random.Random(1).randbytes(2048)
    for plain in (b"a" * (256 * 1024 + around), (noise * 200)[: 512 * 1024 + around]):
        inflate = Inflate("deflate", 1 << 24)
        packed = zlib.compress(plain, 9)
        assert b"".join(inflate.feed(packed[n : n + 7]) for n in range(0, len(packed), 7)) == plain
        inflate.finish()


@pytest.mark.parametrize("address", ["64:ff9b::a9fe:a9fe", "2002:a9fe:a9fe::1", "192.0.0.192"])
def test_metadata_addresses_in_disguise_are_refused(address: str) -> None:
    """Translation prefixes and a cloud's less known address lead to the same place."""
    assert not permitted(address)
