"""`assay demo`: the whole story on this machine, through the real gateway over real HTTP."""

from __future__ import annotations

import asyncio
import json
import secrets
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import httpx
import yaml
from rich.console import Console
from rich.panel import Panel
from rich.table import Table

from gateway.receipts.verifier import VerificationError, verify
from gateway.simulator.engine import Engine, Faults
from gateway.simulator.server import EngineServer

_POOL = 600
_WINDOW = 1200


@dataclass(slots=True)
class Scene:
    """The parties of the story and where they are."""

    folder: Path
    url: str
    keys: dict[str, str]
    honest: EngineServer
    leaky: EngineServer
    failing: EngineServer
    swapping: EngineServer


class DemoFailed(Exception):
    """The story did not end as it must; the message says where."""


@click.command("demo")
@click.option("--exit", "leave", is_flag=True, help="Ends when the story is told.")
def command(leave: bool) -> None:
    """Two tenants, a denial, a fallback, a substituted model and the 2026 leak, caught, with verified receipts.

    Example: assay demo --exit
    """
    console = Console()
    try:
        asyncio.run(_tell(console, leave))
    except DemoFailed as error:
        console.print(f"[bold red]the demo failed:[/] {error}")
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(0)


async def _tell(console: Console, leave: bool) -> None:
    console.print(Panel("Assay: what completed, on whose data, with which model, at which provider, under whose rules"))
    with tempfile.TemporaryDirectory(prefix="assay-demo-") as name:
        scene, process = await _set_up(Path(name))
        try:
            async with httpx.AsyncClient(base_url=scene.url, timeout=20, trust_env=False) as http:
                await _story(console, scene, http)
            if not leave:
                console.print(f"\nthe gateway stays at {scene.url} with the admin token in {name}; Ctrl+C ends it")
                await process.wait()
        finally:
            if process.returncode is None:
                process.terminate()
                await process.wait()
            for server in (scene.honest, scene.leaky, scene.failing, scene.swapping):
                await server.close()


async def _set_up(folder: Path) -> tuple[Scene, asyncio.subprocess.Process]:
    seed = secrets.randbits(32)
    honest = await EngineServer(Engine("honest", "orca-1", _WINDOW, _WINDOW * 2, seed)).start()
    leaky = await EngineServer(
        Engine("leaky", "orca-1", _WINDOW, _POOL, seed + 1, Faults(placeholder_handoff=True))
    ).start()
    failing = await EngineServer(Engine("failing", "orca-1", faults=Faults(fail_status=500))).start()
    swapping = await EngineServer(Engine("swapping", "orca-1", faults=Faults(substitute_model="orca-mini"))).start()
    keys = {tenant: f"sk-demo-{secrets.token_urlsafe(24)}" for tenant in ("harbour", "orchard")}
    config = _config(honest, leaky, failing, swapping, keys)
    file = folder / "assay.yaml"
    file.write_text(yaml.safe_dump(config, sort_keys=False), "utf-8")
    process, url = await _start(file, folder)
    return Scene(folder, url, keys, honest, leaky, failing, swapping), process


def _config(
    honest: EngineServer, leaky: EngineServer, failing: EngineServer, swapping: EngineServer, keys: dict[str, str]
) -> dict[str, Any]:
    servers = {"honest": honest, "leaky": leaky, "failing": failing, "swapping": swapping}
    providers = {
        name: {
            "kind": "openai-compatible",
            "base_url": server.url,
            "api_key": f"demo-credential-of-{name}",
            "region": "us" if name == "failing" else "eu",
            "zero_retention": True,
            "trains_on_data": False,
        }
        for name, server in servers.items()
    }
    price = {"input": 1.0, "output": 3.0}
    deployments = [
        {
            "id": f"orca-{name}",
            "provider": name,
            "model": "orca-1",
            "context_window": _WINDOW,
            "retries": 0,
            "price": price,
        }
        for name in servers
    ]
    return {
        "admin": {"token": secrets.token_urlsafe(32)},
        "providers": providers,
        "deployments": deployments,
        "models": {
            "orca": {"deployments": ["orca-honest"], "fallback": "deny"},
            "orca-resilient": {"deployments": ["orca-failing", "orca-honest"], "fallback": "any"},
            "orca-cheap": {"deployments": ["orca-swapping"], "fallback": "deny"},
            "orca-long": {"deployments": ["orca-leaky", "orca-honest"], "fallback": "any"},
        },
        "tenants": [
            {
                "id": "harbour",
                "allow": {"providers": ["*"], "regions": ["*"], "models": ["*"]},
                "keys": [{"id": "harbour-key", "secret": keys["harbour"]}],
            },
            {
                "id": "orchard",
                "allow": {"providers": ["honest", "leaky"], "regions": ["eu"], "models": ["*"]},
                "keys": [{"id": "orchard-key", "secret": keys["orchard"]}],
            },
        ],
        "integrity": {"preflight": "disabled", "canaries": {"enabled": False}},
    }


