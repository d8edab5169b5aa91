"""Official OpenAI clients, unchanged but for their base URL."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from scene import KEYS, Engines, GatewayProcess, chat, config

from gateway.simulator.engine import Faults

Start = Callable[[dict[str, Any]], GatewayProcess]
NPM_OPENAI = "7.59.0"
SCRIPT = """
import OpenAI from "openai";
const client = new OpenAI({ baseURL: process.env.URL + "/v1", apiKey: process.env.KEY, maxRetries: 0 });
const ask = [{ role: "user", content: "repeat exactly: good day to you" }];
const out = {};
const whole = await client.chat.completions.create({ model: "m-one", messages: ask });
out.text = whole.choices[0].message.content; out.model = whole.model;
out.streamed = "";
for await (const chunk of await client.chat.completions.create({ model: "m-one", messages: ask, stream: true }))
  out.streamed += chunk.choices[0]?.delta?.content ?? "";
const vectors = await client.embeddings.create({ model: "m-one", input: "some text", encoding_format: "float" });
out.vector = vectors.data[0].embedding;
out.models = (await client.models.list()).data.map((card) => card.id);
out.errors = {};
const cases = [["auth", "m-one", "sk-wrong-wrong-wrong"], ["model", "nope", null], ["down", "m-down", null]];
for (const [name, model, key] of cases)
  try {
    await (key ? new OpenAI({ baseURL: process.env.URL + "/v1", apiKey: key, maxRetries: 0 }) : client)
      .chat.completions.create({ model, messages: ask });
  } catch (error) { out.errors[name] = [error.constructor.name, error.status, error.code]; }
console.log(JSON.stringify(out));
"""


@pytest.fixture
def gateway(engines: Engines, start: Start) -> Iterator[GatewayProcess]:
    """One engine that answers and one that is down."""
    engines.add("one")
    engines.add("down", Faults(fail_status=500))
    yield start(config(engines))


def test_the_python_client(gateway: GatewayProcess) -> None:
    """Chat, stream, embeddings, models, and each kind of error as its own exception."""
    client = openai.OpenAI(base_url=f"{gateway.url}/v1", api_key=KEYS["acme"], max_retries=0)
    ask: Any = [{"role": "user", "content": "repeat exactly: good day to you"}]
    answer = client.chat.completions.with_raw_response.create(model="m-one", messages=ask)
    assert answer.parse().choices[0].message.content == "good day to you"
    assert answer.headers["x-assay-model"] == "m1" and answer.headers["x-assay-receipt"].startswith("rcpt_")
    chunks = list(
        client.chat.completions.create(model="m-one", messages=ask, stream=True, stream_options={"include_usage": True})
    )
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices).strip() == "good day to you"
    assert chunks[-1].usage is not None and chunks[-1].usage.completion_tokens == 4
    assert client.embeddings.create(model="m-one", input="some text").data[0].embedding[1:] == [0.5, -0.25]
    assert {card.id for card in client.models.list()} == {"m-one", "m-down"}
    assert client.completions.create(model="m-one", prompt="repeat exactly: yes").choices[0].text == "yes"
    for problem, model, key in (
        (openai.AuthenticationError, "m-one", "sk-wrong-wrong-wrong"),
        (openai.NotFoundError, "nope", KEYS["acme"]),
        (openai.PermissionDeniedError, "m-down", KEYS["narrow"]),
        (openai.InternalServerError, "m-down", KEYS["acme"]),
    ):
        with pytest.raises(problem):
            client.with_options(api_key=key).chat.completions.create(model=model, messages=ask)
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model="m-one", messages=ask, extra_body={"cache_salt": "mine"})
    assert caught.value.code == "unsupported_parameter"


@pytest.mark.skipif(shutil.which("npm") is None, reason="no npm to install the client with")
def test_the_javascript_client(gateway: GatewayProcess, tmp_path: Path) -> None:
    """The same from Node: chat, stream, embeddings, models, errors."""
    (tmp_path / "package.json").write_text('{"type": "module", "private": true}')
    install = ["npm", "install", "--no-audit", "--no-fund", "--no-package-lock", "--silent", f"openai@{NPM_OPENAI}"]
    subprocess.run(install, cwd=tmp_path, check=True, timeout=180, capture_output=True)
    (tmp_path / "client.js").write_text(SCRIPT)
    environment = {**os.environ, "URL": gateway.url, "KEY": KEYS["acme"]}
    result = subprocess.run(
        ["node", "client.js"], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60
    )
    assert result.returncode == 0, result.stderr
    out = json.loads(result.stdout)
    assert (out["text"], out["model"], out["streamed"].strip()) == ("good day to you", "m1", "good day to you")
    assert out["vector"][1:] == [0.5, -0.25] and out["models"] == ["m-one", "m-down"]
    assert out["errors"]["auth"] == ["AuthenticationError", 401, "invalid_api_key"]
    assert out["errors"]["model"] == ["NotFoundError", 404, "model_not_found"]
    assert out["errors"]["down"][1:] == [502, "upstream_error"]


def test_curl_shaped_requests_get_the_contracts_headers(gateway: GatewayProcess) -> None:
    """Every header that the contract promises for an ordinary answer is there."""
    headers = gateway.client().post("/v1/chat/completions", json=chat("hello", "m-one")).headers
    expected = "request-id assay-receipt assay-deployment assay-provider assay-region assay-model assay-requested-model"
    expected += (
        " assay-attempts assay-fallback assay-evidence assay-integrity assay-policy assay-overhead-ms assay-cost-usd"
    )
    assert [name for name in expected.split() if f"x-{name}" not in headers] == []
