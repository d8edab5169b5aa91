"""A chat completion as a response of the Responses API."""

from __future__ import annotations

from typing import Any

from gateway.protocols.bridges.responses_request import CARRIED, REDACTED
from gateway.protocols.bridges.shared import Json, derived_id, dicts, text
from gateway.protocols.usage import count
from gateway.protocols.views import NotAnAnswer

_ECHOED: dict[str, Any] = {
    "instructions": None,
    "max_output_tokens": None,
    "max_tool_calls": None,
    "parallel_tool_calls": True,
    "service_tier": None,
    "temperature": None,
    "tool_choice": "auto",
    "top_logprobs": None,
    "top_p": None,
}
_ECHOED_IF_GIVEN = ("prompt_cache_key", "safety_identifier", "user")
_INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter"}


def skeleton(fields: Json, *, id: str, created: int, model: str | None) -> Json:
    """The response object around the output, with the request's parameters echoed as the API does."""
    response: Json = {
        "id": id,
        "object": "response",
        "created_at": created,
        "status": "in_progress",
        "background": False,
        "error": None,
        "incomplete_details": None,
        "metadata": fields.get("metadata") or {},
        "model": model,
        "output": [],
        "previous_response_id": None,
        "reasoning": {"effort": None, "summary": None, **_object(fields.get("reasoning"))},
        "store": False,
        "text": {"format": {"type": "text"}, **_object(fields.get("text"))},
        "tools": fields.get("tools") or [],
        "truncation": "disabled",
    }
    for name, default in _ECHOED.items():
        value = fields.get(name)
        response[name] = default if value is None else value
    response.update({name: fields[name] for name in _ECHOED_IF_GIVEN if fields.get(name) is not None})
    return response


def _object(value: Any) -> Json:
    return {key: inner for key, inner in value.items() if inner is not None} if isinstance(value, dict) else {}


def ended(response: Json, finish_reason: str | None, output: list[Json], usage: Any) -> Json:
    """The response as it stands at its end."""
    reason = _INCOMPLETE.get(finish_reason or "")
    status = "incomplete" if reason else "completed"
    details = {"reason": reason} if reason else None
    final = {**response, "status": status, "incomplete_details": details, "output": output}
    counted = to_usage(usage)
    if counted is not None:
        final["usage"] = counted
    return final


def to_usage(usage: Any) -> Json | None:
    """Chat's usage in the names of this API."""
    prompt = count(usage.get("prompt_tokens")) if isinstance(usage, dict) else None
    if prompt is None:
        return None
    completion = count(usage.get("completion_tokens")) or 0
    inputs, outputs = (_object(usage.get(name)) for name in ("prompt_tokens_details", "completion_tokens_details"))
    return {
        "input_tokens": prompt,
        "input_tokens_details": {
            "cached_tokens": count(inputs.get("cached_tokens")) or 0,
            "cache_write_tokens": count(inputs.get("cache_write_tokens")) or 0,
        },
        "output_tokens": completion,
        "output_tokens_details": {"reasoning_tokens": count(outputs.get("reasoning_tokens")) or 0},
        "total_tokens": prompt + completion,
    }


def from_chat(completion: Json, fields: Json) -> Json:
    """The whole response for a whole completion; only the first choice, as this API knows no others."""
    choices = completion.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    message = choice.get("message") if isinstance(choice, dict) else None
    if not isinstance(choice, dict) or not isinstance(message, dict):
        raise NotAnAnswer("the completion has no message")
    id = derived_id("resp_", completion.get("id"))
    response = skeleton(fields, id=id, created=created_at(completion), model=text(completion.get("model")))
    if completion.get("service_tier") is not None:
        response["service_tier"] = completion["service_tier"]
    reason = text(choice.get("finish_reason"))
    output = _output(message, choice.get("logprobs"), id)
    if cut(reason) and "encrypted_content" not in output[-1]:
        output[-1]["status"] = "incomplete"
    return ended(response, reason, output, completion.get("usage"))


def created_at(completion: Json) -> int:
    return count(completion.get("created")) or 0


