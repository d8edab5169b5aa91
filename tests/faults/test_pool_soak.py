"""The upstream pool under random cancels: no answer ever reaches another caller."""

from __future__ import annotations

import asyncio
import os
import random

from gateway.config.secrets import Secret
from gateway.config.snapshot import Provider, Timeouts
from gateway.errors import UpstreamFailure
from gateway.providers.transport import Transport, UpstreamRequest
from gateway.simulator.engine import Engine
from gateway.simulator.server import EngineServer

CALLS = int(os.environ.get("SOAK_CALLS", "5000"))


async def test_two_tenants_with_random_cancels_never_cross() -> None:
    """Each call repeats its own nonce; a third of them are cancelled at a random moment."""
    dice = random.Random()
    server = await EngineServer(Engine("one", "m1")).start()
    transport = Transport(1 << 20)
    providers = [
        Provider(f"p{n}", "openai-compatible", server.url, (Secret(f"credential-{n}-0123456789"),), "eu", True, False)
        for n in range(2)
    ]
    finished = cancelled = 0
    gate = asyncio.Semaphore(40)

    async def one(number: int) -> None:
        nonlocal finished, cancelled
        provider = providers[number % 2]
        nonce = f"nonce{number}x{dice.randrange(10**9)}"
        body = b'{"model":"m1","stream":%b,"messages":[{"role":"user","content":"repeat exactly: %b"}]}' % (
            b"true" if number % 3 == 0 else b"false",
            nonce.encode(),
        )
        request = UpstreamRequest("/v1/chat/completions", (("x-request-id", nonce),), body, number % 3 == 0)

        async def call() -> bytes:
            answer = await transport.open(provider, provider.credentials[0], Timeouts(5, 20, 20), request)
            data = b""
            while chunk := await answer.next_chunk():
                data += chunk
            return data

        async with gate:
            try:
                if dice.random() < 0.33:
                    data = await asyncio.wait_for(call(), dice.uniform(0.0001, 0.008))
                else:
                    data = await call()
            except TimeoutError:
                cancelled += 1
                return
            except UpstreamFailure as failure:
                raise AssertionError(str(failure)) from failure
            assert nonce.encode() in data
            assert data.count(b"nonce") == data.count(nonce.encode()), "another caller's answer"
            finished += 1

    for start in range(0, CALLS, 2000):
        await asyncio.gather(*(one(number) for number in range(start, min(start + 2000, CALLS))))
    assert finished + cancelled == CALLS and finished > CALLS // 2 and cancelled > CALLS // 50
    transport.close()
    await server.close()
    print(f"\n{CALLS} calls: {finished} answered, {cancelled} cancelled, 0 crossed")
