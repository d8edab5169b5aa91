"""After a failed attempt: the same deployment again, the next candidate, or the end (contract, retry and fallback)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from gateway.errors import UpstreamFailure

LONGEST_PATIENCE_S = 2.0


@dataclass(frozen=True, slots=True)
class Step:
    """What to do now; `wait_s` before asking the same deployment again."""

    action: Literal["again", "next", "stop"]
    wait_s: float = 0.0


_STOP = Step("stop")
_NEXT = Step("next")


def next_step(failure: UpstreamFailure, tries: int, retries: int) -> Step:
    """`tries` attempts were made on this deployment, of which `retries` further ones are allowed."""
    kind = failure.kind
    if kind == "refused":
        return _NEXT if failure.status in (401, 403) else _STOP
    patient = kind in ("connect", "server")
    if kind == "limited":
        patient = failure.retry_after_s is not None and failure.retry_after_s <= LONGEST_PATIENCE_S
    if patient and tries <= retries:
        wait = failure.retry_after_s or 0.0
        return Step("again", min(wait, LONGEST_PATIENCE_S) if kind == "limited" else 0.0)
    return _NEXT


def counts_against(failure: UpstreamFailure) -> bool:
    """Whether a failure says something about the deployment's condition: a refused request does not."""
    return failure.kind != "refused" or failure.status in (401, 403)
