"""`explain` answers as traffic would be answered."""

from __future__ import annotations

from pathlib import Path

from gateway.config.loader import load
from gateway.explain import explain
from gateway.policy.engine import PolicyEngine
from gateway.policy.source import load as load_policies

CONFIG = """\
admin: {token: an-admin-token-of-decent-length-1}
providers:
  claude: {kind: anthropic, base_url: "http://127.0.0.1:1/v1", region: us}
deployments:
  - {id: native-messages, provider: claude, model: m, context_window: 1000}
models:
  m: {deployments: [native-messages]}
tenants:
  - id: acme
    allow: {providers: ["*"], regions: ["*"], models: ["*"]}
    keys: [{id: k, secret: sk-acme-0123456789abcd}]
"""


def test_a_bridged_deployment_is_explained_as_serving(tmp_path: Path) -> None:
    """Chat reaches a messages-only deployment through the bridge; a prompt too long does not fit."""
    file = tmp_path / "assay.yaml"
    file.write_text(CONFIG, "utf-8")
    snapshot = load(file, {}).snapshot
    assert snapshot is not None
    engine = PolicyEngine(load_policies([]))
    assert explain(snapshot, engine, tenant="acme", model="m").order == ("native-messages",)
    long = explain(snapshot, engine, tenant="acme", model="m", prompt_tokens=1000)
    assert long.order == () and [r.id for r in long.candidates[0].reasons] == ["context-window"]
