"""An Anthropic message as a chat completion."""

from __future__ import annotations

from typing import Any

from gateway.protocols.bridges.shared import Json, derived_id, json_text, text
from gateway.protocols.usage import messages_usage
from gateway.protocols.views import NotAnAnswer

_FINISH_REASONS = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "pause_turn": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
    "refusal": "content_filter",
}


def to_chat(message: Json, created: int) -> Json:
    """The whole completion for a whole message. `created` is the gateway's clock: a message does not say."""
    content = message.get("content")
    if not isinstance(content, list):
        raise NotAnAnswer("the message has no content")
    reason = finish_reason(message.get("stop_reason"))
    choice = {"index": 0, "message": _message(content), "logprobs": None, "finish_reason": reason or "stop"}
    return {
        "id": chat_id(message.get("id")),
        "object": "chat.completion",
        "created": created,
        "model": text(message.get("model")),
        "choices": [choice],
        "usage": to_usage(message.get("usage")),
    }


def chat_id(id: Any) -> str:
    return derived_id("chatcmpl-", id)


def finish_reason(stop_reason: Any) -> str | None:
    """The finish reason for a stop reason; one that is not known yet ends as `stop`."""
    if not isinstance(stop_reason, str):
        return None
    return _FINISH_REASONS.get(stop_reason, "stop")


def _message(content: list[Any]) -> Json:
    texts: list[str] = []
    thoughts: list[str] = []
    blocks: list[Json] = []
    calls: list[Json] = []
    for block in content:
        kind = block.get("type") if isinstance(block, dict) else None
        if kind == "text":
            texts.append(text(block.get("text")) or "")
        elif kind in ("thinking", "redacted_thinking"):
            blocks.append(block)
            thoughts.append(text(block.get("thinking")) or "")
        elif kind == "tool_use":
            function = {"name": text(block.get("name")) or "", "arguments": json_text(block.get("input") or {})}
            calls.append({"id": text(block.get("id")) or "", "type": "function", "function": function})
        else:
            raise NotAnAnswer("the message holds a block that was not asked for")
    message: Json = {"role": "assistant", "content": "".join(texts) if texts else None, "refusal": None}
    if not texts and not calls:
        message["content"] = ""
    if any(thoughts):
        message["reasoning_content"] = "".join(thoughts)
    if blocks:
        message["thinking_blocks"] = blocks
    if calls:
        message["tool_calls"] = calls
    return message


def to_usage(usage: Any) -> Json | None:
    """Anthropic's usage as chat counts: the prompt with what came from or went to the cache."""
    read = messages_usage(usage)
    if read is None:
        return None
    return {
        "prompt_tokens": read.prompt,
        "completion_tokens": read.completion,
        "total_tokens": read.prompt + read.completion,
        "prompt_tokens_details": {"cached_tokens": read.cached or 0, "cache_write_tokens": read.cache_write or 0},
        "completion_tokens_details": {"reasoning_tokens": read.reasoning or 0},
    }
