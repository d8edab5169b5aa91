"""A request of Anthropic Messages as one of chat completions. What chat has no equal of is refused by name."""

from __future__ import annotations

from typing import Any

from gateway.protocols.bridges.shared import Json, json_text, objects, string, to_data_url, unsupported, wrong

_TRANSLATED = frozenset(
    {"model", "messages", "system", "max_tokens", "stop_sequences", "stream", "tools", "tool_choice", "metadata"}
    | {"output_config", "output_format", "service_tier", "provider", "context_management"}
)
#: Hints, and permissions to think that a model without them does not need.
_DROPPED = frozenset({"cache_control", "thinking", "stream_options", "diagnostics", "inference_geo"})
_REFUSED = ("mcp_servers", "container", "speed", "workspace_id", "user_profile_id", "fallback")
_SERVICE_TIERS = {"auto": "auto", "standard_only": "default"}


def to_chat(fields: Json) -> Json:
    """The chat request, without model, limit and stream members."""
    for name in _REFUSED:
        if fields.get(name) not in (None, []):
            raise unsupported(name)
    chat: Json = {"messages": _messages(fields)}
    for name, value in fields.items():
        if name not in _TRANSLATED and name not in _DROPPED and value is not None:
            chat[name] = value
    if fields.get("stop_sequences"):
        chat["stop"] = fields["stop_sequences"]
    metadata = fields.get("metadata")
    if isinstance(metadata, dict) and isinstance(metadata.get("user_id"), str):
        chat["user"] = metadata["user_id"]
    tier = fields.get("service_tier")
    if tier is not None:
        chat["service_tier"] = _SERVICE_TIERS.get(tier, tier)
    _context(fields.get("context_management"))
    _output(fields, chat)
    tools = [_tool(tool, f"tools[{index}]") for index, tool in enumerate(objects(fields.get("tools"), "tools"))]
    if tools:
        chat["tools"] = tools
    _tool_choice(fields.get("tool_choice"), chat)
    return chat


def _context(value: Any) -> None:
    """Edits that clear old tool results or thinking only save room: not making them changes no meaning."""
    for index, edit in enumerate(
        objects(value.get("edits") if isinstance(value, dict) else None, "context_management")
    ):
        if not str(edit.get("type", "")).startswith("clear_"):
            raise unsupported(f"context_management.edits[{index}]")


def _output(fields: Json, chat: Json) -> None:
    config = fields.get("output_config")
    config = config if isinstance(config, dict) else {}
    if config.get("effort") is not None:
        chat["reasoning_effort"] = "xhigh" if config["effort"] == "max" else config["effort"]
    form = config.get("format") or fields.get("output_format")
    if form is None:
        return
    if not isinstance(form, dict) or form.get("type") != "json_schema":
        raise unsupported("output_config.format")
    schema = {"name": form.get("name") or "answer", "schema": form.get("schema"), "strict": True}
    chat["response_format"] = {"type": "json_schema", "json_schema": schema}


def _tool(tool: Json, path: str) -> Json:
    kind = tool.get("type")
    if kind not in (None, "custom"):
        raise unsupported(path, f"tools of type `{kind}` are the provider's own")
    function: Json = {"name": string(tool.get("name"), f"{path}.name")}
    if tool.get("description") is not None:
        function["description"] = tool["description"]
    function["parameters"] = tool.get("input_schema") or {"type": "object", "properties": {}}
    if tool.get("strict") is not None:
        function["strict"] = tool["strict"]
    return {"type": "function", "function": function}


def _tool_choice(choice: Any, chat: Json) -> None:
    if choice is None:
        return
    kind = choice.get("type") if isinstance(choice, dict) else None
    if kind == "tool":
        name = string(choice.get("name"), "tool_choice.name")
        chat["tool_choice"] = {"type": "function", "function": {"name": name}}
    elif kind in ("auto", "any", "none"):
        chat["tool_choice"] = "required" if kind == "any" else kind
    else:
        raise unsupported("tool_choice")
    if choice.get("disable_parallel_tool_use") is True and chat.get("tools"):
        chat["parallel_tool_calls"] = False


def _messages(fields: Json) -> list[Json]:
    messages: list[Json] = []
    system = fields.get("system")
    if system:
        messages.append({"role": "system", "content": _texts(system, "system")})
    for index, message in enumerate(objects(fields.get("messages"), "messages")):
        path = f"messages[{index}]"
        role = message.get("role")
        if role == "user":
            _user(message.get("content"), messages, f"{path}.content")
        elif role == "assistant":
            messages.append(_assistant(message.get("content"), f"{path}.content"))
        elif role == "system":
            messages.append({"role": "system", "content": _texts(message.get("content"), f"{path}.content")})
        else:
            raise wrong(f"{path}.role", "user or assistant")
    return messages


