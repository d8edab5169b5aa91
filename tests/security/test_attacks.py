"""A hostile tenant and a hostile upstream, against the running gateway."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from scene import ADMIN, KEYS, Engines, GatewayProcess, chat, config, deployment, provider

from gateway.simulator.engine import Faults

Start = Callable[[dict[str, Any]], GatewayProcess]


def error(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


def test_the_leak_of_2026_is_withheld_at_its_first_occurrence(engines: Engines, start: Start) -> None:
    """A prompt beyond the pool, a placeholder, foreign pages, HTTP 200: not a word of it gets out, stream or not."""
    leaky = engines.add("leaky", Faults(placeholder_handoff=True), context_window=4000, pool_tokens=600)
    gateway = start(config(engines))
    victim, other = gateway.client("acme"), gateway.client("beta")
    for stream in (False, True):
        for _ in range(30):
            victim.post("/v1/chat/completions", json=chat("account of Hartwell settled " * 40, "m-leaky"))
        long = " ".join(f"leaf{n}" for n in range(900))
        answer = other.post("/v1/chat/completions", json=chat(long, "m-leaky", stream=stream))
        assert leaky.engine.history[-1].leaked and "Hartwell" in leaky.engine.history[-1].answer
        if not stream:
            assert error(answer) == (502, "integrity_violation")
            assert "Hartwell" not in answer.text
        receipt = gateway.receipt(other, answer.headers["x-assay-receipt"])
        assert b"Hartwell" not in json.dumps(receipt).encode()
        if stream:
            assert b"[DONE]" not in answer.content and b"integrity_violation" in answer.content


def test_an_allow_list_holds_through_fallback_and_retry(engines: Engines, start: Start) -> None:
    """The permitted deployment is down; the other one is up and not permitted: nobody asks it."""
    engines.add("one", Faults(fail_status=500))
    forbidden = engines.add("two")
    settings = config(engines)
    settings["models"]["both"] = {"deployments": ["d-one", "d-two"], "fallback": "any"}
    gateway = start(settings)
    answer = gateway.client("narrow").post("/v1/chat/completions", json=chat("hello", "both"))
    assert answer.status_code == 502
    assert forbidden.engine.history == [] and forbidden.seen_authorization == set()
    body = chat("hello", "both", provider={"order": ["two"], "only": ["two"], "allow_fallbacks": True})
    assert gateway.client("narrow").post("/v1/chat/completions", json=body).status_code == 403
    assert forbidden.seen_authorization == set()


def test_a_credential_reaches_only_its_own_provider(engines: Engines, start: Start) -> None:
    """Each listener has seen exactly its own credential."""
    one, two = engines.add("one"), engines.add("two")
    gateway = start(config(engines))
    for model in ("m-one", "m-two"):
        assert gateway.client().post("/v1/chat/completions", json=chat("hello", model)).status_code == 200
    assert one.seen_authorization == {"Bearer credential-of-one"}
    assert two.seen_authorization == {"Bearer credential-of-two"}


def test_a_substituted_model_is_withheld_in_streams_too(engines: Engines, start: Start) -> None:
    """Another model under the same name never reaches a client."""
    engines.add("one", Faults(substitute_model="m1-mini"))
    gateway = start(config(engines))
    for stream in (False, True):
        answer = gateway.client().post("/v1/chat/completions", json=chat("hello", "m-one", stream=stream))
        assert error(answer) == (502, "model_substituted")


def test_dated_snapshots_are_accepted_and_lookalikes_are_not(engines: Engines, start: Start) -> None:
    """model-YYYY-MM-DD is the model; model-2 is not."""
    server = engines.add("one", Faults(substitute_model="m1-2026-11-01"))
    gateway = start(config(engines))
    client = gateway.client()
    assert client.post("/v1/chat/completions", json=chat("hello", "m-one")).status_code == 200
    for other in ("m1-2", "m1-2026-11-01-mini", "xm1", "m1-latest"):
        server.engine.faults.substitute_model = other
        assert error(client.post("/v1/chat/completions", json=chat("hello", "m-one"))) == (502, "model_substituted")


def test_a_swapped_reply_of_an_engine_is_withheld(engines: Engines, start: Start) -> None:
    """An engine that echoes ids and answers with another request's id has crossed replies."""
    server = engines.add("one")
    settings = config(engines)
    settings["providers"]["one"] = provider(server, kind="vllm")
    gateway = start(settings)
    client = gateway.client()
    assert client.post("/v1/chat/completions", json=chat("hello", "m-one")).status_code == 200
    server.engine.faults.swap_ids_rate = 1.0
    for stream in (False, True):
        answer = client.post("/v1/chat/completions", json=chat("hello", "m-one", stream=stream))
        assert error(answer) == (502, "integrity_violation")


