"""A request of chat completions as one of Anthropic Messages, for OpenAI clients of an Anthropic deployment."""

from __future__ import annotations

from typing import Any

from gateway.errors import InvalidValue
from gateway.protocols.bridges.shared import Json, arguments_object, data_url, objects, string, unsupported, wrong
from gateway.protocols.tolerant import NotJson
from gateway.protocols.views import NotAnAnswer

DEFAULT_MAX_TOKENS = 8192
_TRANSLATED = frozenset(
    {"model", "messages", "max_tokens", "max_completion_tokens", "n", "stop", "stream", "stream_options", "user"}
    | {"tools", "tool_choice", "parallel_tool_calls", "response_format", "reasoning_effort", "service_tier", "provider"}
)
#: Hints and book-keeping without influence on the answer, and switches that are off.
_DROPPED = frozenset(
    {"store", "metadata", "prompt_cache_key", "prompt_cache_retention", "prompt_cache_options", "safety_identifier"}
    | {"verbosity"}
)
#: Refused unless they say what holds anyway.
_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "n": (1,),
    "logprobs": (False,),
    "top_logprobs": (0,),
    "frequency_penalty": (0, 0.0),
    "presence_penalty": (0, 0.0),
    "logit_bias": ({},),
    "modalities": (["text"],),
    "functions": ([],),
    "store": (False,),
    "seed": (),
    "audio": (),
    "prediction": (),
    "web_search_options": (),
    "function_call": (),
    "moderation": (),
}
_SERVICE_TIERS = {"auto": "auto", "default": "standard_only"}


def from_chat(fields: Json, max_output_tokens: int | None) -> Json:
    """The Messages request, without model and stream members. Raises `InvalidRequest`."""
    for name, harmless in _NEUTRAL.items():
        value = fields.get(name)
        if value is not None and value not in harmless:
            raise unsupported(name)
    system, messages = _messages(fields)
    limit = fields.get("max_completion_tokens") or fields.get("max_tokens")
    request: Json = {"max_tokens": limit or max_output_tokens or DEFAULT_MAX_TOKENS, "messages": messages}
    if system:
        request["system"] = system
    for name, value in fields.items():
        if name not in _TRANSLATED and name not in _DROPPED and name not in _NEUTRAL and value is not None:
            request[name] = value
    temperature = fields.get("temperature")
    if isinstance(temperature, int | float) and temperature > 1:
        raise InvalidValue("`temperature` must be at most 1 for this model", param="temperature")
    stops = fields.get("stop")
    if stops:
        request["stop_sequences"] = [stops] if isinstance(stops, str) else stops
    if isinstance(fields.get("user"), str):
        request["metadata"] = {"user_id": fields["user"]}
    tier = fields.get("service_tier")
    if tier is not None:
        if tier not in _SERVICE_TIERS:
            raise unsupported("service_tier")
        request["service_tier"] = _SERVICE_TIERS[tier]
    _output(fields, request)
    _tools(fields, request)
    return request


def _output(fields: Json, request: Json) -> None:
    config: Json = {}
    effort = fields.get("reasoning_effort")
    if effort is not None:
        if effort in ("none", "minimal"):
            request["thinking"] = {"type": "disabled"}
        else:
            config["effort"] = effort
    form = fields.get("response_format")
    kind = form.get("type") if isinstance(form, dict) else None
    if form is not None and kind != "text":
        inner = form.get("json_schema") if kind == "json_schema" else None
        if not isinstance(inner, dict):
            raise unsupported("response_format", "give a `json_schema`")
        config["format"] = {"type": "json_schema", "schema": inner.get("schema") or {"type": "object"}}
    if config:
        request["output_config"] = config


def _tools(fields: Json, request: Json) -> None:
    tools = [_tool(tool, f"tools[{index}]") for index, tool in enumerate(objects(fields.get("tools"), "tools"))]
    if not tools:
        return
    request["tools"] = tools
    choice = _tool_choice(fields.get("tool_choice"))
    if fields.get("parallel_tool_calls") is False and (choice or {}).get("type") != "none":
        choice = {**(choice or {"type": "auto"}), "disable_parallel_tool_use": True}
    if choice is not None:
        request["tool_choice"] = choice


def _tool(tool: Json, path: str) -> Json:
    function = tool.get("function")
    if tool.get("type") != "function" or not isinstance(function, dict):
        raise unsupported(path, f"tools of type `{tool.get('type')}`")
    made: Json = {"name": string(function.get("name"), f"{path}.function.name")}
    if function.get("description") is not None:
        made["description"] = function["description"]
    made["input_schema"] = function.get("parameters") or {"type": "object", "properties": {}}
    if function.get("strict") is not None:
        made["strict"] = function["strict"]
    return made


