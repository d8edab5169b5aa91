"""Which request fields may pass: those that steer an engine or the gateway never do (contract, section 3)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gateway.errors import InvalidValue, MissingRequiredParameter, UnsupportedParameter
from gateway.exchange import Dialect


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


#: The contract's list.
CONTRACT = _names(
    """cache_salt kv_transfer_params ec_transfer_params bootstrap_host bootstrap_port bootstrap_room extra_key rid
    request_id routed_dp_rank disagg_prefill_dp_rank input_ids prompt_embeds priority session_id vllm_xargs
    truncate_prompt_tokens truncation_side chat_template mm_processor_kwargs media_io_kwargs api_base base_url api_key
    api_version custom_llm_provider extra_headers extra_body fallbacks model_list models route"""
)
#: Of the same kind in engines' sources: older or newer names of the above, code or weights named by a request.
KINDRED = _names(
    """data_parallel_rank disagg_prefill_dr_rank prefill_dp_rank decode_dp_rank input_embeds image_embeds
    custom_logit_processor logits_processors lora_path session_params"""
)
REFUSED = CONTRACT | KINDRED
#: What the model is told, as against how it is asked: left out of `parameters_digest`.
CONTENT = _names(
    "model messages prompt input instructions system suffix user metadata provider prediction documents "
    "safety_identifier prompt_cache_key previous_response_id"
)
#: An engine's template renderer takes these as arguments of its own, which would replace what it renders with.
_TEMPLATE_ARGUMENTS = frozenset({"chat_template", "tokenize", "tokenizer", "conversation", "return_tensors"})
MAX_CHOICES = 128

_NEEDED: dict[Dialect, tuple[str, ...]] = {
    "chat": ("messages",),
    "completions": ("prompt",),
    "embeddings": ("input",),
    "responses": (),
    "messages": ("messages", "max_tokens"),
}
_OUTPUT_LIMITS: dict[Dialect, tuple[str, ...]] = {
    "chat": ("max_completion_tokens", "max_tokens"),
    "completions": ("max_tokens",),
    "embeddings": (),
    "responses": ("max_output_tokens",),
    "messages": ("max_tokens",),
}


def refuse_steering(dialect: Dialect, fields: Mapping[str, Any]) -> None:
    """Raises `UnsupportedParameter` naming the first field that steers hosts, credentials or an engine's inside."""
    if not REFUSED.isdisjoint(fields):
        name = next(name for name in fields if name in REFUSED)
        raise UnsupportedParameter(f"the parameter `{name}` is not supported", param=name)
    if "truncation" in fields and fields["truncation"] not in (None, "disabled"):
        raise UnsupportedParameter(
            "`truncation` must be `disabled`: prompts are never cut silently", param="truncation"
        )
    if fields.get("transforms"):
        raise UnsupportedParameter("`transforms` is not supported: prompts are never cut silently", param="transforms")
    arguments = fields.get("chat_template_kwargs")
    if arguments is not None:
        if not isinstance(arguments, dict):
            raise InvalidValue("`chat_template_kwargs` must be an object", param="chat_template_kwargs")
        for name in arguments:
            if name in _TEMPLATE_ARGUMENTS:
                path = f"chat_template_kwargs.{name}"
                raise UnsupportedParameter(f"the parameter `{path}` is not supported", param=path)
    if dialect == "responses":
        _refuse_responses(fields)


def _refuse_responses(fields: Mapping[str, Any]) -> None:
    """Background work and provider-side conversations would outlive the exchange that is metered and recorded."""
    if fields.get("background") not in (None, False):
        raise UnsupportedParameter("`background` is not supported", param="background")
    for name in ("conversation", "prompt"):
        if fields.get(name) is not None:
            raise UnsupportedParameter(f"`{name}` is not supported: send the content itself", param=name)