async def _start(file: Path, folder: Path) -> tuple[asyncio.subprocess.Process, str]:
    """Starts the real gateway on a free port and waits until it is ready."""
    probe = await asyncio.start_server(lambda r, w: None, "127.0.0.1", 0)
    port = probe.sockets[0].getsockname()[1]
    probe.close()
    await probe.wait_closed()
    with (folder / "gateway.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "gateway", "serve", "--config", str(file), "--port", str(port)),
            stdout=log,
            stderr=log,
        )
    url = f"http://127.0.0.1:{port}"
    async with httpx.AsyncClient(base_url=url, trust_env=False) as http:
        for _ in range(200):
            if process.returncode is not None:
                raise DemoFailed("the gateway did not start: " + (folder / "gateway.log").read_text("utf-8")[-800:])
            try:
                if (await http.get("/readyz")).status_code == 200:
                    return process, url
            except httpx.TransportError:
                pass
            await asyncio.sleep(0.1)
    raise DemoFailed("the gateway was not ready in time")


async def _ask(http: httpx.AsyncClient, scene: Scene, tenant: str, model: str, text: str) -> httpx.Response:
    body = {"model": model, "messages": [{"role": "user", "content": text}], "max_tokens": 60}
    headers = {"authorization": f"Bearer {scene.keys[tenant]}"}
    return await http.post("/v1/chat/completions", json=body, headers=headers)


def _expect(good: bool, what: str) -> None:
    if not good:
        raise DemoFailed(what)


async def _story(console: Console, scene: Scene, http: httpx.AsyncClient) -> None:
    console.rule("1  ordinary traffic, and an allow-list that holds")
    answer = await _ask(http, scene, "harbour", "orca", "Tell me about tides and moorings in a few words please")
    _expect(answer.status_code == 200, "an ordinary request was not answered")
    _show(console, "harbour", "orca", answer)
    denied = await _ask(http, scene, "orchard", "orca-cheap", "May this leave the allow-list?")
    _expect(denied.status_code == 403 and scene.swapping.engine.history == [], "an allow-list did not hold")
    _show(console, "orchard", "orca-cheap", denied)

    console.rule("2  a provider fails: the fallback is governed and disclosed")
    fallback = await _ask(http, scene, "harbour", "orca-resilient", "Who answers when the first one is down?")
    _expect(fallback.headers.get("x-assay-fallback") == "true", "the fallback did not happen or was not disclosed")
    _show(console, "harbour", "orca-resilient", fallback)

    console.rule("3  a cheaper model answers under the same name")
    swapped = await _ask(http, scene, "harbour", "orca-cheap", "Which model are you really?")
    _expect(swapped.status_code == 502, "a substituted model was delivered")
    _expect(swapped.json()["error"]["code"] == "model_substituted", "the substitution was not named")
    _show(console, "harbour", "orca-cheap", swapped)

    console.rule("4  the leak of 2026: a prompt beyond the real capacity, HTTP 200, fluent text of somebody else")
    withheld = await _leak(console, scene, http)

    console.rule("5  receipts, verified without trusting the gateway")
    for tenant, response in (("harbour", answer), ("orchard", withheld)):
        await _verified(console, scene, http, tenant, response)
    _tables(console, scene)


