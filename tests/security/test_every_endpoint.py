"""No endpoint, streaming or not, skips a stage: the same rules for each, asked one by one (security class C15)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from scene import ADMIN, Engines, GatewayProcess, config

Start = Callable[[dict[str, Any]], GatewayProcess]
BODIES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "hello there"}]},
    "/v1/completions": {"prompt": "hello there"},
    "/v1/embeddings": {"input": "hello there"},
    "/v1/responses": {"input": "hello there"},
    "/v1/messages": {"messages": [{"role": "user", "content": "hello there"}], "max_tokens": 50},
}
CASES = [(path, stream) for path in BODIES for stream in (False, True) if not (path == "/v1/embeddings" and stream)]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[GatewayProcess, Engines]]:
    """One gateway for the table: an engine for all, and one that `narrow` may not use."""
    engines = Engines()
    engines.add("one")
    engines.add("two")
    gateway = GatewayProcess(tmp_path_factory.mktemp("table"), config(engines)).start()
    yield gateway, engines
    gateway.stop()
    engines.close()


def ask(gateway: GatewayProcess, tenant: str, path: str, stream: bool, model: str, **fields: Any) -> httpx.Response:
    return gateway.client(tenant).post(path, json={"model": model, **BODIES[path], "stream": stream, **fields})


def code(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


@pytest.mark.parametrize(("path", "stream"), CASES)
def test_the_line_holds(place: tuple[GatewayProcess, Engines], path: str, stream: bool) -> None:
    """Key, visibility, policy, steering fields, one parse, evidence, checks and a receipt."""
    gateway, engines = place
    good = ask(gateway, "acme", path, stream, "m-one")
    assert good.status_code == 200, good.text
    receipt = gateway.receipt(gateway.client(), good.headers["x-assay-receipt"])
    assert receipt["envelope"]["signatures"]
    assert good.headers["x-assay-deployment"] == "d-one" and good.headers["x-assay-model"] == "m1"
    before = len(engines.servers["two"].engine.history)
    body = {"model": "m-one", **BODIES[path], "stream": stream}
    nobody = httpx.post(f"{gateway.url}{path}", json=body, trust_env=False)
    assert nobody.status_code == 401 and "x-assay-receipt" not in nobody.headers
    assert ask(gateway, "acme", path, stream, "unknown").status_code == 404
    assert ask(gateway, "narrow", path, stream, "m-two").status_code == 403
    for field in ("cache_salt", "kv_transfer_params", "api_base", "priority", "models"):
        refused = ask(gateway, "acme", path, stream, "m-two", **{field: "x"})
        assert code(refused) == (400, "unsupported_parameter"), field
        assert refused.headers["x-assay-receipt"].startswith("rcpt_")
    twice = json.dumps(body)[:-1] + ', "model": "m-two"}'
    headers = {"content-type": "application/json"}
    assert code(gateway.client().post(path, content=twice.encode(), headers=headers)) == (400, "duplicate_key")
    assert len(engines.servers["two"].engine.history) == before


@pytest.mark.parametrize(("path", "stream"), CASES)
def test_a_substituted_model_is_withheld_everywhere(
    place: tuple[GatewayProcess, Engines], path: str, stream: bool
) -> None:
    """In every dialect, before a byte was sent."""
    gateway, engines = place
    engine = engines.servers["one"].engine
    model = engine.model
    engine.model = engine.faults.substitute_model = "other"
    try:
        answer = ask(gateway, "acme", path, stream, "m-one")
    finally:
        engine.model, engine.faults.substitute_model = model, None
    assert code(answer) == (502, "model_substituted")


@pytest.mark.parametrize(("path", "stream"), CASES)
def test_a_quarantined_deployment_answers_no_endpoint(
    place: tuple[GatewayProcess, Engines], path: str, stream: bool
) -> None:
    """503 in every dialect, until it is released."""
    gateway, _ = place
    admin = httpx.Client(base_url=gateway.url, headers={"authorization": f"Bearer {ADMIN}"}, trust_env=False)
    admin.post("/admin/api/v1/deployments/d-one/quarantine", json={"reason": "test"})
    try:
        assert code(ask(gateway, "acme", path, stream, "m-one")) == (503, "deployment_quarantined")
    finally:
        admin.post("/admin/api/v1/deployments/d-one/release", json={"reason": "test"})


def test_counting_tokens_passes_the_same_door(place: tuple[GatewayProcess, Engines]) -> None:
    """A key, a visible model, a permitted deployment; no provider is asked, and no steering field passes."""
    gateway, engines = place
    path, before = "/v1/messages/count_tokens", len(engines.servers["one"].engine.history)
    body = {"messages": [{"role": "user", "content": "hello " * 100}]}

    def count(tenant: str, **fields: Any) -> httpx.Response:
        return gateway.client(tenant).post(path, json={**body, **fields})

    assert 80 < count("acme", model="m-one").json()["input_tokens"] < 250
    assert httpx.post(f"{gateway.url}{path}", json={**body, "model": "m-one"}, trust_env=False).status_code == 401
    assert count("acme", model="unknown").json()["type"] == "error"
    assert count("narrow", model="m-two").status_code == 403
    assert count("acme", model="m-one", cache_salt="x").status_code == 400
    assert len(engines.servers["one"].engine.history) == before
