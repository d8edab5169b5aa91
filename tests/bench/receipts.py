"""`make bench-receipts`: a million receipts on each database; what they cost, weigh and how fast they are found.

python tests/bench/receipts.py [COUNT] [sqlite|postgres|both]
"""

from __future__ import annotations

import asyncio
import random
import secrets
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
from receipt_scene import Scene, database, scene

from gateway.exchange import (
    Attempt,
    Check,
    Effective,
    Endpoint,
    Evidence,
    Exchange,
    Grade,
    Principal,
    TokenCount,
    Usage,
)
from gateway.receipts import verifier
from gateway.receipts.commitments import commit
from gateway.receipts.envelope import envelope
from gateway.receipts.record import ReceiptFilter
from gateway.receipts.sealer import ReceiptSealer
from gateway.receipts.signer import open_keys
from gateway.receipts.statement import Pseudonyms

DICE = random.Random(7)
TENANTS = [f"tenant-{n}" for n in range(40)]
DEPLOYMENTS = [f"deployment-{n}" for n in range(20)]
BODY = b"x" * 1024


def exchange(number: int, start: float) -> Exchange:
    """A request as most are, with a rare failure, a rare flag and a rare long prompt."""
    at = start + number * 0.01
    made = Exchange(
        f"req_{secrets.token_hex(16)}", f"rcpt_{secrets.token_hex(16)}", Endpoint.chat, at, time.monotonic()
    )
    made.principal = Principal(DICE.choice(TENANTS), "key-1")
    made.requested_model = "gpt-4o"
    deployment = DICE.choice(DEPLOYMENTS)
    made.attempts = [
        Attempt(deployment, "openai", "us", "api.openai.com", "gpt-4o-2024-08-06", at, at + 1, 200, None,
                f"asy-{secrets.token_hex(12)}", f"chatcmpl-{secrets.token_hex(12)}")
    ]  # fmt: skip
    model = "gpt-4o-2024-08-06" if DICE.random() > 0.0001 else "gpt-3.5-turbo"
    made.effective = Effective(
        deployment,
        Evidence("openai", "origin", Grade.observed),
        Evidence("us", "config", Grade.declared),
        Evidence(model, "body.model", Grade.asserted),
        Evidence("fp_0a1b2c3d4e", "body.system_fingerprint", Grade.asserted),
    )
    made.commitments = {name: commit(BODY) for name in ("request", "response", "upstream_request", "upstream_response")}
    made.checks = [Check(name, "passed", None) for name in ("response_id", "completeness", "binding", "capacity")]
    tokens = 100_000 if DICE.random() < 0.0001 else DICE.randrange(20, 4000)
    made.count, made.usage = TokenCount(tokens, "estimated"), Usage(tokens, DICE.randrange(1, 500))
    made.outcome = "failed" if DICE.random() < 0.0001 else "completed"
    made.integrity = "flagged" if DICE.random() < 0.0001 else "passed"
    return made


async def fill(opened: Scene, count: int) -> dict[str, float]:
    """Makes, signs, stores and integrates; returns CPU per receipt in microseconds."""
    sealer = ReceiptSealer(
        lambda: opened.keys, Pseudonyms(lambda t: b"k" * 32), opened.store, lambda: frozenset(), journal=None
    )
    start = time.time() - count * 0.01
    sealing = making = 0.0
    for first in range(0, count, 2000):
        before = time.process_time()
        made = [exchange(n, start) for n in range(first, min(first + 2000, count))]
        making += time.process_time() - before
        before = time.process_time()
        await asyncio.gather(*(sealer.seal(item) for item in made))
        sealing += time.process_time() - before
        if first and first % 100_000 == 0:
            print(f"  {first:,} stored", flush=True)
    before, wall = time.process_time(), time.perf_counter()
    while True:
        newest = await opened.log.latest()
        if newest is not None and newest[0] >= count + 2:
            break
        await asyncio.sleep(0.2)
    return {
        "sealed_us": sealing / count * 1e6,
        "behind_cpu_us": (time.process_time() - before) / count * 1e6,
        "catch_up_s": time.perf_counter() - wall,
    }


async def searches(opened: Scene) -> list[tuple[str, float, float, int]]:
    """(what, median ms, worst ms, rows) of five runs each."""
    now = int(time.time() * 1000)
    wanted = {
        "tenant": ReceiptFilter("tenant-7"),
        "deployment": ReceiptFilter(deployment="deployment-3"),
        "effective model (rare)": ReceiptFilter(model="gpt-3.5-turbo"),
        "effective model (common)": ReceiptFilter(model="gpt-4o-2024-08-06"),
        "outcome (rare)": ReceiptFilter(outcome="failed"),
        "verdict (rare)": ReceiptFilter(integrity="flagged"),
        "time window": ReceiptFilter(since_ms=now - 3_600_000, until_ms=now - 1_800_000),
        "token range (rare)": ReceiptFilter(min_prompt_tokens=50_000),
        "tenant + rare verdict": ReceiptFilter("tenant-7", integrity="flagged"),
        "tenant + rare model": ReceiptFilter("tenant-7", model="gpt-3.5-turbo"),
        "deployment + long prompts": ReceiptFilter(deployment="deployment-3", min_prompt_tokens=50_000),
        "nothing found": ReceiptFilter(outcome="refused", model="none"),
    }
    table = []
    for name, filters in wanted.items():
        times, rows = [], 0
        for _ in range(5):
            start = time.perf_counter()
            page, _ = await opened.store.search(filters)
            times.append((time.perf_counter() - start) * 1000)
            rows = len(page)
        table.append((name, statistics.median(times), max(times), rows))
    return table


