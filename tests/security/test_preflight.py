"""An engine that cannot hold what it promises gets no traffic, and neither does one that nobody measured."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from scene import ADMIN, Engines, GatewayProcess, chat, config, deployment, provider

from gateway.providers.preflight import pool_tokens

Start = Callable[[dict[str, Any]], GatewayProcess]


def settings(engines: Engines, mode: str = "required") -> dict[str, Any]:
    made = config(engines, integrity={"preflight": mode, "canaries": {"enabled": False}})
    for name, server in engines.servers.items():
        made["providers"][name] = provider(server, kind="vllm")
    made["deployments"] = [
        deployment(f"d-{n}", n, context_window=s.engine.context_window) for n, s in engines.servers.items()
    ]
    return made


def until(client: httpx.Client, model: str, status: int) -> httpx.Response:
    deadline = time.monotonic() + 8
    while True:
        answer = client.post("/v1/chat/completions", json=chat("hello", model))
        if answer.status_code == status or time.monotonic() > deadline:
            return answer
        time.sleep(0.1)


def test_the_gap_of_2026_is_found_before_any_traffic(engines: Engines, start: Start) -> None:
    """681,280 tokens of pool under a window of 1,048,576: nothing is sent, and the reason is said."""
    small = engines.add("small", context_window=1_048_576, pool_tokens=681_280)
    engines.add("sound", context_window=4096, pool_tokens=8192)
    gateway = start(settings(engines))
    client = gateway.client()
    assert until(client, "m-sound", 200).status_code == 200
    answer = client.post("/v1/chat/completions", json=chat("hello", "m-small"))
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (503, "no_healthy_deployment")
    assert error["reasons"] == ["preflight-failed"]
    assert small.engine.history == []
    gateway.receipt(client, answer.headers["x-assay-receipt"])


def test_an_engine_that_was_not_measured_gets_no_traffic(engines: Engines, start: Start) -> None:
    """No metrics, no pool, no traffic; measured mode only measures."""
    server = engines.add("one", context_window=4096)
    made = settings(engines)
    made["providers"]["one"]["base_url"] = "http://127.0.0.1:9/v1"
    gateway = start(made)
    assert until(gateway.client(), "m-one", 503).json()["error"]["code"] == "no_healthy_deployment"
    made = settings(engines, "measured")
    server.engine.pool_tokens = 10
    assert until(start(made).client(), "m-one", 200).status_code == 200


@pytest.mark.parametrize(
    ("metrics", "tokens"),
    [
        ('vllm:cache_config_info{block_size="16",kv_cache_size_tokens="65536",engine="0"} 1.0\n', 65536),
        (
            'vllm:cache_config_info{kv_cache_size_tokens="900",engine="0"} 1.0\n'
            'vllm:cache_config_info{kv_cache_size_tokens="700",engine="1"} 1.0\n',
            700,
        ),
        ('vllm:cache_config_info{block_size="16",num_gpu_blocks="101"} 1.0\n', 1600),
        ('sglang:max_total_num_tokens{engine_type="unified"} 284928.0\nsglang:context_len 1048576\n', 284928),
        ("nothing of the kind\n", None),
    ],
)
def test_pools_are_read_as_the_engines_say_them(metrics: str, tokens: int | None) -> None:
    """The smallest worker counts, and one block is reserved where only blocks are told."""
    assert pool_tokens(metrics) == tokens


def test_quarantine_outlives_a_restart(engines: Engines, start: Start) -> None:
    """A restart releases nobody."""
    engines.add("one")
    gateway = start(config(engines))
    admin = {"authorization": f"Bearer {ADMIN}"}
    url = f"{gateway.url}/admin/api/v1/deployments/d-one/quarantine"
    assert httpx.post(url, json={"reason": "leak"}, headers=admin, trust_env=False).status_code == 200
    gateway.kill()
    gateway.start()
    answer = gateway.client().post("/v1/chat/completions", json=chat("hello", "m-one"))
    assert answer.json()["error"]["code"] == "deployment_quarantined"


def test_a_second_process_on_one_database_refuses_to_start(engines: Engines, start: Start) -> None:
    """Limits would hold for each of them alone; the first goes on, and after its end the next may start."""
    engines.add("one")
    gateway = start(config(engines))
    command = [sys.executable, "-m", "gateway", "serve", "--config", str(gateway.file), "--port", "0"]
    second = subprocess.run(command, capture_output=True, text=True, timeout=30)
    assert second.returncode == 1 and "another gateway process" in second.stderr
    assert gateway.client().get("/v1/models").status_code == 200
    gateway.kill()
    gateway.start()
