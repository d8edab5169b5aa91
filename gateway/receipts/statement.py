"""The signed statement about one exchange: an in-toto Statement v1 with the predicate of contract section 6.

It never holds content. Tenant, key, session and a self-hosted host are pseudonyms: HMACs under a tenant key, stable
per tenant, so that an owner can tell his receipts apart and the public log tells nobody anything.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from gateway.exchange import Attempt, Commitment, Effective, Evidence, Exchange
from gateway.receipts.canonical import canonical, clean

STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "urn:assay:receipt:v1"
_NO_EVIDENCE = {"source": "none", "grade": "none"}
_COMMITMENTS = ("request", "response", "upstream_request", "upstream_response")


class Pseudonyms:
    """Names that only their tenant and the operator can connect with whom they stand for."""

    def __init__(self, tenant_key: Callable[[str], bytes]) -> None:
        self._tenant_key = tenant_key
        self._keys: dict[str, bytes] = {}
        self._known: dict[tuple[str, str, str], str] = {}

    def of(self, tenant: str, kind: str, name: str) -> str:
        """The pseudonym of a tenant's own id (`kind` tenant), or of its key, session or host."""
        known = self._known.get((tenant, kind, name))
        if known is not None:
            return known
        key = self._keys.get(tenant)
        if key is None:
            key = self._keys[tenant] = self._tenant_key(tenant)
        digest = hmac.digest(key, f"{kind}\x00{name}".encode("utf-8", "surrogatepass"), "sha256").hex()[:32]
        pseudonym = f"{kind[:1]}_{digest}"
        if len(self._known) > 20_000:
            self._known.clear()
        self._known[(tenant, kind, name)] = pseudonym
        return pseudonym


def rfc3339(unix_s: float) -> str:
    """UTC with milliseconds (RFC 3339)."""
    milliseconds = int(unix_s * 1000)
    return f"{_second(milliseconds // 1000)}.{milliseconds % 1000:03d}Z"


