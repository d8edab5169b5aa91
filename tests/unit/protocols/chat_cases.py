"""Answers of a chat model as strategies: whole, and the same answer as chunks in any cut."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

Json = dict[str, Any]
WORDS = st.text(alphabet='ab é漢🦀\n"\\{', min_size=1, max_size=12)
ARGUMENTS = st.dictionaries(st.sampled_from(["city", "n", "deep"]), st.integers() | WORDS | st.none(), max_size=3)
CALL = st.fixed_dictionaries({"name": st.sampled_from(["weather", "time"]), "arguments": ARGUMENTS.map(json.dumps)})
USAGE = st.builds(
    lambda prompt, cached, completion, reasoning: {
        "prompt_tokens": prompt + cached,
        "completion_tokens": completion,
        "total_tokens": prompt + cached + completion,
        "prompt_tokens_details": {"cached_tokens": cached},
        "completion_tokens_details": {"reasoning_tokens": reasoning},
    },
    *[st.integers(0, 1000)] * 4,
)
MESSAGE = st.fixed_dictionaries(
    {
        "reasoning_content": st.none() | WORDS,
        "content": st.none() | WORDS,
        "refusal": st.none() | WORDS,
        "calls": st.lists(CALL, max_size=3),
    }
)
FINISH = st.sampled_from(["stop", "length", "tool_calls", "content_filter"])


def completion(message: Json, finish: str, usage: Json) -> Json:
    """The whole answer."""
    calls = [
        {"id": f"call_{index}", "type": "function", "function": dict(call)}
        for index, call in enumerate(message["calls"])
    ]
    body: Json = {"role": "assistant", "content": message["content"], "refusal": message["refusal"]}
    if message["reasoning_content"]:
        body["reasoning_content"] = message["reasoning_content"]
    if calls:
        body["tool_calls"] = calls
    choice = {"index": 0, "message": body, "logprobs": None, "finish_reason": finish}
    return {**HEAD, "object": "chat.completion", "choices": [choice], "usage": usage}


HEAD: Json = {"id": "chatcmpl-abc123", "created": 1764570000, "model": "m1"}


def pieces(draw: st.DrawFn, text: str) -> list[str]:
    cuts = sorted(draw(st.lists(st.integers(0, len(text)), max_size=3)))
    return [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)])]


@st.composite
def answers(draw: st.DrawFn) -> tuple[Json, list[Json]]:
    """(whole completion, chunks that stream it)."""
    message, finish, usage = draw(MESSAGE), draw(FINISH), draw(USAGE)
    deltas: list[Json] = [{"role": "assistant", "content": ""}]
    for name in ("reasoning_content", "content", "refusal"):
        if message[name]:
            deltas += [{name: piece} for piece in pieces(draw, message[name])]
    tool_deltas: list[list[Json]] = []
    for index, call in enumerate(message["calls"]):
        first = {"name": call["name"], "arguments": ""}
        opener = {"index": index, "id": f"call_{index}", "type": "function", "function": first}
        more = [{"index": index, "function": {"arguments": piece}} for piece in pieces(draw, call["arguments"])]
        tool_deltas.append([{"tool_calls": [delta]} for delta in [opener, *more]])
    if draw(st.booleans()):
        deltas += [delta for call in tool_deltas for delta in call]
    else:  # interleaved: openers in order, then round by round
        rounds = max((len(call) for call in tool_deltas), default=0)
        deltas += [call[at] for at in range(rounds) for call in tool_deltas if at < len(call)]
    head = {**HEAD, "object": "chat.completion.chunk"}
    chunks = [{**head, "choices": [choice(delta)]} for delta in deltas]
    chunks.append({**head, "choices": [choice({}, finish)]})
    chunks.append({**head, "choices": [], "usage": usage})
    return completion(message, finish, usage), chunks


def choice(delta: Json, finish: str | None = None) -> Json:
    return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}


def stream(events: list[Json], *, named: bool = False, done: bool = True) -> bytes:
    """The events as an upstream writes them."""
    out = []
    for event in events:
        name = f"event: {event['type']}\n" if named else ""
        out.append(f"{name}data: {json.dumps(event)}\n\n")
    return ("".join(out) + ("data: [DONE]\n\n" if done else "")).encode()
