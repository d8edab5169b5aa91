"""Simulated engines over real HTTP: the OpenAI-compatible surface and vLLM's own paths, on loopback ports."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

from gateway.simulator.engine import Answer, Engine

_LIMIT = 64 * 1024 * 1024


class EngineServer:
    """Serves one engine on a port of its own until it is closed."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.port = 0
        self.seen_authorization: set[str] = set()
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[Any]] = set()

    @property
    def url(self) -> str:
        """The base URL that a configuration names."""
        return f"http://127.0.0.1:{self.port}/v1"

    async def start(self) -> EngineServer:
        """Listens on a free loopback port."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=_LIMIT)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def close(self) -> None:
        """Stops listening and ends open connections."""
        if self._server is not None:
            self._server.close()
        for task in list(self._tasks):
            task.cancel()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is not None:
            self._tasks.add(task)
        try:
            while await self._one(reader, writer):
                pass
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            if task is not None:
                self._tasks.discard(task)
            writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = await reader.readuntil(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        method, target, _ = first.split(" ", 2)
        headers = {n.strip().lower(): v.strip() for n, _, v in (line.partition(":") for line in lines if line)}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        self.seen_authorization.add(headers.get("authorization", ""))
        path = target.split("?")[0].removeprefix("/v1")
        if method == "GET":
            await self._surface(writer, path)
            return True
        fields = json.loads(body)
        if path == "/tokenize":
            await _json(
                writer, 200, {"count": self.engine.count(_prompt(fields)), "max_model_len": self.engine.context_window}
            )
            return True
        return await self._infer(writer, path, fields, headers.get("x-request-id", f"sim-{time.time_ns():x}"))

    async def _infer(self, writer: asyncio.StreamWriter, path: str, fields: dict[str, Any], request_id: str) -> bool:
        engine = self.engine
        if engine.faults.latency_s:
            await asyncio.sleep(engine.faults.latency_s)
        status = engine.fails()
        if status is not None:
            error = {"message": "simulated failure", "type": "server_error", "param": None, "code": status}
            await _json(writer, status, {"error": error})
            return True
        prompt = _prompt(fields)
        if engine.too_long(prompt):
            message = (
                f"This model's maximum context length is {engine.context_window} tokens. However, your request has "
                f"{engine.count(prompt)} input tokens. Please reduce the length of the input messages."
            )
            error = {"message": message, "type": "BadRequestError", "param": "input_tokens", "code": 400}
            await _json(writer, 400, {"error": error})
            return True
        if path == "/embeddings":
            await _json(writer, 200, _embeddings(engine, fields, prompt))
            return True
        answer = engine.answer(request_id, prompt, int(fields.get("max_tokens") or 64))
        if fields.get("stream"):
            return await self._stream(writer, answer, fields)
        await _json(writer, 200, _completion(answer, path))
        return True

    async def _stream(self, writer: asyncio.StreamWriter, answer: Answer, fields: dict[str, Any]) -> bool:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        faults = self.engine.faults
        pieces = [f"{word} " for word in answer.text.split()]
        for number, piece in enumerate(pieces):
            if faults.cut_after_events == number:
                writer.transport.abort()
                return False
            delta: dict[str, Any] = {"content": piece}
            if number == 0:
                delta["role"] = "assistant"
            _event(writer, _chunk(answer, [{"index": 0, "delta": delta, "finish_reason": None}]))
            await writer.drain()
            if faults.event_gap_s:
                await asyncio.sleep(faults.event_gap_s)
        _event(writer, _chunk(answer, [{"index": 0, "delta": {}, "finish_reason": "stop"}]))
        if (fields.get("stream_options") or {}).get("include_usage"):
            _event(writer, {**_chunk(answer, []), "usage": _usage(answer)})
        _raw(writer, b"data: [DONE]\n\n")
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        return True

    async def _surface(self, writer: asyncio.StreamWriter, path: str) -> None:
        engine = self.engine
        if path == "/models":
            card = {"id": engine.model, "object": "model", "created": 1, "owned_by": "vllm", "root": engine.model}
            await _json(writer, 200, {"object": "list", "data": [{**card, "max_model_len": engine.context_window}]})
        elif path == "/version":
            await _json(writer, 200, {"version": "0.32.0"})
        elif path == "/metrics":
            labels = (
                f'block_size="16",enable_prefix_caching="True",kv_cache_size_tokens="{engine.pool_tokens}",engine="0"'
            )
            await _reply(writer, 200, f"vllm:cache_config_info{{{labels}}} 1.0\n".encode(), "text/plain; version=0.0.4")
        elif path == "/health":
            await _reply(writer, 200, b"", "text/plain")
        else:
            await _json(
                writer, 404, {"error": {"message": "Not Found", "type": "NotFoundError", "param": None, "code": 404}}
            )


def _prompt(fields: dict[str, Any]) -> str:
    messages = fields.get("messages")
    if isinstance(messages, list):
        return " ".join(str(m.get("content") or "") for m in messages if isinstance(m, dict))
    value = fields.get("prompt") or fields.get("input") or ""
    return " ".join(str(part) for part in value) if isinstance(value, list) else str(value)


def _usage(answer: Answer) -> dict[str, Any]:
    words = len(answer.text.split())
    return {
        "prompt_tokens": answer.prompt_tokens,
        "completion_tokens": words,
        "total_tokens": answer.prompt_tokens + words,
    }


def _completion(answer: Answer, path: str) -> dict[str, Any]:
    head = {"id": answer.response_id, "created": int(time.time()), "model": answer.model, "usage": _usage(answer)}
    if path == "/completions":
        choice = {"index": 0, "text": answer.text, "logprobs": None, "finish_reason": "stop"}
        return {**head, "object": "text_completion", "choices": [choice]}
    message = {"role": "assistant", "content": answer.text, "refusal": None}
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}
    return {**head, "object": "chat.completion", "choices": [choice]}


def _chunk(answer: Answer, choices: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "id": answer.response_id,
        "object": "chat.completion.chunk",
        "created": int(time.time()),
        "model": answer.model,
        "choices": choices,
    }


def _embeddings(engine: Engine, fields: dict[str, Any], prompt: str) -> dict[str, Any]:
    inputs = fields.get("input")
    texts = inputs if isinstance(inputs, list) else [inputs]
    data = [
        {"object": "embedding", "index": i, "embedding": [float(len(str(text)) % 7), 0.5, -0.25]}
        for i, text in enumerate(texts)
    ]
    count = engine.count(prompt)
    usage = {"prompt_tokens": count, "total_tokens": count}
    return {"object": "list", "data": data, "model": engine.model, "usage": usage}


def _event(writer: asyncio.StreamWriter, value: dict[str, Any]) -> None:
    _raw(writer, b"data: " + json.dumps(value).encode() + b"\n\n")


def _raw(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(b"%x\r\n%b\r\n" % (len(data), data))


async def _json(writer: asyncio.StreamWriter, status: int, value: dict[str, Any]) -> None:
    await _reply(writer, status, json.dumps(value).encode(), "application/json")


async def _reply(writer: asyncio.StreamWriter, status: int, body: bytes, content_type: str) -> None:
    writer.write(
        f"HTTP/1.1 {status} X\r\ncontent-type: {content_type}\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body
    )
    await writer.drain()
