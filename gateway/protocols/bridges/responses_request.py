"""A request of the Responses API as one of chat completions. What chat has no equal of is refused by name."""

from __future__ import annotations

from typing import Any

from gateway.protocols.bridges.shared import Json, dicts, objects, string, unsupported, wrong

#: Prefix of `encrypted_content` in which a thinking block's signature travels through this API unchanged.
CARRIED = "assay.thinking:"
REDACTED = "assay.redacted:"
_TRANSLATED = frozenset(
    {"model", "input", "instructions", "max_output_tokens", "tools", "tool_choice", "text", "reasoning", "include"}
    | {"stream", "stream_options", "top_logprobs", "provider"}
)
#: Without meaning for an answer that nobody stores, or echoed in it.
_DROPPED = frozenset(
    {"store", "metadata", "truncation", "background", "max_tool_calls"}
    | {"prompt_cache_key", "prompt_cache_retention", "prompt_cache_options"}
)
_REFUSED = ("previous_response_id", "conversation", "prompt", "context_management", "moderation", "access_programs")
_INCLUDED = "message.output_text.logprobs"
_SYSTEM_ROLES = ("system", "developer")


def to_chat(fields: Json, *, carry: bool = False) -> Json:
    """The chat request, without model, limit and stream members. `carry`: thinking blocks go through as such."""
    for name in _REFUSED:
        if fields.get(name) is not None:
            raise unsupported(name)
    if fields.get("store") is True:
        raise unsupported("store", "answers are not stored for this model")
    chat: Json = {"messages": _messages(fields, carry)}
    for name, value in fields.items():
        if name not in _TRANSLATED and name not in _DROPPED and value is not None:
            chat[name] = value
    _text(fields.get("text"), chat)
    reasoning = fields.get("reasoning")
    if isinstance(reasoning, dict) and reasoning.get("effort") is not None:
        chat["reasoning_effort"] = reasoning["effort"]
    tools = [_tool(tool, f"tools[{index}]") for index, tool in enumerate(objects(fields.get("tools"), "tools"))]
    if tools:
        chat["tools"] = tools
    if fields.get("tool_choice") is not None:
        chat["tool_choice"] = _tool_choice(fields["tool_choice"])
    if not tools:
        chat.pop("parallel_tool_calls", None)
    include = fields.get("include")
    if fields.get("top_logprobs") is not None or (isinstance(include, list) and _INCLUDED in include):
        chat["logprobs"] = True
        if fields.get("top_logprobs") is not None:
            chat["top_logprobs"] = fields["top_logprobs"]
    return chat


def _text(value: Any, chat: Json) -> None:
    if value is None:
        return
    if not isinstance(value, dict):
        raise wrong("text", "an object")
    if value.get("verbosity") is not None:
        chat["verbosity"] = value["verbosity"]
    form = value.get("format")
    if not isinstance(form, dict) or form.get("type") == "text":
        return
    if form.get("type") == "json_object":
        chat["response_format"] = {"type": "json_object"}
    elif form.get("type") == "json_schema":
        schema = {key: inner for key, inner in form.items() if key != "type"}
        chat["response_format"] = {"type": "json_schema", "json_schema": schema}
    else:
        raise unsupported("text.format")


def _tool(tool: Json, path: str) -> Json:
    kind = tool.get("type")
    if kind == "function":
        names = ("name", "description", "parameters", "strict")
        function = {key: tool[key] for key in names if tool.get(key) is not None}
        return {"type": "function", "function": function}
    if kind == "custom":
        custom = {key: tool[key] for key in ("name", "description") if tool.get(key) is not None}
        form = tool.get("format")
        if isinstance(form, dict):
            grammar = {key: inner for key, inner in form.items() if key != "type"}
            custom["format"] = {"type": "grammar", "grammar": grammar} if form.get("type") == "grammar" else form
        return {"type": "custom", "custom": custom}
    raise unsupported(path, f"tools of type `{kind}` run at the provider")


def _tool_choice(choice: Any) -> Any:
    if isinstance(choice, str):
        return choice
    kind = choice.get("type") if isinstance(choice, dict) else None
    if kind in ("function", "custom"):
        return {"type": kind, kind: {"name": string(choice.get("name"), "tool_choice.name")}}
    if kind == "allowed_tools":
        tools = [_tool_choice(tool) for tool in objects(choice.get("tools"), "tool_choice.tools")]
        return {"type": kind, kind: {"mode": choice.get("mode", "auto"), "tools": tools}}
    raise unsupported("tool_choice")


def _messages(fields: Json, carry: bool) -> list[Json]:
    turns = _Turns(carry)
    instructions = fields.get("instructions")
    if instructions is not None:
        turns.system(string(instructions, "instructions"))
    items = fields.get("input")
    if isinstance(items, str):
        turns.messages.append({"role": "user", "content": items})
    else:
        for index, item in enumerate(objects(items, "input")):
            turns.add(item, f"input[{index}]")
        turns.flush()
    return turns.messages


