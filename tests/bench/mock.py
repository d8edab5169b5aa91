"""The bench's upstream: one answer of about 1.1 KB, or 60 events of 270 bytes 20 ms apart. Callbacks only."""

from __future__ import annotations

import asyncio
import json
import sys

import httptools
import uvloop

TEXT = "The harbour office keeps the ledgers of every berth since the old quay was rebuilt. " * 9
EVENTS = 60
GAP_S = 0.02


def completion(request_id: str) -> bytes:
    body = json.dumps(
        {
            "id": f"chatcmpl-{request_id}",
            "object": "chat.completion",
            "created": 1796112000,
            "model": "mock",
            "choices": [
                {
                    "index": 0,
                    "message": {"role": "assistant", "content": TEXT, "refusal": None},
                    "logprobs": None,
                    "finish_reason": "stop",
                }
            ],
            "usage": {"prompt_tokens": 190, "completion_tokens": 150, "total_tokens": 340},
        }
    ).encode()
    return b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)


def event(request_id: str, number: int) -> bytes:
    finish = "stop" if number == EVENTS - 1 else None
    delta = {} if finish else {"content": " ledger and berth"}
    value = {
        "id": f"chatcmpl-{request_id}",
        "object": "chat.completion.chunk",
        "created": 1796112000,
        "model": "mock",
        "system_fingerprint": "fp_0123456789",
        "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}],
    }
    data = b"data: " + json.dumps(value).encode() + b"\n\n"
    return b"%x\r\n%b\r\n" % (len(data), data)


class Upstream(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.parser = httptools.HttpRequestParser(self)
        self.body = b""
        self.id = ""

    def data_received(self, data: bytes) -> None:
        self.parser.feed_data(data)

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() == b"x-request-id":
            self.id = value.decode()

    def on_body(self, body: bytes) -> None:
        self.body += body

    def on_message_complete(self) -> None:
        body, self.body = self.body, b""
        self.parser = httptools.HttpRequestParser(self)
        if b'"stream":true' in body or b'"stream": true' in body:
            self.transport.write(
                b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
            )
            self.send_event(0)
        else:
            self.transport.write(completion(self.id))

    def send_event(self, number: int) -> None:
        if self.transport.is_closing():
            return
        if number == EVENTS:
            self.transport.write(b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")
            return
        self.transport.write(event(self.id, number))
        asyncio.get_running_loop().call_later(GAP_S, self.send_event, number + 1)


async def main() -> None:
    server = await asyncio.get_running_loop().create_server(Upstream, "127.0.0.1", int(sys.argv[1]), backlog=4096)
    await server.serve_forever()


uvloop.run(main())