@lru_cache(maxsize=64)
def _second(unix_s: int) -> str:
    """Requests of one second share their date, which is dear to format."""
    return datetime.fromtimestamp(unix_s, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def build(exchange: Exchange, pseudonyms: Pseudonyms, ended_mono: float, self_hosted: frozenset[str]) -> bytes:
    """The canonical statement bytes. `self_hosted` are the deployments whose host stays a pseudonym."""
    commitments = {name: _digest(exchange.commitments.get(name)) for name in _COMMITMENTS}
    digest = hashlib.sha256(canonical(commitments)).hexdigest()
    predicate = _predicate(exchange, pseudonyms, commitments, ended_mono, self_hosted)
    _add_optional(predicate, exchange)
    statement = {
        "_type": STATEMENT_TYPE,
        "subject": [{"name": exchange.receipt_id, "digest": {"sha256": digest}}],
        "predicateType": PREDICATE_TYPE,
        "predicate": predicate,
    }
    return canonical(statement)


def _predicate(
    exchange: Exchange,
    pseudonyms: Pseudonyms,
    commitments: dict[str, str | None],
    ended_mono: float,
    self_hosted: frozenset[str],
) -> dict[str, Any]:
    assert exchange.principal is not None
    tenant = exchange.principal.tenant
    request, decision = exchange.request, exchange.decision
    total = round((ended_mono - exchange.received_mono) * 1000)
    return {
        "id": exchange.receipt_id,
        "time": rfc3339(exchange.received),
        "tenant": pseudonyms.of(tenant, "tenant", tenant),
        "key": pseudonyms.of(tenant, "key", exchange.principal.key),
        "endpoint": exchange.endpoint.value,
        "stream": exchange.stream,
        "client_request_id": clean(exchange.client_request_id),
        "session": pseudonyms.of(tenant, "session", exchange.session) if exchange.session else None,
        "requested": {
            "model": clean(exchange.requested_model),
            "workload": exchange.workload,
            "parameters_digest": request.parameters_digest if request else None,
        },
        "policy": {
            "digest": decision.policy_digest if decision else None,
            "version": decision.policy_version if decision else None,
            "decision": _decision(exchange),
            "determining": list(decision.determining) if decision else [],
        },
        "candidates": _candidates(exchange),
        "attempts": [_attempt(a, pseudonyms, tenant, a.deployment in self_hosted) for a in exchange.attempts],
        "effective": _effective(exchange.effective),
        "substituted": exchange.substituted,
        "tokens": _tokens(exchange),
        "cost_usd": None if exchange.cost_usd is None else f"{exchange.cost_usd:f}",
        "commitments": commitments,
        "checks": [
            {
                "name": check.name,
                "verdict": check.verdict,
                "detail": clean(check.detail),
                **_check_evidence(check.evidence),
            }
            for check in exchange.checks
        ],
        "repairs": list(exchange.repairs),
        "integrity": exchange.integrity,
        "outcome": exchange.outcome,
        "timing_ms": {
            "queue": exchange.queue_ms,
            "upstream_first_byte": exchange.first_byte_ms,
            "total": total,
            "gateway": max(total - round(exchange.upstream_ms), 0),
        },
    }


def _add_optional(predicate: dict[str, Any], exchange: Exchange) -> None:
    """Members that are there only when there is something to say."""
    plan = exchange.plan
    if exchange.error is not None:
        predicate["error"] = {
            "status": exchange.error.status,
            "type": exchange.error.type,
            "code": clean(exchange.error.code),
        }
    if exchange.notes:
        predicate["notes"] = list(exchange.notes)
    if exchange.cache is not None:
        predicate["cache"] = exchange.cache
    if plan is not None and plan.first is not None:
        predicate["first_candidate"] = plan.first


def _digest(commitment: Commitment | None) -> str | None:
    return None if commitment is None else commitment.digest


def _decision(exchange: Exchange) -> str:
    decision = exchange.decision
    if decision is None:
        return "none"
    if not decision.visible:
        return "not_visible"
    return "permit" if decision.permitted else "deny"


def _candidates(exchange: Exchange) -> list[dict[str, Any]]:
    """Every candidate with its reasons: policy's, and routing's for those that were dropped later."""
    if exchange.decision is None:
        return []
    dropped = {c.deployment: c for c in exchange.plan.dropped} if exchange.plan else {}
    result = []
    for candidate in exchange.decision.candidates:
        shown = dropped.get(candidate.deployment, candidate)
        reasons = [reason.id for reason in shown.reasons]
        result.append({"deployment": candidate.deployment, "permitted": shown.permitted, "reasons": reasons})
    return result


def _attempt(attempt: Attempt, pseudonyms: Pseudonyms, tenant: str, self_hosted: bool) -> dict[str, Any]:
    return {
        "deployment": attempt.deployment,
        "provider": attempt.provider,
        "region": attempt.region,
        "host": pseudonyms.of(tenant, "host", attempt.host) if self_hosted else clean(attempt.host),
        "tls_spki": attempt.tls_spki,
        "model": clean(attempt.model),
        "started": rfc3339(attempt.started),
        "ended": rfc3339(attempt.ended),
        "status": attempt.status,
        "error": attempt.error,
        "sent_id": attempt.sent_id,
        "received_id": clean(attempt.received_id),
    }


def _effective(effective: Effective | None) -> dict[str, Any]:
    if effective is None:
        names = ("deployment", "provider", "region", "model", "fingerprint")
        return {**dict.fromkeys(names), "evidence": {}}
    fields = {
        "provider": effective.provider,
        "region": effective.region,
        "model": effective.model,
        "fingerprint": effective.fingerprint,
    }
    result: dict[str, Any] = {name: clean(evidence.value) for name, evidence in fields.items()}
    result["deployment"] = effective.deployment
    result["evidence"] = {name: _evidence(evidence) for name, evidence in fields.items()}
    if effective.upstream_request_id:
        result["upstream_request_id"] = clean(effective.upstream_request_id)
    if effective.response_id:
        result["response_id"] = clean(effective.response_id)
    if effective.extra:
        result["extra"] = {name: clean(value) for name, value in effective.extra}
    return result


def _evidence(evidence: Evidence) -> dict[str, str]:
    return {"source": evidence.source, "grade": evidence.grade.name} if evidence.value else _NO_EVIDENCE


def _tokens(exchange: Exchange) -> dict[str, Any]:
    count, usage = exchange.count, exchange.usage
    counted = {"prompt": count.prompt if count else None, "method": count.method if count else "unknown"}
    reported = None
    residual = None
    if usage is not None and not exchange.usage_estimated:
        reported = {
            "prompt": usage.prompt,
            "cached": usage.cached,
            "completion": usage.completion,
            "reasoning": usage.reasoning,
        }
        if count is not None and count.prompt is not None:
            residual = usage.prompt - count.prompt
    tokens: dict[str, Any] = {"counted": counted, "reported": reported, "residual": residual}
    if usage is not None and exchange.usage_estimated:
        tokens["delivered_estimate"] = usage.completion
    return tokens


def _check_evidence(evidence: tuple[tuple[str, str], ...]) -> dict[str, Any]:
    return {"evidence": {name: clean(value) for name, value in evidence}} if evidence else {}
