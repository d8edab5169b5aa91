"""What the gateway reads of answers and stream events, for each dialect, without changing them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gateway.exchange import AnswerView, Dialect, EventView, Usage
from gateway.protocols import tolerant
from gateway.protocols.usage import count, messages_usage, openai_usage, responses_usage

DONE_EVENT = EventView("done")


class NotAnAnswer(ValueError):
    """The body is JSON of another shape than its dialect's answer."""


def read_answer(dialect: Dialect, body: bytes) -> AnswerView:
    """The view of a whole answer; raises `tolerant.NotJson` or `NotAnAnswer`."""
    value = tolerant.loads(body)
    if not isinstance(value, dict):
        raise NotAnAnswer("the answer is not a JSON object")
    return _ANSWERS[dialect](value)


def read_event(dialect: Dialect, name: bytes, data: bytes) -> EventView:
    """The view of one stream event; raises `tolerant.NotJson` or `NotAnAnswer`."""
    if data == b"[DONE]":
        return DONE_EVENT
    value = tolerant.loads(data)
    if not isinstance(value, dict):
        raise NotAnAnswer("an event of the stream is not a JSON object")
    return _EVENTS[dialect](name, value)


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _message_texts(message: Any) -> list[str]:
    """Everything the model wrote in a chat message or delta: content, refusal, reasoning, arguments of calls."""
    if not isinstance(message, Mapping):
        return []
    texts = [
        message[key]
        for key in ("content", "refusal", "reasoning_content", "reasoning")
        if isinstance(message.get(key), str)
    ]
    for part in _list(message.get("content")):
        if isinstance(part, Mapping) and isinstance(part.get("text"), str):
            texts.append(part["text"])
    for call in _list(message.get("tool_calls")):
        function = call.get("function") if isinstance(call, Mapping) else None
        if isinstance(function, Mapping):
            texts += [function[key] for key in ("name", "arguments") if isinstance(function.get(key), str)]
    function = message.get("function_call")
    if isinstance(function, Mapping) and isinstance(function.get("arguments"), str):
        texts.append(function["arguments"])
    return texts


def _openai_head(value: dict[str, Any]) -> tuple[str | None, str | None, int | None, str | None]:
    return (
        _text(value.get("id")),
        _text(value.get("model")),
        count(value.get("created")),
        _text(value.get("system_fingerprint")),
    )


def _chat_answer(value: dict[str, Any]) -> AnswerView:
    choices = value.get("choices")
    if not isinstance(choices, list):
        raise NotAnAnswer("the answer has no choices")
    texts: list[str] = []
    reasons: list[str | None] = []
    for choice in choices:
        if not isinstance(choice, Mapping):
            raise NotAnAnswer("a choice of the answer is not an object")
        texts += _message_texts(choice.get("message"))
        if isinstance(choice.get("text"), str):
            texts.append(choice["text"])
        reasons.append(_text(choice.get("finish_reason")))
    return AnswerView(*_openai_head(value), tuple(texts), tuple(reasons), openai_usage(value.get("usage")), value)


def _embeddings_answer(value: dict[str, Any]) -> AnswerView:
    if not isinstance(value.get("data"), list):
        raise NotAnAnswer("the answer has no data")
    return AnswerView(*_openai_head(value), (), (), openai_usage(value.get("usage")), value)


def _responses_answer(value: dict[str, Any]) -> AnswerView:
    if not isinstance(value.get("output"), list):
        raise NotAnAnswer("the response has no output")
    texts = [text for item in value["output"] for text in item_texts(item)]
    status = _text(value.get("status"))
    return AnswerView(
        _text(value.get("id")),
        _text(value.get("model")),
        count(value.get("created_at")),
        _text(value.get("system_fingerprint")),
        tuple(texts),
        (status,),
        responses_usage(value.get("usage")),
        value,
    )


def item_texts(item: Any) -> list[str]:
    """Everything the model wrote in one output item: text, refusal, reasoning, a call's name and arguments."""
    if not isinstance(item, Mapping):
        return []
    texts = [item[key] for key in ("name", "arguments", "input", "code") if isinstance(item.get(key), str)]
    for key in ("content", "summary"):
        for part in _list(item.get(key)):
            if isinstance(part, Mapping):
                texts += [part[k] for k in ("text", "refusal") if isinstance(part.get(k), str)]
    return texts


