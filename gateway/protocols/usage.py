"""Usage objects of every dialect as one value. Counts that are not plain integers of sane size are not usage."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gateway.exchange import Usage

_MAX = 1 << 40


def count(value: Any) -> int | None:
    """A token count, or None for anything that is not one."""
    return value if type(value) is int and 0 <= value < _MAX else None


def openai_usage(value: Any) -> Usage | None:
    """`usage` of chat completions, completions and embeddings (OpenAI API)."""
    if not isinstance(value, Mapping):
        return None
    prompt = count(value.get("prompt_tokens"))
    if prompt is None:
        return None
    inputs = _details(value, "prompt_tokens_details")
    outputs = _details(value, "completion_tokens_details")
    return Usage(
        prompt,
        count(value.get("completion_tokens")) or 0,
        count(inputs.get("cached_tokens")),
        count(outputs.get("reasoning_tokens")),
        count(inputs.get("cache_write_tokens")) or count(inputs.get("created_cache_tokens")),
        count(inputs.get("audio_tokens")),
        count(outputs.get("audio_tokens")),
    )


def responses_usage(value: Any) -> Usage | None:
    """`usage` of the Responses API."""
    if not isinstance(value, Mapping):
        return None
    prompt = count(value.get("input_tokens"))
    if prompt is None:
        return None
    inputs = _details(value, "input_tokens_details")
    return Usage(
        prompt,
        count(value.get("output_tokens")) or 0,
        count(inputs.get("cached_tokens")),
        count(_details(value, "output_tokens_details").get("reasoning_tokens")),
        count(inputs.get("cache_write_tokens")),
    )


def messages_usage(value: Any) -> Usage | None:
    """`usage` of Anthropic Messages, whose `input_tokens` leave out what came from or went to the cache."""
    if not isinstance(value, Mapping):
        return None
    plain = count(value.get("input_tokens"))
    if plain is None:
        return None
    cached = count(value.get("cache_read_input_tokens"))
    written = count(value.get("cache_creation_input_tokens"))
    return Usage(
        plain + (cached or 0) + (written or 0),
        count(value.get("output_tokens")) or 0,
        cached,
        count(_details(value, "output_tokens_details").get("thinking_tokens")),
        written,
    )


def _details(value: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    details = value.get(key)
    return details if isinstance(details, Mapping) else {}
