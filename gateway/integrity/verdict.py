"""From checks to what happens to the answer: delivered, delivered and flagged, or withheld."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from gateway.errors import AssayError, IntegrityViolation, ModelSubstituted
from gateway.exchange import Check, Integrity

Action = Literal["block", "flag"]


@dataclass(frozen=True, slots=True)
class Rules:
    """The operator's choice for each kind of failure (contract, `integrity`)."""

    on_substitution: Action = "block"
    on_unknown_model: Action = "flag"
    on_violation: Action = "block"


def withheld_because(checks: list[Check], rules: Rules) -> AssayError | None:
    """The error that takes the answer's place, or None when it may be delivered."""
    for check in checks:
        if check.name == "model":
            if check.verdict == "failed" and rules.on_substitution == "block":
                return ModelSubstituted(
                    "the upstream served another model than this deployment may serve; the answer was withheld"
                )
            if check.verdict == "inconclusive" and rules.on_unknown_model == "block":
                return IntegrityViolation("the upstream did not say which model it served; the answer was withheld")
        elif check.verdict == "failed" and check.hard and rules.on_violation == "block":
            return IntegrityViolation(f"the integrity check `{check.name}` failed; the answer was withheld")
    return None


def integrity_of(checks: list[Check], *, withheld: bool) -> Integrity:
    """The exchange's state: `inconclusive` is never `passed`."""
    if withheld:
        return "failed"
    if any(check.verdict == "failed" for check in checks):
        return "flagged"
    if any(check.verdict == "inconclusive" for check in checks):
        return "inconclusive"
    return "passed"
