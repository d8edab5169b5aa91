"""Limits that hold to the last request, money that is exact, and reservations that return to zero."""

from __future__ import annotations

import random
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.admission.limits import WINDOW_S, LocalLimiter, openai_duration
from gateway.admission.pricing import cost
from gateway.config.snapshot import Allow, Limits, Price, Require, Tenant
from gateway.errors import InsufficientQuota, InvalidValue, RateLimitExceeded, TooManyParallelRequests
from gateway.exchange import KeyLimits, Principal, Usage


def tenant(**limits: object) -> Tenant:
    return Tenant("t", Allow(), Require(), {}, Limits(**limits))  # type: ignore[arg-type]


CALLER = Principal("t", "k")


def test_never_more_than_n_in_any_sixty_seconds() -> None:
    """Sliding, not fixed: random arrivals against a brute-force count of every window."""
    dice = random.Random(3)
    now = [0.0]
    limiter = LocalLimiter(clock=lambda: now[0])
    rules = tenant(requests_per_minute=5)
    admitted: list[float] = []
    for _ in range(3000):
        now[0] += dice.expovariate(0.3)
        try:
            limiter.settle(limiter.reserve(CALLER, rules, "m", 1, None), 1, None)
            admitted.append(now[0])
        except RateLimitExceeded as refused:
            assert refused.retry_after_s is not None and refused.retry_after_s >= 1
    for moment in admitted:
        assert sum(moment - WINDOW_S < other <= moment for other in admitted) <= 5
    assert len(admitted) > 300


def test_refused_requests_cost_no_quota() -> None:
    """A flood of refusals does not push the window on."""
    now = [0.0]
    limiter = LocalLimiter(clock=lambda: now[0])
    rules = tenant(requests_per_minute=1)
    limiter.reserve(CALLER, rules, "m", 1, None)
    for _ in range(50):
        now[0] += 1
        with pytest.raises(RateLimitExceeded):
            limiter.reserve(CALLER, rules, "m", 1, None)
    now[0] = 60.0
    limiter.reserve(CALLER, rules, "m", 1, None)


def test_what_can_never_fit_is_a_400() -> None:
    """More tokens than a minute admits is not a matter of waiting."""
    with pytest.raises(InvalidValue):
        LocalLimiter().reserve(CALLER, tenant(tokens_per_minute=10), "m", 11, None)


def test_tokens_are_reserved_by_estimate_and_settled_by_usage() -> None:
    """What was not used is free again at once."""
    limiter = LocalLimiter()
    rules = tenant(tokens_per_minute=100)
    first = limiter.reserve(CALLER, rules, "m", 90, None)
    with pytest.raises(RateLimitExceeded):
        limiter.reserve(CALLER, rules, "m", 20, None)
    limiter.settle(first, 30, None)
    limiter.reserve(CALLER, rules, "m", 70, None)


def test_parallel_requests_are_given_back_once() -> None:
    """Settling twice does not free two places."""
    limiter = LocalLimiter()
    rules = tenant(parallel_requests=1)
    held = limiter.reserve(CALLER, rules, "m", 1, None)
    with pytest.raises(TooManyParallelRequests):
        limiter.reserve(CALLER, rules, "m", 1, None)
    limiter.settle(held, 1, None)
    limiter.settle(held, 1, None)
    limiter.reserve(CALLER, rules, "m", 1, None)
    with pytest.raises(TooManyParallelRequests):
        limiter.reserve(CALLER, rules, "m", 1, None)


def test_keys_and_models_have_limits_of_their_own() -> None:
    """The narrowest limit decides."""
    limiter = LocalLimiter()
    rules = tenant(requests_per_minute=10, models={"dear": Limits(requests_per_minute=1)})
    limiter.reserve(CALLER, rules, "dear", 1, None)
    with pytest.raises(RateLimitExceeded):
        limiter.reserve(CALLER, rules, "dear", 1, None)
    limited = Principal("t", "k2", limits=KeyLimits(requests_per_minute=1))
    limiter.reserve(limited, rules, "m", 1, None)
    with pytest.raises(RateLimitExceeded):
        limiter.reserve(limited, rules, "m", 1, None)
    limiter.reserve(CALLER, rules, "m", 1, None)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 40), st.integers(0, 60), st.booleans()), max_size=80))
def test_spend_never_passes_the_budget(calls: list[tuple[int, int, bool]]) -> None:
    """However calls overlap: reserved before dispatch, settled once, and nothing stays reserved."""
    limiter = LocalLimiter()
    rules = tenant(budget_usd=Decimal(100))
    held, spent = [], Decimal(0)
    for reserve, used, settle_now in calls:
        try:
            held.append((limiter.reserve(CALLER, rules, "m", 1, Decimal(reserve)), min(used, reserve)))
        except InsufficientQuota:
            pass
        if held and settle_now:
            reservation, amount = held.pop(0)
            limiter.settle(reservation, 1, Decimal(amount))
            spent += amount
    for reservation, amount in held:
        limiter.settle(reservation, 1, Decimal(amount))
        spent += amount
    assert spent <= 100
    account = limiter._account(("tenant", "t"))
    assert account.spent == spent and account.reserved == 0 and account.parallel == 0


def test_a_deployment_without_a_price_is_refused_where_a_budget_applies() -> None:
    """Unknown is not zero."""
    with pytest.raises(InsufficientQuota):
        LocalLimiter().reserve(CALLER, tenant(budget_usd=Decimal(1)), "m", 1, None)


PRICE = Price(Decimal(10), Decimal(40), cached_input=Decimal(1), cache_write=Decimal(12), reasoning=Decimal(50))


@pytest.mark.parametrize(
    ("usage", "usd"),
    [
        (Usage(1_000_000, 0), "10"),
        (Usage(1_000_000, 0, cached=1_000_000), "1"),
        (Usage(1_000_000, 0, cached=250_000, cache_write=250_000), "8.25"),
        (Usage(0, 1_000_000, reasoning=400_000), "44"),
        (Usage(10, 0, cached=9999), "0.00001"),
    ],
)
def test_every_token_is_priced_once_by_its_own_price(usage: Usage, usd: str) -> None:
    """Cached, written and reasoning tokens; claims beyond the total are cut to it."""
    assert cost(PRICE, usage) == Decimal(usd)
    assert cost(None, usage) is None and cost(PRICE, None) is None


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.25, "250ms"), (1, "1s"), (59.2, "1m0s"), (360, "6m0s"), (3661, "1h1m1s"), (0, "0ms")]
)
def test_resets_are_written_as_openai_writes_them(seconds: float, text: str) -> None:
    """`6m0s`, not seconds."""
    assert openai_duration(seconds) == text