def _tool_choice(choice: Any) -> Json | None:
    if choice is None:
        return None
    if choice in ("auto", "none"):
        return {"type": choice}
    if choice == "required":
        return {"type": "any"}
    function = choice.get("function") if isinstance(choice, dict) and choice.get("type") == "function" else None
    if isinstance(function, dict):
        return {"type": "tool", "name": string(function.get("name"), "tool_choice.function.name")}
    raise unsupported("tool_choice")


def _messages(fields: Json) -> tuple[list[Json], list[Json]]:
    """System blocks and messages. Results of tools and what the user says after them are one message there."""
    system: list[Json] = []
    messages: list[Json] = []
    for index, message in enumerate(objects(fields.get("messages"), "messages")):
        path = f"messages[{index}]"
        role = message.get("role")
        if role in ("system", "developer"):
            system += [part for part in _content(message.get("content"), f"{path}.content") if part["type"] == "text"]
        elif role == "user":
            _add(messages, "user", _content(message.get("content"), f"{path}.content"))
        elif role == "tool":
            _add(messages, "user", [_result(message, path)])
        elif role == "assistant":
            _add(messages, "assistant", _assistant(message, path))
        else:
            raise wrong(f"{path}.role", "system, developer, user, assistant or tool")
    return system, messages


def _add(messages: list[Json], role: str, blocks: list[Json]) -> None:
    if messages and messages[-1]["role"] == role:
        messages[-1]["content"] += blocks
    elif blocks:
        messages.append({"role": role, "content": blocks})


def _result(message: Json, path: str) -> Json:
    call = string(message.get("tool_call_id"), f"{path}.tool_call_id")
    content = _content(message.get("content"), f"{path}.content")
    return {"type": "tool_result", "tool_use_id": call, "content": content}


def _assistant(message: Json, path: str) -> list[Json]:
    # Thinking blocks come back byte by byte: their signature is over them.
    blocks: list[Json] = list(objects(message.get("thinking_blocks"), f"{path}.thinking_blocks"))
    blocks += _content(message.get("content"), f"{path}.content")
    if isinstance(message.get("refusal"), str):
        blocks.append({"type": "text", "text": message["refusal"]})
    if message.get("function_call") is not None:
        raise unsupported(f"{path}.function_call", "use `tool_calls`")
    for index, call in enumerate(objects(message.get("tool_calls"), f"{path}.tool_calls")):
        here = f"{path}.tool_calls[{index}]"
        function = call.get("function")
        if not isinstance(function, dict):
            raise unsupported(here, "only calls of functions")
        try:
            arguments = arguments_object(function.get("arguments"))
        except (NotAnAnswer, NotJson):
            raise InvalidValue("the arguments of a call must be a JSON object", param=f"{here}.arguments") from None
        name = string(function.get("name"), f"{here}.function.name")
        blocks.append(
            {"type": "tool_use", "id": string(call.get("id"), f"{here}.id"), "name": name, "input": arguments}
        )
    return blocks


def _content(content: Any, path: str) -> list[Json]:
    """Blocks of a message's content. Empty texts are left out: the other API refuses them."""
    if content is None:
        return []
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    blocks = [_part(part, f"{path}[{index}]") for index, part in enumerate(objects(content, path))]
    return [block for block in blocks if block.get("text") != ""]


def _part(part: Json, path: str) -> Json:
    kind = part.get("type")
    more = {"cache_control": part["cache_control"]} if isinstance(part.get("cache_control"), dict) else {}
    if kind in ("text", "refusal"):
        return {"type": "text", "text": string(part.get(kind), f"{path}.{kind}"), **more}
    if kind == "image_url":
        image = part.get("image_url")
        url = string(image.get("url") if isinstance(image, dict) else image, f"{path}.image_url.url")
        inline = data_url(url)
        if inline is not None:
            source = {"type": "base64", "media_type": inline[0], "data": inline[1]}
        else:
            source = {"type": "url", "url": url}
        return {"type": "image", "source": source, **more}
    if kind == "file":
        return {**_file(part.get("file"), path), **more}
    raise unsupported(path, f"content of type `{kind}`")


def _file(file: Any, path: str) -> Json:
    inline = data_url(file["file_data"]) if isinstance(file, dict) and isinstance(file.get("file_data"), str) else None
    if inline is None or inline[0] != "application/pdf":
        raise unsupported(path, "files must be PDF, inline as a `data:` URL")
    block: Json = {
        "type": "document",
        "source": {"type": "base64", "media_type": inline[0], "data": inline[1]},
    }
    if isinstance(file.get("filename"), str):
        block["title"] = file["filename"]
    return block
