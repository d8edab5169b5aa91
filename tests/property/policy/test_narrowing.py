"""No request field ever widens the set of deployments that policy permits."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.config.loader import load
from gateway.exchange import Endpoint, Narrowing, Principal
from gateway.policy.engine import PolicyEngine
from gateway.policy.source import load as load_policies
from gateway.routing.health import Health
from gateway.routing.plan import plan

CONFIG = """\
admin: {token: an-admin-token-of-decent-length-1}
providers:
  one: {kind: openai-compatible, base_url: "http://127.0.0.1:1/v1", region: eu, zero_retention: true}
  two: {kind: openai-compatible, base_url: "http://127.0.0.1:2/v1", region: us/east, zero_retention: false}
  three: {kind: litellm, region: eu}
deployments:
  - {id: d1, provider: one, model: m}
  - {id: d2, provider: two, model: m}
  - {id: d3, provider: three, model: n}
models:
  all: {deployments: [d1, d2, d3], fallback: any}
  one: {deployments: [d1], fallback: deny}
tenants:
  - id: strict
    allow: {providers: [one, two], regions: [eu], models: [all]}
    require: {zero_retention: true}
    workloads:
      care: {providers: [one], fallback: deny}
    keys: [{id: k, secret: sk-strict-0123456789ab}]
  - id: free
    allow: {providers: ["*"], regions: ["*"], models: ["*"]}
    keys: [{id: k2, secret: sk-free-0123456789abcd}]
"""


def load_scene(tmp_path_factory: object = None):  # type: ignore[no-untyped-def]
    import tempfile

    file = Path(tempfile.mkdtemp()) / "assay.yaml"
    file.write_text(CONFIG, "utf-8")
    loaded = load(file, {})
    assert loaded.problems == [], loaded.problems
    return loaded.snapshot, PolicyEngine(load_policies([]))


SNAPSHOT, ENGINE = load_scene()
NAMES = st.sampled_from(["one", "two", "three", "d1", "d2", "d3", "nobody", "*"])
NARROWING = st.builds(
    Narrowing,
    order=st.lists(NAMES, max_size=4).map(tuple),
    only=st.none() | st.lists(NAMES, max_size=4).map(tuple),
    ignore=st.lists(NAMES, max_size=3).map(tuple),
    allow_fallbacks=st.booleans(),
    data_collection=st.sampled_from([None, "allow", "deny"]),
    zdr=st.booleans(),
    sort=st.sampled_from([None, "price", "latency", "throughput"]),
)


@settings(max_examples=300, deadline=None)
@given(
    tenant=st.sampled_from(["strict", "free"]),
    model=st.sampled_from(["all", "one"]),
    workload=st.sampled_from([None, "care"]),
    narrowing=st.none() | NARROWING,
)
def test_nothing_a_request_says_widens_the_permitted_set(
    tenant: str, model: str, workload: str | None, narrowing: Narrowing | None
) -> None:
    """Whatever workload and provider field say, the plan is within what the plain request is permitted."""
    if tenant == "free":
        workload = None
    principal = Principal(tenant, "k")
    alias = SNAPSHOT.models[model]
    plain = ENGINE.decide(SNAPSHOT, principal, alias, None, Endpoint.chat)
    decision = ENGINE.decide(SNAPSHOT, principal, alias, workload, Endpoint.chat)
    made = plan(SNAPSHOT, decision, alias, None, narrowing, Health())
    assert set(made.order) <= set(decision.permitted) <= set(plain.permitted)


def test_the_strict_tenant_reaches_one_deployment_only() -> None:
    """Region, retention and provider lists hold together."""
    decision = ENGINE.decide(SNAPSHOT, Principal("strict", "k"), SNAPSHOT.models["all"], None, Endpoint.chat)
    assert decision.permitted == ("d1",)
    reasons = {c.deployment: [r.id for r in c.reasons] for c in decision.candidates}
    assert {"region-not-allowed", "zero-retention-required"} <= set(reasons["d2"])
    assert "provider-not-allowed" in reasons["d3"]


def test_an_unknown_model_and_an_invisible_one_look_the_same() -> None:
    """404 tells nobody what exists for others."""
    unknown = ENGINE.decide(SNAPSHOT, Principal("strict", "k"), None, None, Endpoint.chat)
    hidden = ENGINE.decide(SNAPSHOT, Principal("strict", "k"), SNAPSHOT.models["one"], None, Endpoint.chat)
    assert not unknown.visible and not hidden.visible and unknown.candidates == hidden.candidates == ()