def test_a_prompt_that_does_not_fit_an_engine_is_refused_before_dispatch(engines: Engines, start: Start) -> None:
    """Counted exactly by the engine's tokenizer; the engine itself is never asked to answer."""
    server = engines.add("one", context_window=300)
    settings = config(engines)
    settings["providers"]["one"] = provider(server, kind="vllm")
    settings["deployments"][0] = deployment("d-one", "one", context_window=300)
    gateway = start(settings)
    client = gateway.client()
    assert error(client.post("/v1/chat/completions", json=chat("word " * 400, "m-one"))) == (
        400,
        "context_length_exceeded",
    )
    over = chat("word " * 200, "m-one", max_tokens=200)
    assert error(client.post("/v1/chat/completions", json=over)) == (400, "context_length_exceeded")
    assert server.engine.history == []
    assert client.post("/v1/chat/completions", json=chat("word " * 200, "m-one", max_tokens=20)).status_code == 200


def test_a_quarantined_deployment_serves_nobody_until_released(engines: Engines, start: Start) -> None:
    """503 with its own code, at once, and back after the release; both are audited."""
    engines.add("one")
    gateway = start(config(engines))
    client = gateway.client()
    admin = httpx.Client(base_url=gateway.url, headers={"authorization": f"Bearer {ADMIN}"}, trust_env=False)
    assert admin.post("/admin/api/v1/deployments/d-one/quarantine", json={"reason": "leak"}).status_code == 200
    answer = client.post("/v1/chat/completions", json=chat("hello", "m-one"))
    assert error(answer) == (503, "deployment_quarantined")
    candidates = gateway.receipt(client, answer.headers["x-assay-receipt"])
    assert candidates["envelope"]
    assert admin.post("/admin/api/v1/deployments/d-one/release", json={"reason": "checked"}).status_code == 200
    assert client.post("/v1/chat/completions", json=chat("hello", "m-one")).status_code == 200
    actions = [row["action"] for row in admin.get("/admin/api/v1/audit").json()["data"]]
    assert actions == ["deployment.release", "deployment.quarantine"]


def test_a_config_key_cannot_be_revoked_by_api_and_dies_with_the_file(engines: Engines, start: Start) -> None:
    """409 managed_by_config; a key that leaves the file is dead after the reload."""
    engines.add("one")
    gateway = start(config(engines))
    admin = httpx.Client(base_url=gateway.url, headers={"authorization": f"Bearer {ADMIN}"}, trust_env=False)
    assert error(admin.delete("/admin/api/v1/keys/acme-key")) == (409, "managed_by_config")
    gateway.config["tenants"][0]["keys"] = []
    gateway.write()
    client = gateway.client("acme")
    deadline = time.monotonic() + 8
    while client.get("/v1/models").status_code == 200:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert gateway.client("beta").get("/v1/models").status_code == 200


def test_a_bad_reload_keeps_the_old_configuration(engines: Engines, start: Start) -> None:
    """Neither broken files nor changes that need a restart take effect."""
    engines.add("one")
    gateway = start(config(engines))
    for change in ({"server": {"port": 1}}, {"nonsense": True}, {"keys_dir": "./elsewhere"}):
        good = dict(gateway.config)
        gateway.config = {**good, **change}
        gateway.write()
        time.sleep(1.6)
        gateway.config = good
        assert gateway.client().post("/v1/chat/completions", json=chat("hello", "m-one")).status_code == 200
    assert "changes only by restart" in gateway.log.read_text("utf-8")


