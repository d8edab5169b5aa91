"""Whatever an upstream sends, the transport gives an answer or one of its failures, and reuses nothing odd."""

from __future__ import annotations

import asyncio
import gzip

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.config.snapshot import Provider, Timeouts
from gateway.errors import UpstreamFailure
from gateway.providers.egress import permitted
from gateway.providers.transport import Transport, UpstreamRequest

REQUEST = UpstreamRequest("/v1/x", (), b"{}", True)
BODY = b'{"hello": "world", "text": "' + "안녕🦀".encode() * 40 + b'"}'
CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + b"%x\r\n%b\r\n" % (len(BODY), BODY) + b"0\r\n\r\n"
PLAIN = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(BODY), BODY)
PACKED = gzip.compress(BODY)
ZIPPED = b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: %d\r\n\r\n%b" % (len(PACKED), PACKED)


async def exchange(pieces: list[bytes], *, close: bool, limit: int = 1 << 20) -> tuple[bytes | UpstreamFailure, int]:
    """One call to a raw server that sends these pieces; the result, and how many connections stay pooled."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"{}")
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0)
        if close:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    provider = Provider("p", "openai-compatible", f"http://127.0.0.1:{port}/v1", (), "eu", True, False)
    transport = Transport(limit)
    result: bytes | UpstreamFailure
    try:
        answer = await transport.open(provider, None, Timeouts(2, 0.3, 0.3), REQUEST)
        data = b""
        while chunk := await answer.next_chunk():
            data += chunk
        result = data
    except UpstreamFailure as failure:
        result = failure
    pooled = len(transport.pool(provider, None)._idle)
    transport.close()
    server.close()
    return result, pooled


def cut(data: bytes, places: list[int]) -> list[bytes]:
    marks = sorted({place % (len(data) + 1) for place in places} | {0, len(data)})
    return [data[a:b] for a, b in zip(marks, marks[1:], strict=False)]


QUICK = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@QUICK
@given(st.sampled_from([CHUNKED, PLAIN, ZIPPED]), st.lists(st.integers(0, 2000), max_size=12))
def test_any_split_of_an_answer_is_the_same_answer(data: bytes, places: list[int]) -> None:
    """Segment borders mean nothing, and the connection may be used again."""
    result, pooled = asyncio.run(exchange(cut(data, places), close=False))
    assert result == BODY and pooled == 1


@QUICK
@given(st.binary(max_size=300), st.booleans())
def test_garbage_is_a_failure_and_never_pooled(data: bytes, valid_head: bool) -> None:
    """Bytes that are not HTTP, or not what the head announced."""
    head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" if valid_head else b""
    result, pooled = asyncio.run(exchange([head + data], close=True))
    assert isinstance(result, UpstreamFailure) or valid_head
    assert pooled == 0


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (PLAIN[:-3], "truncated"),
        (CHUNKED[:-5], "truncated"),
        (b"HTTP/1.1 200 OK\r\ncontent-encoding: br\r\ncontent-length: 1\r\n\r\nx", "protocol"),
        (b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 3\r\n\r\nabc", "protocol"),
        (b"", "read"),
    ],
)
async def test_broken_answers_have_their_kind(data: bytes, kind: str) -> None:
    """Each way of being wrong is told apart, as retry depends on it."""
    result, pooled = await exchange([data], close=True)
    assert isinstance(result, UpstreamFailure) and result.kind == kind and pooled == 0


async def test_bytes_after_the_answer_end_the_connection() -> None:
    """A second answer that nobody asked for never waits for the next caller."""
    _, pooled = await exchange([PLAIN + PLAIN], close=False)
    assert pooled == 0


async def test_silence_is_a_deadline() -> None:
    """No first byte in time, or none after the first."""
    for data, kind in ((b"HTTP/1.1 200 OK\r\n", "first_byte"), (CHUNKED[:80], "idle")):
        result, pooled = await exchange([data], close=False)
        assert isinstance(result, UpstreamFailure) and result.kind == kind and pooled == 0


async def test_a_compression_bomb_is_given_up() -> None:
    """What unpacks beyond the limit is refused."""
    bomb = gzip.compress(b" " * (1 << 24))
    data = b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: %d\r\n\r\n%b" % (len(bomb), bomb)
    result, pooled = await exchange([data], close=False, limit=1 << 20)
    assert isinstance(result, UpstreamFailure) and result.kind == "protocol" and pooled == 0


@pytest.mark.parametrize(
    "address", ["169.254.169.254", "fe80::1", "::ffff:169.254.169.254", "0.0.0.0", "::", "224.0.0.1", "fd00:ec2::254"]
)
def test_metadata_addresses_are_never_dialled(address: str) -> None:
    """Link-local, unspecified and multicast addresses are refused however they are written."""
    assert not permitted(address)


@pytest.mark.parametrize("address", ["127.0.0.1", "10.1.2.3", "192.168.0.9", "8.8.8.8", "::1", "2001:db8::1"])
def test_engines_on_private_networks_may_be_dialled(address: str) -> None:
    """Self-hosted engines live on loopback and private addresses."""
    assert permitted(address)
