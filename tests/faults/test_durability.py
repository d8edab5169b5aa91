"""What was answered is recorded, whatever happens to the process or the disk."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable
from typing import Any

import httpx
from scene import Engines, GatewayProcess, chat, config

Start = Callable[[dict[str, Any]], GatewayProcess]


def test_every_answered_request_has_its_receipt_after_kill_9(engines: Engines, start: Start) -> None:
    """SIGKILL under load; after the restart each answer that a client got is in the log, once."""
    engines.add("one")
    gateway = start(config(engines))
    answered: list[str] = []
    stop = threading.Event()

    def load(number: int) -> None:
        client = gateway.client()
        while not stop.is_set():
            try:
                answer = client.post(
                    "/v1/chat/completions", json=chat(f"call {number}", "m-one", stream=number % 2 == 0)
                )
                if answer.status_code == 200 and (number % 2 or b"[DONE]" in answer.content):
                    answered.append(answer.headers["x-assay-receipt"])
            except httpx.HTTPError:
                return

    threads = [threading.Thread(target=load, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    time.sleep(2)
    gateway.kill()
    stop.set()
    for thread in threads:
        thread.join(20)
    assert len(answered) > 50
    gateway.start()
    client = gateway.client()
    for id in answered:
        assert gateway.receipt(client, id)["envelope"]["payload"]
    gateway.receipt(client, answered[-1], proven=True)
    with sqlite3.connect(gateway.folder / "assay.db") as database:
        rows = database.execute("SELECT COUNT(*), COUNT(DISTINCT ref), MAX(idx) + 1 FROM log_entries").fetchone()
        logged = database.execute("SELECT COUNT(*) FROM log_entries WHERE kind = 'receipt'").fetchone()[0]
        receipts = database.execute("SELECT COUNT(*) FROM receipts").fetchone()[0]
    assert rows[0] == rows[1] == rows[2] and len(answered) <= logged <= receipts


def test_nothing_is_answered_that_cannot_be_recorded(engines: Engines, start: Start) -> None:
    """With the receipts' table gone the answer is 503 receipt_unavailable, and a stream gets no end marker."""
    engines.add("one")
    gateway = start(config(engines))
    client = gateway.client()
    assert client.post("/v1/chat/completions", json=chat("hello", "m-one")).status_code == 200
    with sqlite3.connect(gateway.folder / "assay.db", timeout=10) as database:
        database.execute("ALTER TABLE receipts RENAME TO hidden")
    refused = client.post("/v1/chat/completions", json=chat("hello", "m-one"))
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "receipt_unavailable")
    streamed = client.post("/v1/chat/completions", json=chat("hello", "m-one", stream=True))
    assert b"[DONE]" not in streamed.content and b"receipt_unavailable" in streamed.content
    with sqlite3.connect(gateway.folder / "assay.db", timeout=10) as database:
        database.execute("ALTER TABLE hidden RENAME TO receipts")
    deadline = time.monotonic() + 10
    while client.post("/v1/chat/completions", json=chat("hello", "m-one")).status_code != 200:
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_shutdown_finishes_what_is_open(engines: Engines, start: Start) -> None:
    """SIGTERM lets an open stream end with its receipt, and the process ends with 0."""
    server = engines.add("one")
    server.engine.faults.event_gap_s = 0.05
    gateway = start(config(engines))
    client = gateway.client()
    text = "repeat exactly: " + " ".join(f"w{n}" for n in range(20))
    seen = b""
    with client.stream("POST", "/v1/chat/completions", json=chat(text, "m-one", stream=True)) as stream:
        chunks = stream.iter_raw()
        seen += next(chunks)
        assert gateway.process is not None
        gateway.process.terminate()
        seen += b"".join(chunks)
    assert seen.endswith(b"data: [DONE]\n\n") and b": receipt rcpt_" in seen
    assert gateway.stop() == 0
