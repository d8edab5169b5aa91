"""Which translation serves a client's dialect on a deployment, from the dialects that are native there."""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache

from gateway.exchange import Dialect
from gateway.protocols.bridges.bridge import Bridge
from gateway.protocols.translation import Native, Translation

#: What each dialect can be bridged to, the closer one first.
_BRIDGED: dict[Dialect, tuple[Dialect, ...]] = {
    "responses": ("chat", "messages"),
    "messages": ("chat",),
    "chat": ("messages",),
}


def translation(client: Dialect, native: Collection[str]) -> Translation | None:
    """The translation to use, or None when this deployment cannot serve the dialect at all."""
    return _translation(client, native if isinstance(native, frozenset) else frozenset(native))


@lru_cache(maxsize=256)
def _translation(client: Dialect, native: frozenset[str]) -> Translation | None:
    if client in native:
        return Native(client)
    for middle in _BRIDGED.get(client, ()):
        if middle in native:
            return Bridge(client, middle, modern="responses" in native)
    return None