async def verification(opened: Scene) -> float:
    """Offline verification of one receipt, median milliseconds."""
    page, _ = await opened.store.search(ReceiptFilter(limit=1))
    receipt = page[0]
    assert receipt.index is not None
    proof = await opened.log.proof(receipt.index)
    assert proof is not None
    document = {
        "envelope": envelope(receipt.payload, receipt.kid, receipt.signature), "proof": proof[0], "checkpoint": proof[1]
    }  # fmt: skip
    times = []
    for _ in range(50):
        start = time.perf_counter()
        verifier.verify(document, opened.keys.jwks())
        times.append((time.perf_counter() - start) * 1000)
    return statistics.median(times)


async def inclusion(url: str, folder: Path, rate: int, seconds: int) -> tuple[float, float]:
    """Seconds from acknowledgement to a signed checkpoint at a steady rate: (median, worst)."""
    async with scene(url, folder, interval_s=1.0) as opened:
        sealer = ReceiptSealer(
            lambda: opened.keys, Pseudonyms(lambda t: b"k" * 32), opened.store, lambda: frozenset(), journal=None
        )
        done: list[tuple[str, float]] = []

        async def one(number: int) -> None:
            item = exchange(number, time.time() - number * 0.01)
            await sealer.seal(item)
            done.append((item.receipt_id, time.time()))

        tasks = []
        start = time.perf_counter()
        for number in range(rate * seconds):
            await asyncio.sleep(max(0.0, start + number / rate - time.perf_counter()))
            tasks.append(asyncio.ensure_future(one(number)))
        await asyncio.gather(*tasks)
        last = await opened.store.get(done[-1][0], None)
        while last is None or last.index is None:
            await asyncio.sleep(0.1)
            last = await opened.store.get(done[-1][0], None)
        points = await opened.store.read(
            lambda sql: [(r[0], r[1] / 1000) for r in sql.rows("SELECT size, time_ms FROM checkpoints ORDER BY size")]
        )
        delays = []
        for id_, at in done[:: max(1, len(done) // 200)]:
            found = await opened.store.get(id_, None)
            assert found is not None and found.index is not None
            index = found.index
            delays.append(max(0.0, next(t for size, t in points if size > index) - at))
        return statistics.median(delays), max(delays)


async def size_of(opened: Scene, folder: Path) -> int:
    """Bytes of the whole database, all indexes in."""
    if opened.sqlite is not None:
        await opened.store.read(lambda sql: sql.rows("PRAGMA wal_checkpoint(TRUNCATE)"))
        return opened.sqlite.stat().st_size
    rows = await opened.store.read(lambda sql: sql.rows("SELECT pg_database_size(current_database())"))
    return int(rows[0][0])


async def bench(kind: str, count: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        open_keys(folder / "keys", may_create=True)
        async with database(kind, folder) as url:
            async with scene(url, folder, interval_s=1.0) as opened:
                print(f"== {kind}: {count:,} receipts", flush=True)
                figures = await fill(opened, count)
                if kind == "postgres":
                    await opened.store.read(lambda sql: sql.run("ANALYZE"))
                weight = await size_of(opened, folder) / count
                print(f"canonical + sign + hash + store   {figures['sealed_us']:8.0f} us CPU per receipt   (aim 150)")
                print(f"log caught up after the last one  {figures['catch_up_s']:8.1f} s")
                print(f"all in, indexes and log           {weight:8.0f} bytes per receipt    (aim 2,500)")
                print(
                    f"offline verification              {await verification(opened):8.2f} ms                   (aim 5)"
                )
                print(f"{'search':28} {'median ms':>10} {'worst ms':>10} {'rows':>5}   (aim 300 ms)")
                for what, median, worst, rows in await searches(opened):
                    print(f"{what:28} {median:10.1f} {worst:10.1f} {rows:5}")
            median, worst = await inclusion(url, folder, 500, 10)
            print(
                f"inclusion at 500 receipts/s       {median:8.2f} s median, {worst:.2f} s worst (aim 2 s)\n", flush=True
            )


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    kinds = sys.argv[2] if len(sys.argv) > 2 else "both"
    for kind in ("sqlite", "postgres"):
        if kinds in (kind, "both"):
            asyncio.run(bench(kind, count))


if __name__ == "__main__":
    main()