def _messages_answer(value: dict[str, Any]) -> AnswerView:
    if not isinstance(value.get("content"), list):
        raise NotAnAnswer("the message has no content")
    texts: list[str] = []
    for block in value["content"]:
        if isinstance(block, Mapping):
            texts += [block[k] for k in ("text", "thinking", "name") if isinstance(block.get(k), str)]
            if isinstance(block.get("input"), Mapping):
                texts.append(tolerant.dumps(block["input"]).decode("utf-8", "replace"))
    return AnswerView(
        _text(value.get("id")),
        _text(value.get("model")),
        None,
        None,
        tuple(texts),
        (_text(value.get("stop_reason")),),
        messages_usage(value.get("usage")),
        value,
    )


def choice_index(choice: Mapping[str, Any]) -> int:
    """Which answer of several a choice belongs to; one that does not say is the first."""
    return count(choice.get("index")) or 0


def _chat_event(name: bytes, value: dict[str, Any]) -> EventView:
    error = value.get("error")
    if error is not None or name == b"error" or value.get("object") == "error":
        return EventView("error", error=_error(error, value), body=value)
    texts: list[str] = []
    finished: list[tuple[int, str]] = []
    seen: list[int] = []
    for choice in _list(value.get("choices")):
        if not isinstance(choice, Mapping):
            continue
        index = choice_index(choice)
        seen.append(index)
        texts += _message_texts(choice.get("delta"))
        if isinstance(choice.get("text"), str):
            texts.append(choice["text"])
        reason = choice.get("finish_reason")
        if isinstance(reason, str) and reason:
            finished.append((index, reason))
    usage = value.get("usage")
    return EventView(
        "data",
        *_openai_head(value),
        "".join(texts),
        tuple(finished),
        tuple(seen),
        openai_usage(usage) if usage is not None else None,
        None,
        value,
    )


def _error(error: Any, whole: dict[str, Any]) -> Mapping[str, Any]:
    """The upstream's error object, however it is written: an object, a text, or the event itself."""
    if isinstance(error, Mapping):
        return error
    return {"message": error} if isinstance(error, str) else whole


_RESPONSE_ENDS = {"response.completed": "completed", "response.incomplete": "incomplete"}


def _responses_event(name: bytes, value: dict[str, Any]) -> EventView:
    kind = _text(value.get("type")) or name.decode("latin-1")
    response = value.get("response")
    response = response if isinstance(response, Mapping) else {}
    if kind in ("error", "response.failed"):
        error = response.get("error") if kind == "response.failed" else value.get("error")
        return EventView("error", error=_error(error, value), body=value)
    delta = value.get("delta")
    text = delta if isinstance(delta, str) and kind.endswith(".delta") else ""
    return EventView(
        "data",
        _text(response.get("id")),
        _text(response.get("model")),
        count(response.get("created_at")),
        None,
        text,
        ((0, _RESPONSE_ENDS[kind]),) if kind in _RESPONSE_ENDS else (),
        (0,),
        responses_usage(response.get("usage")),
        None,
        value,
    )


def _messages_event(name: bytes, value: dict[str, Any]) -> EventView:
    kind = _text(value.get("type")) or name.decode("latin-1")
    if kind == "error":
        return EventView("error", error=_error(value.get("error"), value), body=value)
    if kind == "ping":
        return EventView("ping", body=value)
    message = value.get("message")
    message = message if isinstance(message, Mapping) else {}
    delta = value.get("delta")
    delta = delta if isinstance(delta, Mapping) else {}
    text = "".join(delta[k] for k in ("text", "thinking", "partial_json") if isinstance(delta.get(k), str))
    block = value.get("content_block")
    if isinstance(block, Mapping):
        text += "".join(block[k] for k in ("text", "thinking", "name") if isinstance(block.get(k), str))
    usage: Usage | None = messages_usage(message.get("usage")) or messages_usage(value.get("usage"))
    if usage is None and isinstance(value.get("usage"), Mapping):
        usage = Usage(0, count(value["usage"].get("output_tokens")) or 0)
    return EventView(
        "data",
        _text(message.get("id")),
        _text(message.get("model")),
        None,
        None,
        text,
        ((0, "message_stop"),) if kind == "message_stop" else (),
        (0,),
        usage,
        None,
        value,
    )


_ANSWERS = {
    "chat": _chat_answer,
    "completions": _chat_answer,
    "embeddings": _embeddings_answer,
    "responses": _responses_answer,
    "messages": _messages_answer,
}
_EVENTS = {
    "chat": _chat_event,
    "completions": _chat_event,
    "embeddings": _chat_event,
    "responses": _responses_event,
    "messages": _messages_event,
}