def check_shape(dialect: Dialect, fields: Mapping[str, Any], *, counting: bool = False) -> None:
    """The members the gateway itself relies on have their types; everything else is the upstream's to judge."""
    for name in _NEEDED[dialect]:
        if fields.get(name) is None and not (counting and name == "max_tokens"):
            raise MissingRequiredParameter(f"the parameter `{name}` is required", param=name)
    if dialect == "chat" or dialect == "messages":
        _objects(fields["messages"], "messages")
    elif dialect == "completions":
        _prompt(fields["prompt"], "prompt")
    elif dialect == "embeddings":
        _prompt(fields["input"], "input")
        encoding = fields.get("encoding_format")
        if encoding not in (None, "float", "base64"):
            raise InvalidValue("`encoding_format` must be `float` or `base64`", param="encoding_format")
    else:
        _responses_input(fields.get("input"))
    stream = fields.get("stream")
    if stream is not None and stream is not True and stream is not False:
        raise InvalidValue("`stream` must be true or false", param="stream")
    if stream and dialect == "embeddings":
        raise UnsupportedParameter("embeddings are not streamed", param="stream")
    options = fields.get("stream_options")
    if options is not None:
        if type(options) is not dict:
            raise InvalidValue("`stream_options` must be an object", param="stream_options")
        if options.get("include_usage") not in (None, True, False):
            raise InvalidValue("`stream_options.include_usage` must be true or false", param="stream_options")
    tools = fields.get("tools")
    if tools is not None:
        _objects(tools, "tools")
    store = fields.get("store")
    if store is not None and not isinstance(store, bool):
        raise InvalidValue("`store` must be true or false", param="store")


def _objects(value: Any, name: str) -> None:
    if type(value) is not list:
        raise InvalidValue(f"`{name}` must be an array", param=name)
    for index, item in enumerate(value):
        if type(item) is not dict:
            raise InvalidValue(f"`{name}[{index}]` must be an object", param=f"{name}[{index}]")


def _prompt(value: Any, name: str) -> None:
    """Text, an array of texts, an array of token ids, or an array of those arrays."""
    if type(value) is str:
        return
    if type(value) is not list or not value:
        raise InvalidValue(f"`{name}` must be text or a non-empty array", param=name)
    kind = type(value[0])
    if kind not in (str, int, list, dict) or any(type(item) is not kind for item in value):
        raise InvalidValue(f"`{name}` must hold texts or token ids", param=name)


def _responses_input(value: Any) -> None:
    if value is not None and type(value) is not str:
        _objects(value, "input")


def choices(dialect: Dialect, fields: Mapping[str, Any]) -> int:
    """How many answers are asked for: `n` (1 to 128; an unbounded one has exhausted engines), times the prompts."""
    if dialect != "chat" and dialect != "completions":
        return 1
    value = _small(fields, "n")
    if dialect == "completions":
        if _small(fields, "best_of") < value:
            raise InvalidValue("`best_of` must not be smaller than `n`", param="best_of")
        prompt = fields["prompt"]
        if type(prompt) is list and type(prompt[0]) is not int:
            return value * len(prompt)
    return value


def _small(fields: Mapping[str, Any], name: str) -> int:
    value = fields.get(name)
    if value is None:
        return 1 if name == "n" else MAX_CHOICES
    if type(value) is not int or not 1 <= value <= MAX_CHOICES:
        raise InvalidValue(f"`{name}` must be an integer between 1 and {MAX_CHOICES}", param=name)
    return value


def max_output_tokens(dialect: Dialect, fields: Mapping[str, Any]) -> int | None:
    """How many tokens the client allowed for the answer, if it said so; of two limits the larger counts."""
    largest: int | None = None
    for name in _OUTPUT_LIMITS[dialect]:
        value = fields.get(name)
        if value is None:
            continue
        if type(value) is not int or not 0 <= value < 1 << 31:
            raise InvalidValue(f"`{name}` must be a whole number", param=name)
        largest = value if largest is None else max(largest, value)
    return largest
