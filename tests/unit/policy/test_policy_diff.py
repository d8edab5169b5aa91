"""What a reload changes, what each shipped policy is for, and what `*` matches."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from gateway.config.loader import load
from gateway.config.snapshot import Snapshot
from gateway.exchange import Endpoint, Principal
from gateway.policy.diff import diff
from gateway.policy.engine import PolicyEngine
from gateway.policy.facts import patterns
from gateway.policy.source import load as load_policies
from gateway.policy.source import shipped

CONFIG = """\
admin: {token: an-admin-token-of-decent-length-1}
providers:
  one: {kind: openai-compatible, base_url: "http://127.0.0.1:1/v1", region: eu}
  two: {kind: openai-compatible, base_url: "http://127.0.0.1:2/v1", region: us}
deployments:
  - {id: d1, provider: one, model: m}
  - {id: d2, provider: two, model: m}
models:
  both: {deployments: [d1, d2], fallback: any}
tenants:
  - id: acme
    allow: {providers: ["*"], regions: ["*"], models: ["*"]}
    keys: [{id: k, secret: sk-acme-0123456789abcd}]
"""


def snapshot_of(tmp_path: Path, text: str = CONFIG) -> Snapshot:
    file = tmp_path / "assay.yaml"
    file.write_text(text, "utf-8")
    loaded = load(file, {})
    assert loaded.snapshot is not None, loaded.problems
    return loaded.snapshot


def test_the_same_on_both_sides_changes_nothing(tmp_path: Path) -> None:
    """A reload that changes no decision reports none."""
    snapshot = snapshot_of(tmp_path)
    assert diff(PolicyEngine(load_policies([])), snapshot, PolicyEngine(load_policies([])), snapshot) == []


def test_a_new_forbid_shows_who_loses_what(tmp_path: Path) -> None:
    """Adding the EU policy takes the deployment elsewhere away, and the change names the policy."""
    snapshot = snapshot_of(tmp_path)
    stricter = PolicyEngine(load_policies([shipped() / "examples" / "eu_only.cedar"]))
    (change,) = diff(PolicyEngine(load_policies([])), snapshot, stricter, snapshot)
    assert (change.tenant, change.model, change.deployment) == ("acme", "both", "d2")
    assert (change.was_permitted, change.is_permitted) == (True, False)
    assert [reason.id for reason in change.now] == ["eu-only"]


def test_a_tenant_that_is_new_gains_and_one_that_left_loses(tmp_path: Path) -> None:
    """Both directions are reported, so that nobody gains access unseen."""
    snapshot = snapshot_of(tmp_path)
    nobody = replace(snapshot, tenants={})
    engine = PolicyEngine(load_policies([]))
    gained = diff(engine, nobody, PolicyEngine(load_policies([])), snapshot)
    lost = diff(engine, snapshot, PolicyEngine(load_policies([])), nobody)
    assert [(c.deployment, c.is_permitted) for c in gained] == [("d1", True), ("d2", True)]
    assert [(c.deployment, c.is_permitted) for c in lost] == [("d1", False), ("d2", False)]


@pytest.mark.parametrize("name", ["", "a//b", "a/b/c/d/e/f/g/h"])
def test_a_star_matches_every_name(name: str) -> None:
    """`*` is all, also for names with empty or very many segments."""
    assert set(patterns(name)) == {name, "*"}


@pytest.mark.parametrize("rule", [p.id for p in load_policies([]).rules if p.effect == "permit"])
def test_without_a_permit_the_model_cannot_be_used(rule: str, tmp_path: Path) -> None:
    """Each shipped permit is needed: without it nothing is permitted, so access hangs on no single other rule."""
    kept = tmp_path / "kept.cedar"
    text = "\n".join(file.read_text("utf-8") for file in sorted((shipped() / "default").glob("*.cedar")))
    without = re.sub(rf'@id\("{rule}"\).*?;\n', "", text, flags=re.DOTALL)
    assert without != text
    kept.write_text(without, "utf-8")
    snapshot = snapshot_of(tmp_path)
    engine = PolicyEngine(load_policies([kept], default_policies=False))
    decision = engine.decide(snapshot, Principal("acme", "k"), snapshot.models["both"], None, Endpoint.chat)
    assert decision.permitted == ()
