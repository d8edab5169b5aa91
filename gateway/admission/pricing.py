"""What an exchange costs: USD as Decimal, by the deployment's prices per million tokens."""

from __future__ import annotations

from decimal import Decimal

from gateway.config.snapshot import Price
from gateway.exchange import Usage

_MILLION = Decimal(1_000_000)


def cost(price: Price | None, usage: Usage | None) -> Decimal | None:
    """The price of this usage; None when there is no price, which is unknown and not zero.

    Cached, written, audio and reasoning tokens are priced by their own price where there is one; each token once.
    """
    if price is None or usage is None:
        return None
    cached = min(usage.cached or 0, usage.prompt)
    written = min(usage.cache_write or 0, usage.prompt - cached)
    heard = min(usage.audio_input or 0, usage.prompt - cached - written) if price.audio_input is not None else 0
    total = price.input * (usage.prompt - cached - written - heard)
    total += (price.cached_input if price.cached_input is not None else price.input) * cached
    total += (price.cache_write if price.cache_write is not None else price.input) * written
    if heard and price.audio_input is not None:
        total += price.audio_input * heard
    reasoning = min(usage.reasoning or 0, usage.completion) if price.reasoning is not None else 0
    spoken = min(usage.audio_output or 0, usage.completion - reasoning) if price.audio_output is not None else 0
    total += price.output * (usage.completion - reasoning - spoken)
    if reasoning and price.reasoning is not None:
        total += price.reasoning * reasoning
    if spoken and price.audio_output is not None:
        total += price.audio_output * spoken
    return total / _MILLION


def most(price: Price | None, prompt_tokens: int, output_tokens: int) -> Decimal | None:
    """An upper estimate for a reservation: nothing cached, the whole output used."""
    return cost(price, Usage(prompt_tokens, output_tokens))
