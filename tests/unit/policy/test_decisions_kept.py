"""Decisions are kept for one UTC day and one configuration, no longer."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from pathlib import Path

from gateway.config.loader import load
from gateway.exchange import Endpoint, Principal
from gateway.policy.engine import PolicyEngine
from gateway.policy.source import load as load_policies

CONFIG = """\
admin: {token: an-admin-token-of-decent-length-1}
providers:
  one: {kind: openai-compatible, base_url: "http://127.0.0.1:1/v1", region: eu, assurances: {reviewed: "2026-01-01"}}
deployments:
  - {id: d1, provider: one, model: m}
models:
  m: {deployments: [d1]}
tenants:
  - id: acme
    allow: {providers: ["*"], regions: ["*"], models: ["*"]}
    require: {assurances: {reviewed_within_days: 30}}
    keys: [{id: k, secret: sk-acme-0123456789abcd}]
"""


def test_a_kept_decision_ends_with_its_day_and_its_configuration(tmp_path: Path) -> None:
    """The 30th day permits, the 31st denies; a swapped configuration is decided anew; key models narrow."""
    file = tmp_path / "assay.yaml"
    file.write_text(CONFIG, "utf-8")
    snapshot = load(file, {}).snapshot
    assert snapshot is not None
    engine, who, alias = PolicyEngine(load_policies([])), Principal("acme", "k"), snapshot.models["m"]
    last, after = date(2026, 1, 31), date(2026, 2, 1)
    kept = engine.decide(snapshot, who, alias, None, Endpoint.chat, last)
    assert kept.permitted == ("d1",)
    assert engine.decide(snapshot, who, alias, None, Endpoint.chat, last) is kept
    assert engine.decide(snapshot, who, alias, None, Endpoint.chat, after).permitted == ()
    gone = replace(snapshot, version=snapshot.version + 1, tenants={})
    assert not engine.decide(gone, who, alias, None, Endpoint.chat, last).visible
    narrowed = Principal("acme", "k", models=("other",))
    assert not engine.decide(snapshot, narrowed, alias, None, Endpoint.chat, last).visible
