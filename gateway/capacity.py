"""The capacity gate: no prompt reaches an engine that it does not fit, and none is cut to fit.

The count is exact where the engine tokenizes; a prompt whose bytes cannot make more tokens than the window needs no
call. An estimate is never a reason to refuse.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Protocol

from gateway.admission.counting import estimate, upper_bound
from gateway.config.snapshot import Deployment, Snapshot
from gateway.errors import (
    AssayError,
    ContextLengthExceeded,
    DeploymentQuarantined,
    NoHealthyDeployment,
    PolicyDenied,
    UnsupportedParameter,
)
from gateway.exchange import Candidate, Exchange, InferenceRequest, Plan, Reason, TokenCount


class CountExactly(Protocol):
    """An engine's own count of a prompt, or None when it cannot be had."""

    async def __call__(self, deployment: Deployment, fields: Any, timeout_s: float) -> int | None: ...


def nobody(plan: Plan) -> AssayError:
    """The error of a plan that leaves nobody to ask."""
    reasons = tuple(dict.fromkeys(reason.id for candidate in plan.dropped for reason in candidate.reasons))
    if plan.refusal == "quarantined":
        return DeploymentQuarantined("the permitted deployments are quarantined", reasons=reasons)
    if plan.refusal == "unhealthy":
        return NoHealthyDeployment("no permitted deployment may serve now", reasons=reasons)
    if "endpoint-not-offered" in reasons:
        return UnsupportedParameter("no permitted deployment of this model offers this endpoint", param="model")
    if "remote-media" in reasons:
        return UnsupportedParameter("media must be given as data: URLs for this model", param="messages")
    return PolicyDenied("the request's own `provider` rules leave no permitted deployment", reasons=reasons)


class CapacityGate:
    """Drops the deployments of a plan that a prompt does not fit."""

    def __init__(self, count_exactly: CountExactly) -> None:
        self._count = count_exactly

    async def count(self, deployment: Deployment, request: InferenceRequest) -> int:
        """A prompt's tokens: exact where the engine tokenizes, else estimated."""
        if deployment.provider.self_hosted and not request.has_media:
            exact = await self._count(deployment, request.fields, deployment.timeouts.connect_s)
            if exact is not None:
                return exact
        return estimate(request).prompt or 0

    async def fitting(self, exchange: Exchange, snapshot: Snapshot, plan: Plan) -> Plan:
        """The capacity gate: drops deployments that a prompt, counted exactly, does not fit; 400 when none is left."""
        request = exchange.request
        assert request is not None
        bound = upper_bound(request)
        kept: list[str] = []
        dropped = list(plan.dropped)
        for name in plan.order:
            deployment = snapshot.deployments[name]
            window = deployment.context_window
            asked = request.max_output_tokens or 0
            fits = window is None or (bound is not None and bound + asked <= window)
            if fits or window is None or not deployment.provider.self_hosted or request.has_media:
                kept.append(name)
                continue
            exact = await self._count(deployment, request.fields, deployment.timeouts.connect_s)
            if exact is None:
                kept.append(name)
                continue
            if not kept:
                exchange.count = TokenCount(exact, "exact")
            if exact + asked > window or exact >= window:
                reason = Reason("context-window", "The prompt and the answer asked for do not fit the context window.")
                dropped.append(Candidate(name, False, (reason,)))
            else:
                kept.append(name)
        if not kept:
            exchange.plan = replace(plan, order=(), dropped=tuple(dropped), refusal="context")
            raise ContextLengthExceeded("the prompt does not fit the model's context window", param="messages")
        return replace(plan, order=tuple(kept), dropped=tuple(dropped))
