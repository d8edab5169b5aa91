"""Limits and budgets of one process: reserved before dispatch, settled once, exact under concurrency.

Windows slide: never more than N in any 60 s. Everything happens in one synchronous step of the event loop, so that
concurrent requests cannot pass a check together. A refused request costs no quota.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Literal

from gateway.config.snapshot import Limits, Tenant
from gateway.errors import InsufficientQuota, InvalidValue, RateLimitExceeded, TooManyParallelRequests
from gateway.exchange import Principal

WINDOW_S = 60.0
Period = Literal["day", "week", "month"]


def period_name(period: Period, now: float) -> str:
    """The budget period a moment belongs to, in UTC."""
    moment = datetime.fromtimestamp(now, UTC)
    if period == "day":
        return moment.strftime("%Y-%m-%d")
    if period == "week":
        year, week, _ = moment.isocalendar()
        return f"{year}-W{week:02d}"
    return moment.strftime("%Y-%m")


def period_start(period: Period, now: float) -> float:
    """When the budget period of a moment began, in Unix seconds (UTC)."""
    moment = datetime.fromtimestamp(now, UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    if period == "week":
        moment -= timedelta(days=moment.weekday())
    elif period == "month":
        moment = moment.replace(day=1)
    return moment.timestamp()


def openai_duration(seconds: float) -> str:
    """As OpenAI writes resets: `6m0s`, `1s`, `250ms`."""
    if seconds < 1:
        return f"{max(0, math.ceil(seconds * 1000))}ms"
    whole = math.ceil(seconds)
    hours, rest = divmod(whole, 3600)
    minutes, left = divmod(rest, 60)
    return (f"{hours}h" if hours else "") + (f"{minutes}m" if hours or minutes else "") + f"{left}s"


class _Window:
    """Amounts of the last 60 seconds."""

    __slots__ = ("entries", "total")

    def __init__(self) -> None:
        self.entries: deque[list[float]] = deque()
        self.total = 0.0

    def expire(self, now: float) -> None:
        while self.entries and self.entries[0][0] <= now - WINDOW_S:
            self.total -= self.entries.popleft()[1]

    def wait(self, amount: float, limit: float, now: float) -> float:
        """Seconds until `amount` fits; 0 when it fits now."""
        self.expire(now)
        excess = self.total + amount - limit
        if excess <= 0:
            return 0.0
        for moment, size in self.entries:
            excess -= size
            if excess <= 0:
                return max(moment + WINDOW_S - now, 0.001)
        return WINDOW_S

    def add(self, amount: float, now: float) -> list[float]:
        entry = [now, amount]
        self.entries.append(entry)
        self.total += amount
        return entry


@dataclass(slots=True)
class _Account:
    """Counters of one tenant, key or (tenant, model)."""

    requests: _Window = field(default_factory=_Window)
    tokens: _Window = field(default_factory=_Window)
    parallel: int = 0
    spent: Decimal = Decimal(0)
    reserved: Decimal = Decimal(0)
    period: str = ""


@dataclass(slots=True)
class Reservation:
    """What one admitted exchange holds until it is settled."""

    accounts: list[tuple[_Account, Limits]]
    tokens: list[list[float]]
    cost: Decimal
    limits: Limits
    shown: _Account | None
    settled: bool = False


class LocalLimiter:
    """The limiter of a single process; several processes need a shared one."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, wall: Callable[[], float] = time.time) -> None:
        self._accounts: dict[tuple[str, ...], _Account] = {}
        self._clock = clock
        self._wall = wall

    def load_spend(self, tenant: str, key: str | None, period: str, spent: Decimal) -> None:
        """What was spent in a period before this process started."""
        account = self._account(("tenant", tenant) if key is None else ("key", tenant, key))
        account.period, account.spent = period, spent

    def _account(self, key: tuple[str, ...]) -> _Account:
        account = self._accounts.get(key)
        if account is None:
            account = self._accounts[key] = _Account()
        return account

    def applies(self, principal: Principal, tenant: Tenant) -> bool:
        """Whether anything limits this caller."""
        return principal.limits is not None or tenant.limits != Limits()

    def reserve(
        self, principal: Principal, tenant: Tenant, model: str, tokens: int, cost: Decimal | None
    ) -> Reservation:
        """Admits or raises; nothing is counted for what is refused."""
        now = self._clock()
        scopes: list[tuple[_Account, Limits]] = [(self._account(("tenant", tenant.id)), tenant.limits)]
        if principal.limits is not None:
            key = principal.limits
            own = Limits(
                key.requests_per_minute, key.tokens_per_minute, key.parallel_requests, key.budget_usd, key.budget_period
            )
            scopes.append((self._account(("key", tenant.id, principal.key)), own))
        model_limits = tenant.limits.models.get(model)
        if model_limits is not None:
            scopes.append((self._account(("model", tenant.id, model)), model_limits))
        for account, limits in scopes:
            self._check(account, limits, tokens, cost, now)
        held: list[list[float]] = []
        amount = cost or Decimal(0)
        for account, limits in scopes:
            if limits.requests_per_minute is not None:
                account.requests.add(1, now)
            if limits.tokens_per_minute is not None:
                held.append(account.tokens.add(tokens, now))
            account.parallel += 1
            account.reserved += amount
        return Reservation(scopes, held, amount, tenant.limits, scopes[0][0])

    def _check(self, account: _Account, limits: Limits, tokens: int, cost: Decimal | None, now: float) -> None:
        if limits.parallel_requests is not None and account.parallel >= limits.parallel_requests:
            raise TooManyParallelRequests(
                "too many requests at once", retry_after_s=1, headers=self._shown(account, limits)
            )
        if limits.requests_per_minute is not None:
            wait = account.requests.wait(1, limits.requests_per_minute, now)
            if wait > 0:
                raise self._limited("requests", wait, account, limits)
        if limits.tokens_per_minute is not None:
            if tokens > limits.tokens_per_minute:
                raise InvalidValue("the request needs more tokens than the limit of a minute can ever admit")
            wait = account.tokens.wait(tokens, limits.tokens_per_minute, now)
            if wait > 0:
                raise self._limited("tokens", wait, account, limits)
        if limits.budget_usd is not None:
            period = period_name(limits.budget_period, self._wall())
            if account.period != period:
                account.period, account.spent = period, Decimal(0)
            if cost is None:
                raise InsufficientQuota("a budget applies and this deployment has no price")
            if account.spent + account.reserved + cost > limits.budget_usd:
                raise InsufficientQuota("the budget does not cover this request", headers=self._shown(account, limits))

    def _limited(self, what: str, wait: float, account: _Account, limits: Limits) -> RateLimitExceeded:
        return RateLimitExceeded(
            f"the limit of {what} per minute is reached",
            retry_after_s=max(1, math.ceil(wait)),
            headers=self._shown(account, limits),
        )

    def settle(self, reservation: Reservation, tokens: int | None, cost: Decimal | None) -> None:
        """Ends a reservation once: tokens and money that were really used take the place of what was reserved."""
        if reservation.settled:
            return
        reservation.settled = True
        for entry in reservation.tokens:
            if tokens is not None:
                difference = tokens - entry[1]
                entry[1] += difference
        for account, limits in reservation.accounts:
            if tokens is not None and limits.tokens_per_minute is not None:
                account.tokens.total = sum(entry[1] for entry in account.tokens.entries)
            account.parallel -= 1
            account.reserved -= reservation.cost
            account.spent += cost or Decimal(0)

    def headers(self, reservation: Reservation | None) -> tuple[tuple[str, str], ...]:
        """The tenant's own `x-ratelimit-*` values."""
        if reservation is None or reservation.shown is None:
            return ()
        return self._shown(reservation.shown, reservation.limits)

    def _shown(self, account: _Account, limits: Limits) -> tuple[tuple[str, str], ...]:
        now = self._clock()
        values: list[tuple[str, str]] = []
        for name, window, limit in (
            ("requests", account.requests, limits.requests_per_minute),
            ("tokens", account.tokens, limits.tokens_per_minute),
        ):
            if limit is None:
                continue
            window.expire(now)
            reset = window.entries[-1][0] + WINDOW_S - now if window.entries else 0.0
            values.append((f"x-ratelimit-limit-{name}", str(limit)))
            values.append((f"x-ratelimit-remaining-{name}", str(max(0, int(limit - window.total)))))
            values.append((f"x-ratelimit-reset-{name}", openai_duration(reset)))
        return tuple(values)
