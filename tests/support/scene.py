"""A real gateway process and real simulated engines, for tests that judge from outside."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import httpx
import yaml

from gateway.simulator.engine import Engine, Faults
from gateway.simulator.server import EngineServer

ADMIN = "admin-token-for-tests-0123456789"
KEYS = {name: f"sk-test-{name}-4d7c1e92ab5f" for name in ("acme", "beta", "narrow")}


class Engines:
    """Simulated engines in a thread of their own loop."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()
        self.servers: dict[str, EngineServer] = {}

    def add(self, name: str, faults: Faults | None = None, **settings: Any) -> EngineServer:
        engine = Engine(name, settings.pop("model", "m1"), faults=faults or Faults(), **settings)
        server = asyncio.run_coroutine_threadsafe(EngineServer(engine).start(), self.loop).result(5)
        self.servers[name] = server
        return server

    def close(self) -> None:
        for server in self.servers.values():
            asyncio.run_coroutine_threadsafe(server.close(), self.loop).result(5)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(5)


class GatewayProcess:
    """`assay serve` with a configuration; may be killed and started again on the same folder."""

    def __init__(self, folder: Path, config: dict[str, Any]) -> None:
        self.folder = folder
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.config = config
        self.file = folder / "assay.yaml"
        self.write()
        self.log = folder / "gateway.log"
        self.process: subprocess.Popen[bytes] | None = None

    def write(self) -> None:
        self.file.write_text(yaml.safe_dump(self.config, sort_keys=False), "utf-8")

    def start(self) -> GatewayProcess:
        with self.log.open("ab") as log:
            command = [sys.executable, "-m", "gateway", "serve", "--config", str(self.file), "--port", str(self.port)]
            self.process = subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ})
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            assert self.process.poll() is None, self.log.read_text("utf-8")[-3000:]
            try:
                if httpx.get(f"{self.url}/readyz", trust_env=False, timeout=2).status_code == 200:
                    return self
            except httpx.HTTPError:
                time.sleep(0.05)
        raise AssertionError("not ready: " + self.log.read_text("utf-8")[-3000:])

    def kill(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(5)

    def stop(self) -> int:
        assert self.process is not None
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(15)
            except subprocess.TimeoutExpired:
                self.kill()
        return int(self.process.returncode)

    def client(self, tenant: str = "acme") -> httpx.Client:
        headers = {"authorization": f"Bearer {KEYS[tenant]}"}
        return httpx.Client(base_url=self.url, headers=headers, trust_env=False, timeout=20)

    def receipt(self, client: httpx.Client, id: str, *, proven: bool = False) -> dict[str, Any]:
        deadline = time.monotonic() + 8
        while True:
            answer = client.get(f"/v1/receipts/{id}?openings=true")
            if answer.status_code == 200 and (answer.json()["proof"] or not proven):
                return dict(answer.json())
            assert time.monotonic() < deadline, answer.text
            time.sleep(0.05)


def provider(server: EngineServer, **settings: Any) -> dict[str, Any]:
    return {
        "kind": "openai-compatible",
        "base_url": server.url,
        "api_key": f"credential-of-{server.engine.name}",
        "region": "eu",
        "zero_retention": True,
        "trains_on_data": False,
        **settings,
    }


def deployment(id: str, provider: str, **settings: Any) -> dict[str, Any]:
    price = {"input": 1.0, "output": 2.0}
    return {
        "id": id,
        "provider": provider,
        "model": "m1",
        "context_window": 8192,
        "retries": 0,
        "price": price,
        **settings,
    }


def config(engines: Engines, **changes: Any) -> dict[str, Any]:
    """One deployment for each engine, `m-NAME` for each, three tenants."""
    names = list(engines.servers)
    base: dict[str, Any] = {
        "admin": {"token": ADMIN},
        "providers": {name: provider(server) for name, server in engines.servers.items()},
        "deployments": [deployment(f"d-{name}", name) for name in names],
        "models": {f"m-{name}": {"deployments": [f"d-{name}"]} for name in names},
        "tenants": [
            {
                "id": tenant,
                "allow": {"providers": ["*"], "regions": ["*"], "models": ["*"]},
                "keys": [{"id": f"{tenant}-key", "secret": KEYS[tenant]}],
            }
            for tenant in ("acme", "beta")
        ],
        "integrity": {"preflight": "disabled", "canaries": {"enabled": False}},
    }
    base["tenants"].append(
        {
            "id": "narrow",
            "allow": {"providers": [names[0]], "regions": ["eu"], "models": ["*"]},
            "keys": [{"id": "narrow-key", "secret": KEYS["narrow"]}],
        }
    )
    return {**base, **changes}


def chat(text: str, model: str, **fields: Any) -> dict[str, Any]:
    return {"model": model, "messages": [{"role": "user", "content": text}], **fields}
