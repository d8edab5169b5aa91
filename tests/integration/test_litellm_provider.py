"""A provider reached through litellm: the same line, weaker evidence, and nothing a tenant could steer litellm by."""

from __future__ import annotations

import base64
import importlib.util
import json
from collections.abc import Callable
from typing import Any

import pytest
from scene import Engines, GatewayProcess, chat, config

from gateway.simulator.engine import Faults

Start = Callable[[dict[str, Any]], GatewayProcess]


def settings(engines: Engines) -> dict[str, Any]:
    made = config(engines)
    made["providers"]["one"]["kind"] = "litellm"
    made["deployments"][0]["model"] = "openai/m1"
    made["deployments"][0]["accept_models"] = ["m1"]
    return made


def predicate(gateway: GatewayProcess, answer: Any) -> dict[str, Any]:
    document = gateway.receipt(gateway.client(), answer.headers["x-assay-receipt"])
    return dict(json.loads(base64.b64decode(document["envelope"]["payload"]))["predicate"])


@pytest.mark.skipif(importlib.util.find_spec("litellm") is None, reason="litellm is an optional extra")
def test_litellm_answers_with_asserted_evidence(engines: Engines, start: Start) -> None:
    """Whole and streamed; the receipt holds no raw bytes, no server key, and no grade above asserted."""
    engines.add("one")
    gateway = start(settings(engines))
    for stream in (False, True):
        body = chat("repeat exactly: good day to you", "m-one", stream=stream)
        answer = gateway.client().post("/v1/chat/completions", json=body)
        assert answer.status_code == 200, answer.text
        assert answer.headers["x-assay-evidence"] == "asserted" and answer.headers["x-assay-model"] == "m1"
        made = predicate(gateway, answer)
        assert made["commitments"]["upstream_request"] is made["commitments"]["upstream_response"] is None
        assert made["attempts"][0]["tls_spki"] is None and made["tokens"]["reported"]["completion"] == 4
        assert made["effective"]["evidence"]["provider"]["grade"] == "declared"
        if stream:
            assert answer.content.endswith(b"data: [DONE]\n\n")


@pytest.mark.skipif(importlib.util.find_spec("litellm") is None, reason="litellm is an optional extra")
def test_litellms_own_parameters_are_not_the_tenants(engines: Engines, start: Start) -> None:
    """Made-up answers, hosts and credentials by keyword never reach it."""
    server = engines.add("one")
    gateway = start(settings(engines))
    for name in ("mock_response", "api_base", "aws_secret_access_key", "vertex_project", "metadata", "caching"):
        answer = gateway.client().post("/v1/chat/completions", json=chat("hello", "m-one", **{name: "x"}))
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "unsupported_parameter"), name
    assert server.engine.history == []


@pytest.mark.skipif(importlib.util.find_spec("litellm") is None, reason="litellm is an optional extra")
def test_a_failure_through_litellm_is_a_failed_attempt(engines: Engines, start: Start) -> None:
    """Fallback inside the permitted set, with both attempts in the receipt."""
    engines.add("one", Faults(fail_status=500))
    engines.add("two")
    made = settings(engines)
    made["models"]["both"] = {"deployments": ["d-one", "d-two"], "fallback": "any"}
    gateway = start(made)
    answer = gateway.client().post("/v1/chat/completions", json=chat("hello", "both"))
    assert answer.status_code == 200 and answer.headers["x-assay-deployment"] == "d-two"
    assert [a["error"] for a in predicate(gateway, answer)["attempts"]] == ["server", None]


def test_evidence_above_asserted_denies_litellm(engines: Engines, start: Start) -> None:
    """A tenant that demands observed evidence never reaches a provider that cannot give it."""
    server = engines.add("one")
    made = settings(engines)
    made["tenants"][0]["require"] = {"evidence": "observed"}
    gateway = start(made)
    answer = gateway.client().post("/v1/chat/completions", json=chat("hello", "m-one"))
    assert answer.json()["error"]["reasons"] == ["evidence-required"]
    assert server.seen_authorization == set()