def cut(finish_reason: str | None) -> bool:
    """Whether the answer ended before the model was done: its last item is then incomplete."""
    return finish_reason in _INCOMPLETE


def _output(message: Json, logprobs: Any, id: str) -> list[Json]:
    output = _reasoning(message, id)
    parts: list[Json] = []
    content = content_text(message.get("content"))
    if content is not None:
        parts.append(text_part(content, message.get("annotations"), logprobs))
    if text(message.get("refusal")):
        parts.append({"type": "refusal", "refusal": message["refusal"]})
    calls = dicts(message.get("tool_calls"))
    if any(part.get("text") or part.get("refusal") for part in parts) or not (calls or output):
        parts = [part for part in parts if part.get("text") or part.get("refusal")] or [text_part("", None, None)]
        for part in parts:
            item = {"id": item_id("msg_", id, len(output)), "type": "message", "role": "assistant"}
            output.append({**item, "status": "completed", "content": [part]})
    for call in calls:
        output.append(call_item(call, item_id("fc_", id, len(output)), "completed"))
    return output


def item_id(prefix: str, response_id: str, index: int) -> str:
    return derived_id(prefix, response_id.removeprefix("resp_"), f"_{index}")


def content_text(content: Any) -> str | None:
    """A chat message's content as one text, whether it came as text or in parts."""
    if isinstance(content, list):
        return "".join(part["text"] for part in dicts(content) if text(part.get("text")))
    return text(content)


def _reasoning(message: Json, id: str) -> list[Json]:
    """What the model thought, as items that can be handed back: thinking blocks keep their signature."""
    items: list[Json] = []
    for block in dicts(message.get("thinking_blocks")):
        items.append(reasoning_item(item_id("rs_", id, len(items)), text(block.get("thinking")), sealed(block)))
    thought = text(message.get("reasoning_content")) or text(message.get("reasoning"))
    if thought and not items:
        items.append(reasoning_item(item_id("rs_", id, 0), thought, None))
    return items


def sealed(block: Json) -> str | None:
    """What of a thinking block must come back byte by byte, in the form that `encrypted_content` carries."""
    if block.get("type") == "redacted_thinking":
        return REDACTED + str(block.get("data"))
    signature = text(block.get("signature"))
    return CARRIED + signature if signature else None


def reasoning_item(id: str, thought: str | None, encrypted: str | None) -> Json:
    item: Json = {"id": id, "type": "reasoning", "summary": [], "status": "completed"}
    item["content"] = [{"type": "reasoning_text", "text": thought}] if thought else []
    if encrypted:
        item["encrypted_content"] = encrypted
    return item


def text_part(content: str, annotations: Any, logprobs: Any) -> Json:
    part: Json = {"type": "output_text", "text": content, "annotations": citations(annotations), "logprobs": []}
    if isinstance(logprobs, dict) and isinstance(logprobs.get("content"), list):
        part["logprobs"] = logprobs["content"]
    return part


def citations(annotations: Any) -> list[Json]:
    """Chat nests a citation in a member named like its type; this API does not."""
    flat: list[Json] = []
    for annotation in dicts(annotations):
        kind = annotation.get("type")
        if isinstance(kind, str) and isinstance(annotation.get(kind), dict):
            flat.append({"type": kind, **annotation[kind]})
    return flat


def call_item(call: Json, id: str, status: str) -> Json:
    """One tool call as an item."""
    call_id = text(call.get("id")) or id
    if call.get("type") == "custom" and isinstance(call.get("custom"), dict):
        custom = call["custom"]
        return {
            "id": id.replace("fc_", "ctc_", 1),
            "type": "custom_tool_call",
            "call_id": call_id,
            "name": text(custom.get("name")) or "",
            "input": text(custom.get("input")) or "",
            "status": status,
        }
    inner = call.get("function")
    function: Json = inner if isinstance(inner, dict) else {}
    return {
        "id": id,
        "type": "function_call",
        "call_id": call_id,
        "name": text(function.get("name")) or "",
        "arguments": text(function.get("arguments")) or "",
        "status": status,
    }
