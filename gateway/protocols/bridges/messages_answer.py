"""A chat completion as an Anthropic message."""

from __future__ import annotations

from typing import Any

from gateway.protocols.bridges.responses_answer import content_text
from gateway.protocols.bridges.shared import Json, arguments_object, derived_id, dicts, text
from gateway.protocols.usage import count
from gateway.protocols.views import NotAnAnswer

_STOP_REASONS = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "content_filter": "refusal",
}


#: A usage object of nothing, with the members that only Anthropic itself can fill.
USAGE: Json = {
    "input_tokens": 0,
    "cache_creation_input_tokens": 0,
    "cache_read_input_tokens": 0,
    "output_tokens": 0,
    "cache_creation": None,
    "inference_geo": None,
    "output_tokens_details": None,
    "server_tool_use": None,
    "service_tier": None,
}


def from_chat(completion: Json) -> Json:
    """The whole message for a whole completion. Raises `NotAnAnswer`."""
    choices = completion.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    message = choice.get("message") if isinstance(choice, dict) else None
    if not isinstance(choice, dict) or not isinstance(message, dict):
        raise NotAnAnswer("the completion has no message")
    reason, sequence = stop(choice.get("finish_reason"), choice.get("stop_reason"))
    return {
        **head(completion),
        "content": _blocks(message, completion.get("id")),
        "stop_reason": reason,
        "stop_sequence": sequence,
        "usage": {**USAGE, **to_usage(completion.get("usage"))},
    }


def head(completion: Json) -> Json:
    """The members of a message that stand before its content."""
    return {
        "id": derived_id("msg_", completion.get("id")),
        "type": "message",
        "role": "assistant",
        "model": text(completion.get("model")) or "unknown",
        "container": None,
        "stop_details": None,
    }


def stop(finish_reason: Any, matched: Any) -> tuple[str, str | None]:
    """Stop reason and sequence; some engines say beside the finish reason which stop text they met."""
    reason = _STOP_REASONS.get(finish_reason if isinstance(finish_reason, str) else "stop", "end_turn")
    if reason == "end_turn" and isinstance(matched, str):
        return "stop_sequence", matched
    return reason, None


def _blocks(message: Json, id: Any) -> list[Json]:
    blocks: list[Json] = []
    thought = text(message.get("reasoning_content")) or text(message.get("reasoning"))
    if thought:
        blocks.append({"type": "thinking", "thinking": thought, "signature": ""})
    said = (content_text(message.get("content")) or "") + (text(message.get("refusal")) or "")
    if said:
        blocks.append({"type": "text", "text": said, "citations": None})
    for index, call in enumerate(dicts(message.get("tool_calls"))):
        function = call.get("function")
        if not isinstance(function, dict):
            raise NotAnAnswer("a tool call of the completion is not a function's")
        blocks.append({**tool_use(call, function, id, index), "input": arguments_object(function.get("arguments"))})
    return blocks


def tool_use(call: Json, function: Json, id: Any, index: int) -> Json:
    """A tool_use block without its input."""
    call_id = text(call.get("id")) or derived_id("toolu_", id, f"_{index}")
    return {"type": "tool_use", "id": call_id, "name": text(function.get("name")) or "", "caller": {"type": "direct"}}


def to_usage(usage: Any) -> Json:
    """Chat's usage as Anthropic counts: input without what came from or went to the cache. Empty for none."""
    prompt = count(usage.get("prompt_tokens")) if isinstance(usage, dict) else None
    if prompt is None:
        return {}
    details = usage.get("prompt_tokens_details")
    details = details if isinstance(details, dict) else {}
    cached = count(details.get("cached_tokens")) or 0
    written = count(details.get("cache_write_tokens")) or 0
    return {
        "input_tokens": max(prompt - cached - written, 0),
        "cache_creation_input_tokens": written,
        "cache_read_input_tokens": cached,
        "output_tokens": count(usage.get("completion_tokens")) or 0,
    }
