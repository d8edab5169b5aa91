"""What a reload would change: every decision that differs between two policies and configurations. Pure.

It asks the engine what traffic would ask, for every tenant, workload and model of either side, so the answer is about
deployments that gain or lose prompts and not about lines of policy text. The cost grows with their product (a Cedar
decision per deployment); callers who serve traffic run it in a thread.
"""

from __future__ import annotations

from dataclasses import dataclass

from gateway.config.snapshot import Snapshot
from gateway.exchange import Candidate, Endpoint, Principal, Reason
from gateway.policy.engine import PolicyEngine

_NOT_VISIBLE = Reason("not-visible", "The model is unknown or not visible to the tenant.")
_NOT_BEHIND = Reason("not-behind-model", "The model does not name this deployment.")


@dataclass(frozen=True, slots=True)
class DecisionChange:
    """One deployment that one tenant's requests for a model may reach now and not later, or the other way round."""

    tenant: str
    workload: str | None
    model: str
    deployment: str
    was_permitted: bool
    is_permitted: bool
    was: tuple[Reason, ...]
    now: tuple[Reason, ...]


def diff(
    old_engine: PolicyEngine,
    old: Snapshot,
    new_engine: PolicyEngine,
    new: Snapshot,
    endpoint: Endpoint = Endpoint.chat,
) -> list[DecisionChange]:
    """Every permission that changes, ordered by tenant, workload, model, deployment. Equal decisions are left out."""
    changes = []
    for tenant in sorted({*old.tenants, *new.tenants}):
        workloads = {name for side in (old, new) if tenant in side.tenants for name in side.tenants[tenant].workloads}
        for workload in (None, *sorted(workloads)):
            for model in sorted({*old.models, *new.models}):
                before = _permissions(old_engine, old, tenant, workload, model, endpoint)
                after = _permissions(new_engine, new, tenant, workload, model, endpoint)
                for name in sorted({*before, *after}):
                    was = before.get(name) or _absent(name, visible=bool(before))
                    now = after.get(name) or _absent(name, visible=bool(after))
                    if was.permitted != now.permitted:
                        changes.append(
                            DecisionChange(
                                tenant, workload, model, name, was.permitted, now.permitted, was.reasons, now.reasons
                            )
                        )
    return changes


def _permissions(
    engine: PolicyEngine, snapshot: Snapshot, tenant: str, workload: str | None, model: str, endpoint: Endpoint
) -> dict[str, Candidate]:
    """Candidates by deployment; none where the tenant, its workload or the model is not there or not visible."""
    rules = snapshot.tenants.get(tenant)
    if rules is None or (workload is not None and workload not in rules.workloads):
        return {}
    decision = engine.decide(snapshot, Principal(tenant, "diff"), snapshot.models.get(model), workload, endpoint)
    return {candidate.deployment: candidate for candidate in decision.candidates}


def _absent(name: str, *, visible: bool) -> Candidate:
    return Candidate(name, False, (_NOT_BEHIND if visible else _NOT_VISIBLE,))