def _texts(content: Any, path: str) -> str:
    if isinstance(content, str):
        return content
    return "\n\n".join(string(block.get("text"), path) for block in objects(content, path))


def _user(content: Any, messages: list[Json], path: str) -> None:
    """Tool results first, as messages of their own; then what else the user says."""
    if isinstance(content, str):
        messages.append({"role": "user", "content": content})
        return
    parts: list[Json] = []
    for index, block in enumerate(objects(content, path)):
        here = f"{path}[{index}]"
        if block.get("type") == "tool_result":
            call = string(block.get("tool_use_id"), f"{here}.tool_use_id")
            messages.append({"role": "tool", "tool_call_id": call, "content": _result(block, here)})
        else:
            parts += _parts(block, here)
    if parts:
        messages.append({"role": "user", "content": plain(parts)})


def plain(parts: list[Json]) -> Any:
    """One part of text as text, which every upstream takes."""
    return parts[0]["text"] if len(parts) == 1 and parts[0]["type"] == "text" else parts


def _result(block: Json, path: str) -> Any:
    content = block.get("content")
    if content is None:
        content = ""
    if isinstance(content, str):
        return content or ("error" if block.get("is_error") else "")
    blocks = enumerate(objects(content, f"{path}.content"))
    return plain([part for index, inner in blocks for part in _parts(inner, f"{path}.content[{index}]")]) or ""


def _parts(block: Json, path: str) -> list[Json]:
    kind = block.get("type")
    if kind == "text":
        return [{"type": "text", "text": string(block.get("text"), f"{path}.text")}]
    source = block.get("source")
    source = source if isinstance(source, dict) else {}
    if kind == "image" and source.get("type") == "base64":
        url = to_data_url(source.get("media_type"), source.get("data"))
        return [{"type": "image_url", "image_url": {"url": url}}]
    if kind == "image" and source.get("type") == "url":
        return [{"type": "image_url", "image_url": {"url": string(source.get("url"), f"{path}.source.url")}}]
    if kind == "document":
        return _document(block, source, path)
    raise unsupported(path, f"content of type `{kind}`")


def _document(block: Json, source: Json, path: str) -> list[Json]:
    title = block.get("title")
    if source.get("type") == "text":
        text = string(source.get("data"), f"{path}.source.data")
        return [{"type": "text", "text": f"{title}\n\n{text}" if isinstance(title, str) else text}]
    if source.get("type") == "base64":
        data = to_data_url(source.get("media_type"), source.get("data"))
        name = title if isinstance(title, str) else "document.pdf"
        return [{"type": "file", "file": {"file_data": data, "filename": name}}]
    if source.get("type") == "content":
        content = source.get("content")
        if isinstance(content, str):
            return [{"type": "text", "text": content}]
        blocks = enumerate(objects(content, f"{path}.source.content"))
        return [part for index, inner in blocks for part in _parts(inner, f"{path}.source.content[{index}]")]
    raise unsupported(path, f"documents by `{source.get('type')}`")


def _assistant(content: Any, path: str) -> Json:
    if isinstance(content, str):
        return {"role": "assistant", "content": content}
    texts: list[str] = []
    thoughts: list[str] = []
    calls: list[Json] = []
    for index, block in enumerate(objects(content, path)):
        here = f"{path}[{index}]"
        kind = block.get("type")
        if kind == "text":
            texts.append(string(block.get("text"), f"{here}.text"))
        elif kind == "thinking":
            thoughts.append(string(block.get("thinking"), f"{here}.thinking"))
        elif kind == "tool_use":
            function = {
                "name": string(block.get("name"), f"{here}.name"),
                "arguments": json_text(block.get("input") or {}),
            }
            calls.append({"id": string(block.get("id"), f"{here}.id"), "type": "function", "function": function})
        elif kind != "redacted_thinking":
            raise unsupported(here, f"content of type `{kind}`")
    message: Json = {"role": "assistant", "content": "".join(texts) if texts else None}
    if thoughts and calls:
        # Models that think between calls need their own thoughts back; after an answer they are spent.
        message["reasoning_content"] = "".join(thoughts)
    if calls:
        message["tool_calls"] = calls
    if not texts and not calls:
        message["content"] = ""
    return message
