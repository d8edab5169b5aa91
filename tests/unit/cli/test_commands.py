"""The command line, run as a user runs it, from an empty folder."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
from scene import Engines, GatewayProcess, chat, config

Start = Callable[[dict[str, Any]], GatewayProcess]


def assay(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gateway", *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=60)


def test_init_check_and_explain_work_on_a_fresh_folder(tmp_path: Path) -> None:
    """Nothing is asked, the key is shown once, keys are private, and the file it wrote is valid."""
    made = assay("init", "gw", cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    key = made.stdout.split("shown once: ")[1].split()[0]
    folder = tmp_path / "gw"
    assert all(file.stat().st_mode & 0o077 == 0 for file in (folder / "assay-keys").iterdir())
    assert key not in (folder / "assay.yaml").read_text()
    assert assay("check", "--config", "gw/assay.yaml", cwd=tmp_path).returncode == 0
    plan = assay(
        "explain", "--config", "gw/assay.yaml", "--tenant", "first", "--model", "gpt-4o", "--json", cwd=tmp_path
    )
    assert json.loads(plan.stdout)["order"] == ["gpt-4o-openai"]
    again = assay("init", "gw", cwd=tmp_path)
    assert again.returncode == 2 and "exists already" in again.stderr


def test_check_prints_problems_and_ends_with_1(tmp_path: Path) -> None:
    """One line a problem on standard error, JSON on request."""
    (tmp_path / "assay.yaml").write_text("admin: {token: short}\nprovders: {}\n")
    found = assay("check", cwd=tmp_path)
    assert found.returncode == 1 and "did you mean `providers`" in found.stderr
    as_json = assay("check", "--json", cwd=tmp_path)
    assert {problem["key"] for problem in json.loads(as_json.stdout)} >= {"provders"}


def test_serve_says_what_is_wrong_in_lines(tmp_path: Path) -> None:
    """No stack: the problems, one line of what to do, exit 1."""
    (tmp_path / "assay.yaml").write_text("admin: {token: short}\n")
    found = assay("serve", cwd=tmp_path)
    assert found.returncode == 1 and "Traceback" not in found.stderr and "24 characters" in found.stderr


def test_explain_names_the_policy_of_every_denial(engines: Engines, start: Start) -> None:
    """The same reasons that traffic gets."""
    engines.add("one")
    engines.add("two")
    gateway = start(config(engines))
    found = assay(
        "explain", "--config", str(gateway.file), "--tenant", "narrow", "--model", "m-two", cwd=gateway.folder
    )
    assert found.returncode == 0 and "provider-not-allowed" in found.stdout and "deny" in found.stdout
    hidden = assay("explain", "--config", str(gateway.file), "--tenant", "narrow", "--model", "no", cwd=gateway.folder)
    assert hidden.stdout.startswith("404")


def test_keys_live_and_die_by_command(engines: Engines, start: Start) -> None:
    """Made and revoked beside a running gateway, which obeys within a second or so; the secret is nowhere again."""
    engines.add("one")
    gateway = start(config(engines))
    place = ("--config", str(gateway.file))
    made = assay("keys", "create", *place, "--tenant", "acme", "--model", "m-one", cwd=gateway.folder)
    id, secret = made.stdout.split()
    client = httpx.Client(base_url=gateway.url, headers={"authorization": f"Bearer {secret}"}, trust_env=False)
    assert client.post("/v1/chat/completions", json=chat("hello", "m-one")).status_code == 200
    assert [card["id"] for card in client.get("/v1/models").json()["data"]] == ["m-one"]
    listed = assay("keys", "list", *place, cwd=gateway.folder)
    assert id in listed.stdout and secret not in listed.stdout
    rotated = assay("keys", "rotate", id, *place, "--overlap-s", "600", cwd=gateway.folder)
    assert rotated.returncode == 0 and len(rotated.stdout.split()) == 2
    assert assay("keys", "revoke", id, *place, cwd=gateway.folder).returncode == 0
    time.sleep(1.1)
    assert client.get("/v1/models").status_code == 401
    assert assay("keys", "revoke", "key_unknown", *place, cwd=gateway.folder).returncode == 1


def test_erased_receipts_still_verify_and_no_longer_open(engines: Engines, start: Start) -> None:
    """`receipts erase` removes the keys of commitments and nothing else."""
    engines.add("one")
    gateway = start(config(engines))
    client = gateway.client()
    body = json.dumps(chat("hello", "m-one")).encode()
    answer = client.post("/v1/chat/completions", content=body, headers={"content-type": "application/json"})
    id = answer.headers["x-assay-receipt"]
    files = {"request": body, "response": answer.content}
    files["keys.json"] = client.get("/.well-known/assay/keys.json").content
    files["receipt.json"] = json.dumps(gateway.receipt(client, id, proven=True)).encode()
    for name, content in files.items():
        (gateway.folder / name).write_bytes(content)
    opening = ("verify", "receipt.json", "--keys", "keys.json", "--request", "request", "--response", "response")
    assert assay(*opening, cwd=gateway.folder).returncode == 0
    erased = assay("receipts", "erase", "--config", str(gateway.file), "--tenant", "acme", cwd=gateway.folder)
    assert erased.returncode == 0 and erased.stdout.split()[0].isdigit()
    (gateway.folder / "receipt.json").write_text(json.dumps(gateway.receipt(client, id, proven=True)))
    assert assay("verify", "receipt.json", "--keys", "keys.json", cwd=gateway.folder).returncode == 0
    refused = assay(*opening, cwd=gateway.folder)
    assert refused.returncode == 1 and "erased" in refused.stderr


def test_every_command_has_help_with_an_example(tmp_path: Path) -> None:
    """`--help` of each command shows how it is called."""
    listing = assay("--help", cwd=tmp_path).stdout
    names = [
        line.split()[0]
        for line in listing.split("Commands:")[1].splitlines()
        if line.startswith("  ") and line[2] != " "
    ]
    assert len(names) > 8
    for name in names:
        text = assay(name, "--help", cwd=tmp_path)
        assert text.returncode == 0 and "Example:" in text.stdout, name
