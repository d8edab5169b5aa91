"""The plan: permitted candidates in the order they will be asked, and every dropped one with its reason. Pure."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from decimal import Decimal

from gateway.config.snapshot import Deployment, Fallback, ModelAlias, Snapshot
from gateway.exchange import Candidate, Decision, Narrowing, Plan, Reason
from gateway.routing.health import Health

_ORDER: dict[Fallback, int] = {"deny": 0, "same_model": 1, "any": 2}
Can = Callable[[Deployment], Reason | None]


def plan(
    snapshot: Snapshot,
    decision: Decision,
    alias: ModelAlias,
    workload_fallback: Fallback | None,
    narrowing: Narrowing | None,
    health: Health,
    able: Can | None = None,
    draw: Callable[[], float] = random.random,
) -> Plan:
    """Orders what policy permitted. Nothing here can add a deployment that the decision did not permit.

    `able` drops deployments that cannot serve this request at all (no such endpoint, remote media).
    """
    dropped: list[Candidate] = []
    kept: list[Deployment] = []
    for candidate in decision.candidates:
        if not candidate.permitted:
            dropped.append(candidate)
            continue
        deployment = snapshot.deployments[candidate.deployment]
        reason = (able(deployment) if able else None) or _narrowed_out(deployment, narrowing)
        if reason is not None:
            dropped.append(Candidate(deployment.id, False, (reason,)))
        else:
            kept.append(deployment)
    if not kept:
        return Plan((), None, tuple(dropped), "none")
    ordered = _ordered(kept, alias, narrowing, health, draw)
    fallback = alias.fallback
    if workload_fallback is not None and _ORDER[workload_fallback] < _ORDER[fallback]:
        fallback = workload_fallback
    if narrowing is not None and not narrowing.allow_fallbacks:
        fallback = "deny"
    first = ordered[0]
    ordered = _fallback(ordered, fallback, dropped)
    serving: list[Deployment] = []
    refusals: list[Reason] = []
    for deployment in ordered:
        refusal = health.refusal(deployment.id)
        if refusal is None:
            serving.append(deployment)
        else:
            refusals.append(refusal)
            dropped.append(Candidate(deployment.id, False, (refusal,)))
    if fallback != "deny":
        serving.sort(key=lambda d: health.resting(d.id))
    refusal_kind = (
        "none" if serving else ("quarantined" if any(r.id == "quarantined" for r in refusals) else "unhealthy")
    )
    return Plan(tuple(d.id for d in serving), first.id, tuple(dropped), refusal_kind)  # type: ignore[arg-type]


def _fallback(ordered: list[Deployment], fallback: Fallback, dropped: list[Candidate]) -> list[Deployment]:
    """Which candidates after the first may answer at all."""
    first = ordered[0]
    if fallback == "any":
        return ordered
    kept = [first]
    for deployment in ordered[1:]:
        if fallback == "same_model" and deployment.same_as == first.same_as:
            kept.append(deployment)
        else:
            reason = Reason(f"fallback-{fallback}", "The fallback rule does not let this deployment answer instead.")
            dropped.append(Candidate(deployment.id, False, (reason,)))
    return kept


def _names(deployment: Deployment) -> tuple[str, str]:
    return deployment.id, deployment.provider.id


def _listed(deployment: Deployment, names: Iterable[str]) -> bool:
    own = _names(deployment)
    return any(name in own for name in names)


def _narrowed_out(deployment: Deployment, narrowing: Narrowing | None) -> Reason | None:
    """What the client's `provider` field takes away (OpenRouter, provider routing)."""
    if narrowing is None:
        return None
    if narrowing.only is not None and not _listed(deployment, narrowing.only):
        return Reason("provider-only", "The request's `provider.only` does not name this deployment.")
    if _listed(deployment, narrowing.ignore):
        return Reason("provider-ignore", "The request's `provider.ignore` names this deployment.")
    if narrowing.data_collection == "deny" and deployment.provider.trains_on_data is not False:
        return Reason(
            "provider-data-collection", "The request denies data collection and this provider may train on data."
        )
    if narrowing.zdr and deployment.provider.zero_retention is not True:
        return Reason("provider-zdr", "The request asks for zero retention and this provider does not promise it.")
    if narrowing.quantizations and deployment.quantization not in narrowing.quantizations:
        return Reason(
            "provider-quantizations", "The request's `provider.quantizations` does not name this deployment's."
        )
    for kind, limit in narrowing.max_price:
        price = deployment.price
        if price is None or (price.input if kind == "prompt" else price.output) > limit:
            return Reason("provider-max-price", "This deployment costs more than the request's `provider.max_price`.")
    return None


def _ordered(
    kept: list[Deployment],
    alias: ModelAlias,
    narrowing: Narrowing | None,
    health: Health,
    draw: Callable[[], float],
) -> list[Deployment]:
    if len(kept) == 1:
        return kept
    strategy: str = alias.strategy
    if narrowing is not None and narrowing.sort is not None:
        strategy = {"price": "lowest_cost", "latency": "lowest_latency", "throughput": "least_busy"}[narrowing.sort]
    ordered = list(kept)
    if strategy == "weighted":
        # Efraimidis and Spirakis, 2006: keys u^(1/w) sort into a weighted order without replacement.
        ordered.sort(key=lambda d: -(max(draw(), 1e-12) ** (1.0 / d.weight)) if d.weight else 1.0)
    elif strategy == "least_busy":
        ordered.sort(key=lambda d: health.condition(d.id).in_flight)
    elif strategy == "lowest_cost":
        ordered.sort(key=lambda d: _price(d))
    elif strategy == "lowest_latency":
        ordered.sort(key=lambda d: health.condition(d.id).latency_s or 0.0)
    if narrowing is not None and narrowing.order:
        position = {name: index for index, name in reversed(list(enumerate(narrowing.order)))}
        ordered.sort(
            key=lambda d: min((position[name] for name in _names(d) if name in position), default=len(position))
        )
    return ordered


def _price(deployment: Deployment) -> Decimal:
    price = deployment.price
    return Decimal("Infinity") if price is None else price.input + price.output