class _Turns:
    """Chat messages as they grow from items: an assistant's text, reasoning and calls are one message."""

    def __init__(self, carry: bool) -> None:
        self.messages: list[Json] = []
        self._carry = carry
        self._reasoning: list[str] = []
        self._blocks: list[Json] = []

    def add(self, item: Json, path: str) -> None:
        kind = item.get("type", "message" if "role" in item else None)
        if item.get("role") in ("user", *_SYSTEM_ROLES) or str(kind).endswith("_output"):
            self.flush()
        if kind == "message":
            self._message(item, path)
        elif kind == "reasoning":
            self._think(item)
        elif kind == "function_call":
            function = {"name": string(item.get("name"), f"{path}.name"), "arguments": _arguments(item, path)}
            call_id = string(item.get("call_id"), f"{path}.call_id")
            self._call({"id": call_id, "type": "function", "function": function})
        elif kind == "custom_tool_call":
            custom = {"name": string(item.get("name"), f"{path}.name"), "input": item.get("input", "")}
            self._call({"id": string(item.get("call_id"), f"{path}.call_id"), "type": "custom", "custom": custom})
        elif kind in ("function_call_output", "custom_tool_call_output"):
            content = _content(item.get("output"), f"{path}.output")
            call_id = string(item.get("call_id"), f"{path}.call_id")
            self.messages.append({"role": "tool", "tool_call_id": call_id, "content": content})
        else:
            raise unsupported(path, f"items of type `{kind}` belong to the provider that made them")

    def flush(self) -> None:
        """Thinking blocks that nothing was said after are a turn of their own; plain reasoning is spent."""
        self._reasoning = []
        if self._blocks:
            self._assistant()

    def system(self, content: Any) -> None:
        """Leading system texts become one message: many chat templates take only one."""
        if self.messages and self.messages[0]["role"] == "system" and len(self.messages) == 1:
            before = self.messages[0]
            before["content"] = _parts(before["content"]) + _parts(content)
            if all(part["type"] == "text" for part in before["content"]):
                before["content"] = "\n\n".join(part["text"] for part in before["content"])
        else:
            self.messages.append({"role": "system", "content": content})

    def _message(self, item: Json, path: str) -> None:
        role = item.get("role")
        content = item.get("content")
        if role in _SYSTEM_ROLES:
            self.system(_content(content, f"{path}.content"))
        elif role == "user":
            self.messages.append({"role": "user", "content": _content(content, f"{path}.content")})
        elif role == "assistant":
            self._said(content, path)
        else:
            raise wrong(f"{path}.role", "user, assistant, system or developer")

    def _said(self, content: Any, path: str) -> None:
        texts: list[str] = []
        refusals: list[str] = []
        if isinstance(content, str):
            texts.append(content)
        else:
            for part in objects(content, f"{path}.content"):
                if part.get("type") == "refusal":
                    refusals.append(string(part.get("refusal"), f"{path}.content"))
                else:
                    texts.append(string(part.get("text"), f"{path}.content"))
        last = self.messages[-1] if self.messages else {}
        # Chat wants a call's message right before its outputs, so text after a call joins the call's message.
        if last.get("role") == "assistant" and last.get("tool_calls") and not self._reasoning and not self._blocks:
            last["content"] = (last.get("content") or "") + "".join(texts)
            return
        message = self._assistant()
        message["content"] = "".join(texts)
        if refusals:
            message["refusal"] = "".join(refusals)

    def _think(self, item: Json) -> None:
        texts = [part["text"] for part in dicts(item.get("content")) if isinstance(part.get("text"), str)]
        sealed = item.get("encrypted_content")
        if self._carry and isinstance(sealed, str) and sealed.startswith(CARRIED):
            signature = sealed[len(CARRIED) :]
            self._blocks.append({"type": "thinking", "thinking": "".join(texts), "signature": signature})
        elif self._carry and isinstance(sealed, str) and sealed.startswith(REDACTED):
            self._blocks.append({"type": "redacted_thinking", "data": sealed[len(REDACTED) :]})
        else:
            self._reasoning += texts

    def _call(self, call: Json) -> None:
        last = self.messages[-1] if self.messages else {}
        if last.get("role") != "assistant" or self._reasoning or self._blocks:
            last = self._assistant()
        last.setdefault("tool_calls", []).append(call)

    def _assistant(self) -> Json:
        message: Json = {"role": "assistant", "content": None}
        if self._reasoning:
            message["reasoning_content"] = "".join(self._reasoning)
        if self._blocks:
            message["thinking_blocks"] = self._blocks
        self._reasoning, self._blocks = [], []
        self.messages.append(message)
        return message


def _arguments(item: Json, path: str) -> str:
    return string(item.get("arguments", ""), f"{path}.arguments") or "{}"


def _parts(content: Any) -> list[Json]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _content(content: Any, path: str) -> Any:
    """A message's content: text, or parts. One part of text is given as text, which every upstream takes."""
    if isinstance(content, str):
        return content
    parts = [_part(part, f"{path}[{index}]") for index, part in enumerate(objects(content, path))]
    if len(parts) == 1 and parts[0]["type"] == "text":
        return parts[0]["text"]
    return parts


def _part(part: Json, path: str) -> Json:
    kind = part.get("type")
    if kind in ("input_text", "output_text", "text"):
        return {"type": "text", "text": string(part.get("text"), f"{path}.text")}
    if kind == "input_image" and isinstance(part.get("image_url"), str):
        image = {"url": part["image_url"]}
        if isinstance(part.get("detail"), str):
            image["detail"] = part["detail"]
        return {"type": "image_url", "image_url": image}
    if kind == "input_file" and isinstance(part.get("file_data"), str):
        return {"type": "file", "file": {key: part[key] for key in ("file_data", "filename") if part.get(key)}}
    if kind == "input_audio" and isinstance(part.get("input_audio"), dict):
        return {"type": "input_audio", "input_audio": part["input_audio"]}
    raise unsupported(path, f"content of type `{kind}` must be sent inline")
