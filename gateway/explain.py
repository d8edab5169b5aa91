"""The plan that would be made for a request, with every deployment and every reason; no request is sent."""

from __future__ import annotations

from dataclasses import dataclass

from gateway.config.snapshot import Deployment, Snapshot
from gateway.exchange import Candidate, Endpoint, Principal, Reason
from gateway.policy.engine import PolicyEngine
from gateway.protocols.registry import translation
from gateway.routing.health import Health
from gateway.routing.plan import plan


@dataclass(frozen=True, slots=True)
class Explanation:
    """What would happen, and why."""

    tenant: str
    model: str
    workload: str | None
    visible: bool
    order: tuple[str, ...]
    candidates: tuple[Candidate, ...]
    policy_digest: str
    policy_version: str


def explain(
    snapshot: Snapshot,
    engine: PolicyEngine,
    *,
    tenant: str,
    model: str,
    workload: str | None = None,
    prompt_tokens: int | None = None,
    region: str | None = None,
    endpoint: Endpoint = Endpoint.chat,
) -> Explanation:
    """Runs the same decision and plan as traffic. `region` and `prompt_tokens` narrow what may be asked."""
    alias = snapshot.models.get(model)
    decision = engine.decide(snapshot, Principal(tenant, "explain"), alias, workload, endpoint)
    if alias is None or not decision.visible:
        return Explanation(tenant, model, workload, False, (), (), decision.policy_digest, decision.policy_version)

    def able(found: Deployment) -> Reason | None:
        if translation(endpoint.dialect, found.endpoints) is None:
            return Reason("endpoint-not-offered", "The deployment does not offer this endpoint.")
        if region is not None and found.region != region:
            return Reason("region-asked", "The deployment is not in the region asked for.")
        if prompt_tokens is not None and found.context_window is not None and prompt_tokens >= found.context_window:
            return Reason("context-window", "The prompt does not fit the context window.")
        return None

    rules = snapshot.tenants[tenant].workloads.get(workload) if workload else None
    made = plan(snapshot, decision, alias, rules.fallback if rules else None, None, Health(), able)
    dropped = {candidate.deployment: candidate for candidate in made.dropped}
    candidates = tuple(dropped.get(candidate.deployment, candidate) for candidate in decision.candidates)
    return Explanation(
        tenant, model, workload, True, made.order, candidates, decision.policy_digest, decision.policy_version
    )
