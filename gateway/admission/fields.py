"""Which request fields may pass: those that steer an engine or the gateway never do (contract, section 3)."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from gateway.errors import InvalidValue, MissingRequiredParameter, UnsupportedParameter
from gateway.exchange import Dialect, Narrowing

REFUSED = frozenset(
    """cache_salt kv_transfer_params ec_transfer_params bootstrap_host bootstrap_port bootstrap_room extra_key rid
    request_id routed_dp_rank disagg_prefill_dp_rank input_ids prompt_embeds priority session_id vllm_xargs
    truncate_prompt_tokens truncation_side chat_template mm_processor_kwargs media_io_kwargs api_base base_url api_key
    api_version custom_llm_provider extra_headers extra_body fallbacks model_list models route""".split()
)
#: What the model is told, as against how it is asked: left out of `parameters_digest`.
CONTENT = frozenset(
    "model messages prompt input instructions system suffix user metadata provider prediction documents "
    "safety_identifier prompt_cache_key previous_response_id".split()
)
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
_MEDIA = {"image_url", "input_image", "image", "input_audio", "audio", "file", "input_file", "document", "video_url", "audio_url"}


def refuse_steering(fields: Mapping[str, Any]) -> None:
    """Raises `UnsupportedParameter` naming the first field that steers hosts, credentials or an engine's inner state."""
    for name in REFUSED & fields.keys():
        raise UnsupportedParameter(f"the parameter `{name}` is not supported", param=name)
    if fields.get("truncation") not in (None, "disabled"):
        raise UnsupportedParameter("`truncation` must be `disabled`: prompts are never cut silently", param="truncation")


def check_shape(dialect: Dialect, fields: Mapping[str, Any]) -> None:
    """The members the gateway itself relies on have their types; everything else is the upstream's to judge."""
    for name in _NEEDED[dialect]:
        if name not in fields:
            raise MissingRequiredParameter(f"the parameter `{name}` is required", param=name)
    if dialect in ("chat", "messages") and not isinstance(fields["messages"], list):
        raise InvalidValue("`messages` must be an array", param="messages")
    stream = fields.get("stream")
    if stream is not None and not isinstance(stream, bool):
        raise InvalidValue("`stream` must be true or false", param="stream")
    options = fields.get("stream_options")
    if options is not None and not isinstance(options, dict):
        raise InvalidValue("`stream_options` must be an object", param="stream_options")
    if dialect == "embeddings":
        encoding = fields.get("encoding_format")
        if encoding not in (None, "float", "base64"):
            raise InvalidValue("`encoding_format` must be `float` or `base64`", param="encoding_format")


def choices(fields: Mapping[str, Any]) -> int:
    """`n`: how many answers are asked for, 1 to 128 (an unbounded `n` has exhausted engines)."""
    value = fields.get("n")
    if value is None:
        return 1
    if type(value) is not int or not 1 <= value <= 128:
        raise InvalidValue("`n` must be an integer between 1 and 128", param="n")
    return value


def max_output_tokens(dialect: Dialect, fields: Mapping[str, Any]) -> int | None:
    """How many tokens the client allowed for the answer, if it said so."""
    for name in _OUTPUT_LIMITS[dialect]:
        value = fields.get(name)
        if value is None:
            continue
        if type(value) is not int or value < 0:
            raise InvalidValue(f"`{name}` must be a whole number", param=name)
        return value
    return None


def media_urls(fields: Mapping[str, Any]) -> tuple[bool, bool]:
    """(there is media, some of it is named by a URL that is not `data:`) anywhere in messages or input."""
    found = remote = False
    stack: list[Any] = []
    for name in ("messages", "input", "system"):
        value = fields.get(name)
        if isinstance(value, list):
            stack.append(value)
    while stack:
        value = stack.pop()
        if isinstance(value, list):
            stack += [item for item in value if isinstance(item, dict | list)]
            continue
        if value.get("type") in _MEDIA or any(name in value for name in ("image_url", "input_audio", "audio_url", "video_url")):
            found = True
            remote = remote or _remote(value)
        content = value.get("content")
        if isinstance(content, list):
            stack.append(content)
    return found, remote


def _remote(part: Mapping[str, Any]) -> bool:
    """True if any text in the part is a URL other than a data: URL."""
    stack: list[Any] = [part]
    while stack:
        value = stack.pop()
        if isinstance(value, str):
            if "://" in value[:32] and not value.startswith("data:"):
                return True
        elif isinstance(value, Mapping):
            stack += [item for key, item in value.items() if key != "text"]
        elif isinstance(value, list):
            stack += value
    return False


_PROVIDER_KEYS = frozenset(
    "order only ignore allow_fallbacks data_collection zdr require_parameters quantizations sort max_price".split()
)


def narrowing(value: Any) -> Narrowing | None:
    """The `provider` field with OpenRouter's meaning; unknown members are refused, since dropping one would widen."""
    if value is None:
        return None
    if not isinstance(value, dict):
        raise InvalidValue("`provider` must be an object", param="provider")
    for key in value:
        if key not in _PROVIDER_KEYS:
            raise UnsupportedParameter(f"`provider.{key[:64]}` is not supported", param=f"provider.{key[:64]}")
    only = value.get("only")
    return Narrowing(
        order=_names(value, "order"),
        only=None if only is None else _names(value, "only"),
        ignore=_names(value, "ignore"),
        allow_fallbacks=_flag(value, "allow_fallbacks", True),
        data_collection=_one_of(value, "data_collection", ("allow", "deny")),
        zdr=_flag(value, "zdr", False),
        require_parameters=_flag(value, "require_parameters", False),
        quantizations=_names(value, "quantizations"),
        sort=_one_of(value, "sort", ("price", "throughput", "latency")),
        max_price=_prices(value.get("max_price")),
    )


def _names(value: Mapping[str, Any], key: str) -> tuple[str, ...]:
    names = value.get(key)
    if names is None:
        return ()
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names) or len(names) > 256:
        raise InvalidValue(f"`provider.{key}` must be an array of names", param=f"provider.{key}")
    return tuple(names)


def _flag(value: Mapping[str, Any], key: str, default: bool) -> bool:
    flag = value.get(key)
    if flag is None:
        return default
    if not isinstance(flag, bool):
        raise InvalidValue(f"`provider.{key}` must be true or false", param=f"provider.{key}")
    return flag


def _one_of(value: Mapping[str, Any], key: str, options: tuple[str, ...]) -> Any:
    choice = value.get(key)
    if choice is not None and choice not in options:
        raise InvalidValue(f"`provider.{key}` must be one of {', '.join(options)}", param=f"provider.{key}")
    return choice


def _prices(value: Any) -> tuple[tuple[str, Decimal], ...]:
    if value is None:
        return ()
    if not isinstance(value, dict):
        raise InvalidValue("`provider.max_price` must be an object", param="provider.max_price")
    prices: list[tuple[str, Decimal]] = []
    for kind, price in value.items():
        if kind not in ("prompt", "completion") or isinstance(price, bool) or not isinstance(price, int | float | str):
            raise InvalidValue("`provider.max_price` takes `prompt` and `completion`", param="provider.max_price")
        try:
            amount = Decimal(str(price))
        except ArithmeticError:
            raise InvalidValue("`provider.max_price` must hold numbers", param="provider.max_price") from None
        if not amount.is_finite():
            raise InvalidValue("`provider.max_price` must hold numbers", param="provider.max_price")
        prices.append((kind, amount))
    return tuple(prices)
