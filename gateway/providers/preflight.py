"""What a self-hosted engine can really hold, measured from the running engine before it may serve.

The invariant that the 2026 incident broke: every worker's KV pool must hold a prompt as long as the window that is
promised. vLLM says it in `vllm:cache_config_info` (`kv_cache_size_tokens`, one series an engine; older versions by
blocks, of which one is reserved), SGLang in `sglang:max_total_num_tokens` and `sglang:context_len`.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import orjson

from gateway.config.snapshot import Deployment, Snapshot, Timeouts
from gateway.errors import UpstreamFailure
from gateway.exchange import Reason
from gateway.providers.adapters import authentication
from gateway.providers.transport import Transport, UpstreamRequest

LOG = logging.getLogger("assay.preflight")
Mode = Literal["required", "measured", "disabled"]
FRESH_S = 86_400.0
RETRY_S = 10.0
_DEADLINES = Timeouts(5.0, 10.0, 10.0)
_CONFIG = re.compile(r"^vllm:cache_config_info\{(.*)\}\s", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')
_SGLANG = re.compile(r"^sglang:(max_total_num_tokens|context_len)(?:\{[^}]*\})?\s+([0-9.e+]+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Capacity:
    """What was found, and whether it may serve. `None` is unknown, which is not enough."""

    passed: bool
    reason: str
    pool_tokens: int | None
    advertised_tokens: int | None
    checked: float  # monotonic


def pool_tokens(metrics: str) -> int | None:
    """The smallest pool among the engines behind one origin, in tokens."""
    found: list[int] = []
    for line in _CONFIG.findall(metrics):
        labels = dict(_LABEL.findall(line))
        size = labels.get("kv_cache_size_tokens", "")
        blocks, block = labels.get("num_gpu_blocks", ""), labels.get("block_size", "")
        if size.isdigit():
            found.append(int(size))
        elif blocks.isdigit() and block.isdigit():
            found.append(max(int(blocks) - 1, 0) * int(block))
    found += [int(float(value)) for name, value in _SGLANG.findall(metrics) if name == "max_total_num_tokens"]
    return min(found) if found else None


def context_tokens(metrics: str) -> int | None:
    """SGLang's own `context_len`, the largest promise among its workers."""
    found = [int(float(value)) for name, value in _SGLANG.findall(metrics) if name == "context_len"]
    return max(found) if found else None


def judge(deployment: Deployment, pool: int | None, advertised: int | None, now: float) -> Capacity:
    """Pure: the pool must hold the configured window and what the engine itself advertises."""
    windows = [w for w in (deployment.context_window, advertised) if w is not None]
    if pool is None:
        return Capacity(False, "the engine does not say how many tokens its KV pool holds", pool, advertised, now)
    if not windows:
        return Capacity(False, "no context window is configured or advertised", pool, advertised, now)
    if pool < max(windows):
        text = f"the KV pool holds {pool} tokens and the window promises {max(windows)}"
        return Capacity(False, text, pool, advertised, now)
    return Capacity(True, f"the KV pool holds {pool} tokens for a window of {max(windows)}", pool, advertised, now)


class Preflight:
    """Measures every self-hosted deployment at start, when it changes, daily, and again soon after a failure."""

    def __init__(self, transport: Transport, mode: Mode, snapshot: Callable[[], Snapshot]) -> None:
        self._transport = transport
        self.mode: Mode = mode
        self._snapshot = snapshot
        self.results: dict[str, Capacity] = {}
        self._measured: dict[str, Deployment] = {}

    def refusal(self, name: str) -> Reason | None:
        """Why a deployment may not serve: pending counts as not serving, and so does a stale result."""
        if self.mode != "required":
            return None
        deployment = self._snapshot().deployments.get(name)
        if deployment is None or not deployment.provider.self_hosted:
            return None
        result = self.results.get(name)
        if result is None or self._measured.get(name) != deployment:
            return Reason("preflight-pending", "The engine was not measured yet.")
        if time.monotonic() - result.checked > FRESH_S:
            return Reason("preflight-stale", "The engine's measurement is older than a day.")
        return None if result.passed else Reason("preflight-failed", f"Preflight failed: {result.reason}.")

    async def run(self) -> None:
        """Runs until it is cancelled."""
        while self.mode != "disabled":
            for deployment in list(self._snapshot().deployments.values()):
                if deployment.provider.self_hosted and self._due(deployment):
                    await self.measure(deployment)
            await asyncio.sleep(1.0)

    def _due(self, deployment: Deployment) -> bool:
        result = self.results.get(deployment.id)
        if result is None or self._measured.get(deployment.id) != deployment:
            return True
        age = time.monotonic() - result.checked
        return age > (FRESH_S / 2 if result.passed else RETRY_S)

    async def measure(self, deployment: Deployment) -> Capacity:
        """Measures one deployment and keeps the result."""
        try:
            metrics = (await self._get(deployment, "/metrics")).decode("utf-8", "replace")
            advertised = context_tokens(metrics)
            if advertised is None:
                advertised = _advertised(deployment, await self._get(deployment, "/v1/models"))
            result = judge(deployment, pool_tokens(metrics), advertised, time.monotonic())
        except UpstreamFailure:
            result = Capacity(False, "the engine could not be reached", None, None, time.monotonic())
        before = self.results.get(deployment.id)
        self.results[deployment.id] = result
        self._measured[deployment.id] = deployment
        if before is None or before.passed != result.passed:
            state = "passed" if result.passed else "failed"
            LOG.warning("preflight of %s %s: %s", deployment.id, state, result.reason)
        return result

    async def _get(self, deployment: Deployment, path: str) -> bytes:
        provider = deployment.provider
        credential = provider.credentials[0] if provider.credentials else None
        request = UpstreamRequest(path, tuple(authentication(provider, credential)), b"", False, "GET")
        answer = await self._transport.open(provider, credential, _DEADLINES, request)
        body = await answer.read()
        return body if answer.status == 200 else b""


def _advertised(deployment: Deployment, body: bytes) -> int | None:
    """`max_model_len` of the deployment's model in the engine's list."""
    try:
        cards = orjson.loads(body).get("data")
    except (orjson.JSONDecodeError, AttributeError):
        return None
    for card in cards if isinstance(cards, list) else ():
        if isinstance(card, dict) and card.get("id") == deployment.model and type(card.get("max_model_len")) is int:
            return int(card["max_model_len"])
    return None
