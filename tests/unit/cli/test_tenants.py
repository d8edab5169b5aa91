"""Tenants made and removed beside a running gateway."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import httpx
from scene import ADMIN, Engines, GatewayProcess, chat, config

Start = Callable[[dict[str, Any]], GatewayProcess]


def assay(gateway: GatewayProcess, group: str, action: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gateway", group, action, "--config", str(gateway.file), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def test_a_tenant_is_served_within_seconds_and_gone_when_removed(engines: Engines, start: Start) -> None:
    """Made by command with its own allow-list, given a key, served, removed: the key is dead and the receipts stay."""
    engines.add("one")
    engines.add("two")
    gateway = start(config(engines))
    lists = ("--allow-model", "*", "--allow-provider", "one", "--allow-region", "eu")
    assert assay(gateway, "tenants", "create", "late", *lists).returncode == 0
    secret = assay(gateway, "keys", "create", "--tenant", "late").stdout.split()[1]
    time.sleep(1.2)
    client = httpx.Client(base_url=gateway.url, headers={"authorization": f"Bearer {secret}"}, trust_env=False)
    answer = client.post("/v1/chat/completions", json=chat("hello", "m-one"))
    assert answer.status_code == 200
    assert client.post("/v1/chat/completions", json=chat("hello", "m-two")).status_code == 403
    assert "late" in assay(gateway, "tenants", "list").stdout
    assert assay(gateway, "tenants", "create", "late", *lists).returncode == 1
    assert "1 key(s) revoked" in assay(gateway, "tenants", "remove", "late").stdout
    time.sleep(1.2)
    assert client.get("/v1/models").status_code == 401
    shown = assay(gateway, "receipts", "show", answer.headers["x-assay-receipt"])
    assert shown.returncode == 0 and '"outcome": "completed"' in shown.stdout


def test_tenants_of_the_file_are_not_changed_by_api(engines: Engines, start: Start) -> None:
    """409 managed_by_config; a bad block is a 400 that names the place; a good one is made and removed."""
    engines.add("one")
    gateway = start(config(engines))
    admin = httpx.Client(base_url=gateway.url, headers={"authorization": f"Bearer {ADMIN}"}, trust_env=False)
    refused = admin.delete("/admin/api/v1/tenants/acme")
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "managed_by_config")
    bad = admin.post("/admin/api/v1/tenants", json={"id": "x", "settings": {"allow": {"models": ["a*"]}}})
    assert bad.status_code == 400 and "allow.models" in bad.json()["error"]["message"]
    assert admin.post("/admin/api/v1/tenants", json={"id": "x", "settings": {"keys": []}}).status_code == 400
    assert admin.post("/admin/api/v1/tenants", json={"id": "x", "settings": {}}).status_code == 201
    assert admin.post("/admin/api/v1/tenants", json={"id": "x"}).status_code == 409
    assert admin.delete("/admin/api/v1/tenants/x").json()["removed"] is True