@pytest.mark.parametrize("header", ["x-forwarded-for", "x-filler"])
def test_header_floods_are_refused(engines: Engines, start: Start, header: str) -> None:
    """Too many and too large headers get 431 and the gateway serves on."""
    engines.add("one")
    gateway = start(config(engines))
    floods = [
        b"GET /healthz HTTP/1.1\r\nHost: x\r\n" + b"".join(b"%b-%d: y\r\n" % (header.encode(), n) for n in range(500)),
        b"GET /healthz HTTP/1.1\r\nHost: x\r\nx: " + b"y" * 200_000,
        b"GET /" + b"a" * 100_000,
    ]
    for flood in floods:
        with socket.create_connection(("127.0.0.1", gateway.port), 5) as raw:
            try:
                raw.sendall(flood + b"\r\n\r\n")
                assert b" 431 " in raw.recv(4096)
            except ConnectionError:
                pass
    assert httpx.get(f"{gateway.url}/healthz", trust_env=False).status_code == 200


@pytest.mark.parametrize(
    "smuggled",
    [
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\nabcde",
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: +4\r\n\r\nabcd",
        b"GET /v1/models HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00",
    ],
)
def test_ambiguous_requests_are_refused(engines: Engines, start: Start, smuggled: bytes) -> None:
    """Two lengths, odd lengths, upgrades and TLS on a plain port: 400, closed, and nothing reaches an upstream."""
    server = engines.add("one")
    gateway = start(config(engines))
    with socket.create_connection(("127.0.0.1", gateway.port), 5) as raw:
        raw.sendall(smuggled)
        raw.settimeout(5)
        seen = raw.recv(4096)
    assert seen.startswith((b"HTTP/1.1 400", b"HTTP/1.1 401"))
    assert server.engine.history == []


def test_injection_strings_are_only_text(engines: Engines, start: Start) -> None:
    """SQL, wildcards and NUL as key, model, user, session and search change nothing and break nothing."""
    engines.add("one")
    gateway = start(config(engines))
    client = gateway.client()
    for hostile in ("' OR pg_sleep(5)--", "%", "_", "\u0000", "'; DROP TABLE receipts;--", "../../etc/passwd"):
        assert client.post("/v1/chat/completions", json=chat("hi", hostile or "x")).status_code in (400, 404)
        assert client.post("/v1/chat/completions", json=chat("hi", "m-one", user=hostile)).status_code == 200
        listed = client.get("/v1/receipts", params={"model": hostile, "session": hostile, "after": hostile})
        assert listed.status_code == 200 and listed.json()["data"] == []
    assert len(client.get("/v1/receipts?limit=100").json()["data"]) == 12
    wrong = httpx.get(f"{gateway.url}/v1/models", headers={"authorization": "Bearer ' OR '1'='1"}, trust_env=False)
    assert wrong.status_code == 401


def test_keys_that_share_a_prefix_are_not_one_identity(engines: Engines, start: Start) -> None:
    """Cut and lengthened keys are unknown keys."""
    engines.add("one")
    gateway = start(config(engines))
    for key in (KEYS["acme"][:-1], KEYS["acme"] + "x", KEYS["acme"].upper(), KEYS["acme"] + "\t" + KEYS["beta"]):
        answer = httpx.get(f"{gateway.url}/v1/models", headers={"authorization": f"Bearer {key}"}, trust_env=False)
        assert answer.status_code == 401


def test_a_restart_does_not_give_a_budget_back(engines: Engines, start: Start) -> None:
    """What was spent in the running period is still spent after a kill."""
    engines.add("one")
    settings = config(engines)
    settings["deployments"][0]["price"] = {"input": 0, "output": 100_000}
    settings["tenants"][0]["limits"] = {"budget_usd": 1.5, "budget_period": "month"}
    gateway = start(settings)
    body = chat("repeat exactly: one two three four five six seven eight nine ten", "m-one", max_tokens=10)
    assert gateway.client().post("/v1/chat/completions", json=body).status_code == 200
    assert error(gateway.client().post("/v1/chat/completions", json=body)) == (429, "insufficient_quota")
    gateway.kill()
    gateway.start()
    assert error(gateway.client().post("/v1/chat/completions", json=body)) == (429, "insufficient_quota")
    assert gateway.client("beta").post("/v1/chat/completions", json=body).status_code == 200
