"""What the gateway has lately seen of each deployment: rest after failures, calls in flight, latency.

Resting only reorders: three failures in a row rest a deployment for 10 s, doubling to 5 minutes; a success ends it.
Quarantine and preflight are others' decisions and are injected, as they refuse.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from gateway.exchange import Reason

FAILURES_TO_REST = 3
FIRST_REST_S = 10.0
LONGEST_REST_S = 300.0
_SMOOTHING = 0.2

#: Why a deployment may serve nobody now, or None: quarantine or preflight.
Serving = Callable[[str], Reason | None]


@dataclass(slots=True)
class Condition:
    """One deployment, as seen by this process."""

    failures: int = 0
    rests: int = 0
    resting_until: float = 0.0
    in_flight: int = 0
    latency_s: float | None = None


class Health:
    """Conditions of all deployments. Times are monotonic seconds."""

    def __init__(self, serving: Serving | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._conditions: dict[str, Condition] = {}
        self._serving = serving
        self._clock = clock

    def condition(self, deployment: str) -> Condition:
        """The condition of a deployment, made on first sight."""
        condition = self._conditions.get(deployment)
        if condition is None:
            condition = self._conditions[deployment] = Condition()
        return condition

    def resting(self, deployment: str) -> bool:
        """True while a deployment cools off."""
        condition = self._conditions.get(deployment)
        return condition is not None and condition.resting_until > self._clock()

    def refusal(self, deployment: str) -> Reason | None:
        """Why it may serve nobody now."""
        return self._serving(deployment) if self._serving is not None else None

    def started(self, deployment: str) -> None:
        """An attempt began."""
        self.condition(deployment).in_flight += 1

    def ended(self, deployment: str, *, failed: bool, latency_s: float | None = None) -> None:
        """An attempt ended. `failed` is a transport or server failure; a refused request is none."""
        condition = self.condition(deployment)
        condition.in_flight = max(condition.in_flight - 1, 0)
        if latency_s is not None:
            known = condition.latency_s
            condition.latency_s = latency_s if known is None else known + _SMOOTHING * (latency_s - known)
        if not failed:
            condition.failures = condition.rests = 0
            condition.resting_until = 0.0
            return
        condition.failures += 1
        if condition.failures >= FAILURES_TO_REST and condition.resting_until <= self._clock():
            rest = min(FIRST_REST_S * 2**condition.rests, LONGEST_REST_S)
            condition.resting_until = self._clock() + rest
            condition.rests += 1

    def neither(self, deployment: str) -> None:
        """An attempt ended in a way that says nothing about the deployment (refused request, client gone)."""
        condition = self.condition(deployment)
        condition.in_flight = max(condition.in_flight - 1, 0)
