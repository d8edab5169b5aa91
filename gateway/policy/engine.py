"""Decisions: which deployments behind a model may see this caller's prompt, and by which policy.

Pure: the same facts give the same decision, for traffic, `assay explain` and the simulator alike. One Cedar decision
costs about 140 µs, so whole decisions are kept per (tenant, workload, key models, model, endpoint) until policies,
tenants or deployments change, and for one UTC day, as review dates age. An evaluation error or no decision is a deny:
Cedar itself skips an erring `forbid`, which would fail open.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from typing import Any

import cedarpy

from gateway.config.snapshot import ModelAlias, Snapshot, Tenant, Workload
from gateway.errors import InvalidValue, ModelNotFound, PolicyDenied
from gateway.exchange import Candidate, Decision, Endpoint, Principal, Reason
from gateway.policy import facts
from gateway.policy.source import PolicySource

_MAX_KEPT = 50_000
_UNPERMITTED = Reason("no-permit", "No policy permits this deployment for the tenant.")
_ERROR = Reason("evaluation-error", "A policy could not be evaluated, which denies.")


class PolicyEngine:
    """A set of policies, ready to decide. Replaced whole on reload."""

    def __init__(self, source: PolicySource) -> None:
        self.source = source
        self._rules = {rule.id: rule for rule in source.rules}
        self._kept: dict[tuple[Any, ...], Decision] = {}
        self._kept_for: tuple[int, date] = (0, date.min)

    def decide(
        self,
        snapshot: Snapshot,
        principal: Principal,
        alias: ModelAlias | None,
        workload: str | None,
        endpoint: Endpoint,
        on: date | None = None,
    ) -> Decision:
        """The decision on every deployment behind `alias` (None: an unknown model, which nobody sees)."""
        if alias is None:
            return self._decision(False, ())
        on = on or facts.today()
        if self._kept_for != (snapshot.version, on):
            self._kept.clear()
            self._kept_for = (snapshot.version, on)
        key = (principal.tenant, workload, principal.models, alias.name, endpoint, principal.canary)
        decision = self._kept.get(key)
        if decision is None:
            decision = self._decide(snapshot, principal, alias, workload, endpoint, on)
            if len(self._kept) >= _MAX_KEPT:
                self._kept.clear()
            self._kept[key] = decision
        return decision

    def _decide(
        self,
        snapshot: Snapshot,
        principal: Principal,
        alias: ModelAlias,
        workload_name: str | None,
        endpoint: Endpoint,
        on: date,
    ) -> Decision:
        tenant = snapshot.tenants.get(principal.tenant)
        if tenant is None:
            return self._decision(False, ())
        workload = _workload(tenant, workload_name)
        entity = facts.tenant_entity(tenant, workload, canary=principal.canary)
        seen, reasons = self._evaluate(
            "see", entity, facts.model_entity(alias.name), facts.see_context(workload, principal.models)
        )
        if not seen:
            return replace(self._decision(False, ()), determining=tuple(reason.id for reason in reasons))
        candidates = []
        context = facts.infer_context(workload, endpoint, alias)
        determining: dict[str, None] = {}
        for name in alias.deployments:
            permitted, reasons = self._evaluate(
                "infer", entity, facts.deployment_entity(snapshot.deployments[name], on), context
            )
            candidates.append(Candidate(name, permitted, reasons))
            determining.update(dict.fromkeys(reason.id for reason in reasons))
        return replace(self._decision(True, tuple(candidates)), determining=tuple(determining))

    def _decision(self, visible: bool, candidates: tuple[Candidate, ...]) -> Decision:
        return Decision(visible, candidates, self.source.digest, self.source.version)

    def _evaluate(
        self, action: str, principal: dict[str, Any], resource: dict[str, Any], context: dict[str, Any]
    ) -> tuple[bool, tuple[Reason, ...]]:
        request = {
            "principal": principal["uid"],
            "action": {"type": "Action", "id": action},
            "resource": resource["uid"],
            "context": context,
        }
        result = cedarpy.is_authorized(request, self.source.policies, [principal, resource], self.source.schema)
        diagnostics = result.diagnostics
        if diagnostics.errors or result.decision is cedarpy.Decision.NoDecision:
            return False, (_ERROR,)
        names = sorted(set(diagnostics.id_annotations_by_reason.values()))
        reasons = tuple(Reason(name, self._rules[name].reason) for name in names if name in self._rules)
        if result.decision is not cedarpy.Decision.Allow:
            return False, reasons or (_UNPERMITTED,)
        return True, reasons

    def models_of(self, snapshot: Snapshot, principal: Principal) -> list[str]:
        """The models for which a plain request of this key finds a permitted deployment."""
        names = []
        for name, alias in snapshot.models.items():
            decision = self.decide(snapshot, principal, alias, principal.workload, Endpoint.chat)
            if decision.visible and decision.permitted:
                names.append(name)
        return names


def _workload(tenant: Tenant, name: str | None) -> Workload | None:
    return None if name is None or name == "default" else tenant.workloads[name]


def workload_of(snapshot: Snapshot, principal: Principal, asked: str | None) -> str | None:
    """The workload a request runs under. Unknown: 400; a key pinned to one refuses any other: 403."""
    if principal.workload is not None:
        if asked is not None and asked != principal.workload:
            raise PolicyDenied("this key is bound to another workload", reasons=("workload-pinned",))
        return principal.workload
    if asked is None or asked == "default":
        return None
    tenant = snapshot.tenants.get(principal.tenant)
    if tenant is None or asked not in tenant.workloads:
        raise InvalidValue("the workload is not known", param="x-assay-workload")
    return asked


def require_permitted(decision: Decision, model: str) -> None:
    """Raises 404 for a model that is unknown or not visible (the same answer), 403 when nothing is permitted."""
    if not decision.visible:
        raise ModelNotFound(
            f"the model `{_shown(model)}` does not exist or you do not have access to it", param="model"
        )
    if not decision.permitted:
        reasons = dict.fromkeys(reason.id for candidate in decision.candidates for reason in candidate.reasons)
        raise PolicyDenied("policy permits no deployment of this model for this request", reasons=tuple(reasons))


def _shown(name: str) -> str:
    return name[:100].encode("ascii", "backslashreplace").decode()


def stores_where_forbidden(snapshot: Snapshot, tenant: str, workload: str | None) -> bool:
    """True when zero retention is required, so that `store: true` must be refused."""
    rules = snapshot.tenants.get(tenant)
    if rules is None:
        return True
    extra = _workload(rules, workload)
    return rules.require.zero_retention or bool(extra and extra.require and extra.require.zero_retention)