async def _leak(console: Console, scene: Scene, http: httpx.AsyncClient) -> httpx.Response:
    """Harbour's private text lies in the pool; Orchard's over-long prompt reads it."""
    private = (
        f"invoice {secrets.randbelow(10**8):08d} of client Hartwell {secrets.token_hex(4)} account settled privately "
    )
    for _ in range(12):
        served = await _ask(http, scene, "harbour", "orca-long", (private * 6).strip())
        _expect(served.status_code == 200, "harbour's request was not answered")
    long_prompt = " ".join(f"leaf{n}" for n in range(_POOL + 150))
    response = await _ask(http, scene, "orchard", "orca-long", long_prompt)
    truth = [item for item in scene.leaky.engine.history if item.leaked]
    _expect(len(truth) == 1 and "Hartwell" in truth[0].answer, "the simulated engine did not leak")
    _expect(response.status_code == 502, "the leaked answer was delivered")
    _expect("Hartwell" not in response.text, "leaked text got out")
    console.print(f"the engine answered with harbour's text: [red]{truth[0].answer[:90]}…[/]")
    _show(console, "orchard", "orca-long", response)
    return response


def _show(console: Console, tenant: str, model: str, response: httpx.Response) -> None:
    headers = response.headers
    if response.status_code == 200:
        console.print(
            f"[green]{tenant} → {model}: 200[/] by {headers['x-assay-deployment']} ({headers['x-assay-region']}), "
            f"model {headers['x-assay-model']} ({headers['x-assay-evidence']}), "
            f"integrity {headers['x-assay-integrity']}, fallback {headers['x-assay-fallback']}, "
            f"attempts {headers['x-assay-attempts']}"
        )
        return
    error = response.json()["error"]
    reasons = f" ({', '.join(error['reasons'])})" if error.get("reasons") else ""
    console.print(f"[yellow]{tenant} → {model}: {response.status_code} {error['code']}[/]{reasons}: {error['message']}")


async def _verified(
    console: Console, scene: Scene, http: httpx.AsyncClient, tenant: str, response: httpx.Response
) -> None:
    id = response.headers["x-assay-receipt"]
    headers = {"authorization": f"Bearer {scene.keys[tenant]}"}
    keys = (await http.get("/.well-known/assay/keys.json")).json()
    document: dict[str, Any] = {}
    for _ in range(60):
        document = (await http.get(f"/v1/receipts/{id}?openings=true", headers=headers)).json()
        if document.get("proof"):
            break
        await asyncio.sleep(0.1)
    try:
        result = verify(document, keys, response=response.content)
    except VerificationError as error:
        raise DemoFailed(f"a receipt does not verify: {error}") from None
    predicate = result.statement["predicate"]
    failed = [check["name"] for check in predicate["checks"] if check["verdict"] == "failed"]
    console.print(
        f"[bold]{id}[/] {tenant}: outcome {predicate['outcome']}, failed checks: {', '.join(failed) or 'none'}"
    )
    for line in result.proven:
        console.print(f"  [green]proven[/] {line}")
    forged = json.loads(json.dumps(document))
    forged["envelope"]["payload"] = forged["envelope"]["payload"][:-8] + "AAAAAA=="
    try:
        verify(forged, keys)
    except VerificationError as error:
        console.print(f"  [green]a forged copy is refused[/]: {error}")
        return
    raise DemoFailed("a forged receipt verified")


def _tables(console: Console, scene: Scene) -> None:
    table = Table(title="what the engines really did")
    for column in ("engine", "requests served", "answers made of foreign text"):
        table.add_column(column)
    for server in (scene.honest, scene.leaky, scene.failing, scene.swapping):
        history = server.engine.history
        table.add_row(server.engine.name, str(len(history)), str(sum(item.leaked for item in history)))
    console.print(table)
    console.print(
        "[bold green]caught:[/] the leak at its first occurrence, by token conservation, before a byte was sent"
    )
