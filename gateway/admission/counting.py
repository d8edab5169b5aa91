"""How long a prompt is, without a tokenizer: an offline estimate with a stated band, and a bound that is certain.

Byte-level BPE tokenizers give about one token per 4 ASCII characters of prose and between 0.6 and 1.1 per character
of other scripts; single words of one or two letters and code give more. The estimate is within a factor of two on
prose and code; it is never a reason for an exact refusal. No tokenizer gives more tokens than bytes, plus a few for
the chat template per message: that bound may prove that a prompt fits.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gateway.exchange import Dialect, InferenceRequest, TokenCount

TEMPLATE_TOKENS_PER_MESSAGE = 16
TEMPLATE_TOKENS = 64
_ASCII_PER_TOKEN = 4.0
_OTHER_PER_TOKEN = 1.2


def estimate(request: InferenceRequest) -> TokenCount:
    """The prompt's token count: `estimated`, or `unknown` when it holds images, audio or files."""
    texts, messages = prompt_texts(request.endpoint.dialect, request.fields)
    tokens = 3 + 4 * messages
    for text in texts:
        tokens += _tokens(text)
    tools = request.fields.get("tools")
    if tools:
        tokens += len(str(tools)) // 4
    return TokenCount(tokens, "unknown" if request.has_media else "estimated")


def upper_bound(request: InferenceRequest) -> int:
    """No tokenizer makes more tokens of this prompt than this."""
    messages = request.fields.get("messages")
    count = len(messages) if isinstance(messages, list) else 1
    return len(request.body) + TEMPLATE_TOKENS + TEMPLATE_TOKENS_PER_MESSAGE * count


def estimate_text(text: str) -> int:
    """Estimated tokens of generated text, for bills of answers whose upstream reported none."""
    return _tokens(text)


def _tokens(text: str) -> int:
    length = len(text)
    if text.isascii():
        return max(int(length / _ASCII_PER_TOKEN), text.count(" ") + 1 if length else 0)
    other = len(text.encode("utf-8", "surrogatepass")) - length
    wide = min(length, other)
    return int((length - wide) / _ASCII_PER_TOKEN + wide / _OTHER_PER_TOKEN) + 1


def prompt_texts(dialect: Dialect, fields: Mapping[str, Any]) -> tuple[list[str], int]:
    """Every text of the prompt, and the number of messages; also what the leak index takes in."""
    texts: list[str] = []
    messages = 0
    names = {
        "chat": ("messages",),
        "completions": ("prompt", "suffix"),
        "embeddings": ("input",),
        "responses": ("instructions", "input"),
        "messages": ("system", "messages"),
    }[dialect]
    for name in names:
        value = fields.get(name)
        if isinstance(value, list):
            messages += len(value)
        elif value is not None:
            messages += 1
        _collect(value, texts, 0)
    return texts, messages


_TEXT_KEYS = ("content", "text", "input", "output", "arguments", "thinking", "refusal", "summary", "reasoning_content")


def _collect(value: Any, texts: list[str], depth: int) -> None:
    if isinstance(value, str):
        texts.append(value)
    elif isinstance(value, list):
        for item in value:
            _collect(item, texts, depth + 1)
    elif isinstance(value, dict) and depth < 8:
        for key in _TEXT_KEYS:
            if key in value:
                _collect(value[key], texts, depth + 1)
        for call in value.get("tool_calls") or ():
            if isinstance(call, dict) and isinstance(call.get("function"), dict):
                _collect(call["function"].get("arguments"), texts, depth + 1)
