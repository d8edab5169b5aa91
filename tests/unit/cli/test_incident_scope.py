"""Which requests were affected: those, all of them, and no others."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from scene import Engines, GatewayProcess, chat, config

from gateway.simulator.engine import Faults

Start = Callable[[dict[str, Any]], GatewayProcess]


def scope(gateway: GatewayProcess, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gateway", "incident", "scope", "--config", str(gateway.file), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def test_the_affected_requests_are_exactly_the_long_ones_of_that_deployment(engines: Engines, start: Start) -> None:
    """Against the simulated engine's ground truth: none missed, none too many, by tenant."""
    engines.add("leaky", Faults(placeholder_handoff=True), context_window=4000, pool_tokens=300)
    engines.add("sound")
    settings = config(engines)
    settings["integrity"]["on_violation"] = "flag"
    gateway = start(settings)
    truth = set()
    for number in range(12):
        tenant = ("acme", "beta")[number % 2]
        long = number % 3 == 0
        text = " ".join(f"w{n}" for n in range(600 if long else 100))
        for model in ("m-leaky", "m-sound"):
            answer = gateway.client(tenant).post("/v1/chat/completions", json=chat(text, model))
            assert answer.status_code == 200, answer.text
            if long and model == "m-leaky":
                assert answer.headers["x-assay-integrity"] == "flagged"
                truth.add((tenant, answer.headers["x-assay-receipt"]))
    window = ("--deployment", "d-leaky", "--from", "2020-01-01", "--to", "2100-01-01")
    everything = json.loads(scope(gateway, *window, "--format", "json").stdout)["affected"]
    assert len(everything) == 12
    flagged = {(item["tenant"], item["receipt"]) for item in everything if item["integrity"] == "flagged"}
    assert flagged == truth
    own = json.loads(scope(gateway, *window, "--tenant", "acme", "--format", "json").stdout)["affected"]
    assert {item["tenant"] for item in own} == {"acme"} and len(own) == 6
    assert (
        json.loads(
            scope(gateway, *window[:2], "--from", "2020-01-01", "--to", "2020-01-02", "--format", "json").stdout
        )["affected"]
        == []
    )
    table = scope(gateway, *window).stdout
    assert "acme: 6 request(s)" in table and "12 request(s) in all" in table
    assert len(scope(gateway, *window, "--format", "csv").stdout.splitlines()) == 13
    assert scope(gateway, "--deployment", "d", "--from", "soon", "--to", "later").returncode == 2
