"""The client's `provider` field, with OpenRouter's meaning: it can only shrink or reorder what policy permits."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from gateway.errors import InvalidValue, UnsupportedParameter
from gateway.exchange import Narrowing

_PROVIDER_KEYS = {
    *("order", "only", "ignore", "allow_fallbacks", "sort", "max_price"),
    *("data_collection", "zdr", "require_parameters", "quantizations"),
}


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
