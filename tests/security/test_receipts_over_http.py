"""Receipts from outside: owners, strangers, administrators; what the command line does with them."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
from scene import ADMIN, Engines, GatewayProcess, chat, config

from gateway.receipts import verifier

Start = Callable[[dict[str, Any]], GatewayProcess]


def assay(gateway: GatewayProcess, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gateway", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=gateway.folder)


def call(gateway: GatewayProcess, tenant: str, text: str = "hello") -> str:
    with gateway.client(tenant) as client:
        answer = client.post(
            "/v1/chat/completions", json=chat(text, "m-a"), headers={"x-assay-session": f"of-{tenant}"}
        )
        assert answer.status_code == 200, answer.text
        return str(answer.headers["x-assay-receipt"])


def test_receipts_stay_with_their_tenant(engines: Engines, start: Start) -> None:
    """By id, in lists, by session, with openings, and as the page after a stranger's receipt."""
    engines.add("a")
    gateway = start(config(engines))
    mine, theirs = call(gateway, "acme"), call(gateway, "beta")
    with gateway.client("acme") as client:
        assert client.get(f"/v1/receipts/{mine}").status_code == 200
        for path in (f"/v1/receipts/{theirs}", f"/v1/receipts/{theirs}?openings=true", f"/receipts/{theirs}/"):
            assert client.get(path).status_code == 404
        for query in ("", "?session=of-beta", "?tenant=beta", f"?after={theirs}"):
            listed = client.get(f"/v1/receipts{query}").json()
            assert theirs not in json.dumps(listed)
    assert httpx.get(f"{gateway.url}/v1/receipts/{mine}", trust_env=False).status_code == 401
    assert httpx.get(f"{gateway.url}/admin/api/v1/receipts", trust_env=False).status_code == 401


def test_administrators_search_and_the_bill_adds_up(engines: Engines, start: Start) -> None:
    """Filters over every tenant; usage by tenant, deployment and model; no keys that open commitments."""
    engines.add("a")
    gateway = start(config(engines))
    ids = {tenant: call(gateway, tenant) for tenant in ("acme", "beta")}
    with httpx.Client(base_url=gateway.url, headers={"authorization": f"Bearer {ADMIN}"}, trust_env=False) as admin:
        found = admin.get("/admin/api/v1/receipts?deployment=d-a&outcome=completed").json()["data"]
        assert {item["id"] for item in found} == set(ids.values())
        only = admin.get("/admin/api/v1/receipts?tenant=beta").json()["data"]
        assert [item["names"]["tenant"] for item in only] == ["beta"]
        one = admin.get(f"/admin/api/v1/receipts/{ids['acme']}?openings=true").json()
        assert "openings" not in one
        rows = admin.get("/admin/api/v1/usage").json()["data"]
        assert {row["tenant"]: row["requests"] for row in rows} == {"acme": 1, "beta": 1}
        assert all(row["cost_nano_usd"] > 0 and row["unpriced"] == 0 for row in rows)
        assert admin.get("/admin/api/v1/usage?since_ms=5&until_ms=1").status_code == 400


def test_erased_receipts_verify_and_open_no_more_and_the_export_proves_itself(
    engines: Engines, start: Start, tmp_path: Path
) -> None:
    """`receipts export`, `receipts erase`, `log audit`, `signing rotate` on a running gateway."""
    engines.add("a")
    gateway = start(config(engines))
    id_ = call(gateway, "acme")
    with gateway.client("acme") as client:
        before = gateway.receipt(client, id_, proven=True)
        assert set(before["openings"]) >= {"request", "response"}
        keys = client.get("/.well-known/assay/keys.json").json()
        assert assay(gateway, "receipts", "erase", "--tenant", "acme").stdout.startswith("1 receipt")
        after = gateway.receipt(client, id_, proven=True)
        assert after["openings"] == {} and verifier.verify(after, keys).proven
        lines = assay(gateway, "receipts", "export", "--tenant", "acme").stdout.splitlines()
        assert [json.loads(line)["id"] for line in lines] == [id_]
        assert verifier.verify(json.loads(lines[0]), keys).proven
        assert assay(gateway, "signing", "rotate", "--use", "receipt").returncode == 0
        audit = assay(gateway, "log", "audit", "--from", "0", "--json")
        assert audit.returncode == 0 and json.loads(audit.stdout)["problems"] == []
        fresh = ""
        for _ in range(60):
            fresh = call(gateway, "acme")
            kid = gateway.receipt(client, fresh)["envelope"]["signatures"][0]["keyid"]
            if kid != before["envelope"]["signatures"][0]["keyid"]:
                break
        document = gateway.receipt(client, fresh, proven=True)
        published = client.get("/.well-known/assay/keys.json").json()
        assert verifier.verify(document, published).proven and verifier.verify(before, published).proven
        assert kid not in json.dumps(keys)


def test_background_durability_answers_and_records(engines: Engines, start: Start) -> None:
    """Receipts pass through the journal; an ordered stop leaves none behind."""
    engines.add("a")
    gateway = start(config(engines, receipts={"durability": "background"}))
    ids = [call(gateway, "acme") for _ in range(20)]
    assert gateway.stop() == 0
    assert list((gateway.folder / "assay-journal").iterdir()) == []
    gateway.start()
    with gateway.client("acme") as client:
        listed = {item["id"] for item in client.get("/v1/receipts?limit=100").json()["data"]}
    assert set(ids) <= listed


def test_a_tenants_witness_cosigns_what_clients_are_shown(engines: Engines, start: Start, tmp_path: Path) -> None:
    """`assay witness serve` beside a gateway that asks for it; verification with a policy; the static export."""
    engines.add("a")
    gateway = start(config(engines))
    rows = json.loads(assay(gateway, "signing", "list", "--json").stdout)
    vkey = next(row["vkey"] for row in rows if row["use"] == "log")
    command = [
        sys.executable,
        "-m",
        "gateway",
        "witness",
        "serve",
        "--name",
        "tenant.test/w",
        "--log",
        vkey,
        "--port",
        "0",
    ]
    witness = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    try:
        assert witness.stdout is not None
        key = witness.stdout.readline().split()[1]
        port = witness.stdout.readline().rsplit(":", 1)[1].strip()
        gateway.stop()
        settings = {"name": "tenant.test/w", "url": f"http://127.0.0.1:{port}", "public_key": key}
        gateway.config["receipts"] = {"witnesses": [settings], "witness_quorum": 1}
        gateway.write()
        gateway.start()
        id_ = call(gateway, "acme")
        policy = f"witness w {key}\nquorum w\n"
        with gateway.client("acme") as client:
            keys = client.get("/.well-known/assay/keys.json").json()
            for _ in range(100):
                document = gateway.receipt(client, id_, proven=True)
                if "tenant.test/w" in document["checkpoint"]:
                    break
                time.sleep(0.1)
            proven = verifier.verify(document, keys, policy=policy).proven
            assert any("witnesses w saw" in line for line in proven)
            shown = client.get("/log/checkpoint").text
        assert "tenant.test/w" in shown
        out = tmp_path / "static"
        assert assay(gateway, "log", "export", str(out)).returncode == 0
        size = int((out / "checkpoint").read_text().split("\n")[1])
        assert (out / "tile" / "entries" / f"000.p/{size}").stat().st_size == size * 34
    finally:
        witness.terminate()
        witness.wait(10)
