"""What all bridges need: clear refusals, ids derived from the upstream's, and `data:` URLs taken apart."""

from __future__ import annotations

import re
from typing import Any

import orjson

from gateway.errors import InvalidValue, UnsupportedParameter
from gateway.protocols import tolerant
from gateway.protocols.views import NotAnAnswer

Json = dict[str, Any]
_DATA_URL = re.compile(r"data:([\w.+-]+/[\w.+-]+)(?:;[\w.+-]+=[\w.+-]+)*;base64,(.*)", re.IGNORECASE | re.DOTALL)
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]")


def unsupported(path: str, why: str = "the model's provider has no equal of it") -> UnsupportedParameter:
    """The refusal of what cannot be carried over: naming it is better than dropping it."""
    return UnsupportedParameter(f"`{path}` is not supported here: {why}", param=path)


def wrong(path: str, what: str) -> InvalidValue:
    """The refusal of a member of the wrong type."""
    return InvalidValue(f"`{path}` must be {what}", param=path)


def text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def objects(value: Any, path: str) -> list[Json]:
    """The array of objects that must stand here; null is none."""
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise wrong(path, "an array of objects")
    return value


def dicts(value: Any) -> list[Json]:
    """The objects in an array of an upstream's; what is none is skipped, as clients do."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def string(value: Any, path: str) -> str:
    if not isinstance(value, str):
        raise wrong(path, "text")
    return value


def derived_id(prefix: str, upstream: Any, suffix: str = "") -> str:
    """An id of another dialect that leads back to the upstream's own."""
    base = _UNSAFE.sub("", upstream)[:96] if isinstance(upstream, str) else ""
    if base.startswith(prefix):
        return base + suffix
    return f"{prefix}{base or 'unknown'}{suffix}"


def data_url(value: str) -> tuple[str, str] | None:
    """(media type, base64) of a `data:` URL, or None for any other."""
    match = _DATA_URL.fullmatch(value)
    return (match[1].lower(), match[2]) if match else None


def to_data_url(media_type: Any, data: Any) -> str:
    return f"data:{media_type};base64,{data}"


def arguments_object(arguments: Any) -> Json:
    """The arguments of a call, which in some dialects are an object; raises `NotAnAnswer` when the model wrote none."""
    if arguments is None or (isinstance(arguments, str) and not arguments.strip()):
        return {}
    value = tolerant.loads(arguments.encode("utf-8", "surrogatepass")) if isinstance(arguments, str) else arguments
    if not isinstance(value, dict):
        raise NotAnAnswer("the arguments of a tool call are not a JSON object")
    return value


def json_text(value: Any) -> str:
    """Compact JSON as text."""
    try:
        return orjson.dumps(value).decode()
    except TypeError:
        return tolerant.dumps(value).decode("utf-8")


def joined(pieces: list[str]) -> str | None:
    """The pieces as one text; None when there is none."""
    return "".join(pieces) if pieces else None
