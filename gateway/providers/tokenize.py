"""An engine's own count of a prompt (vLLM and SGLang `/tokenize`), remembered for equal prompts."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from typing import Any

import orjson

from gateway.config.snapshot import Deployment, Timeouts
from gateway.errors import UpstreamFailure
from gateway.providers.adapters import authentication
from gateway.providers.transport import Transport, UpstreamRequest

_KEEP = 4096
_FIELDS = ("messages", "prompt", "tools", "add_generation_prompt", "chat_template_kwargs", "continue_final_message")


class ExactCounter:
    """Asks the engine at its origin; None when it cannot say, which is never a reason to refuse."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._known: OrderedDict[tuple[str, bytes], int] = OrderedDict()

    async def __call__(self, deployment: Deployment, fields: Any, timeout_s: float) -> int | None:
        """The number of prompt tokens the engine would read."""
        asked = {name: fields[name] for name in _FIELDS if name in fields}
        if not asked or isinstance(asked.get("prompt"), list):
            return None
        try:
            body = orjson.dumps({"model": deployment.model, **asked})
        except TypeError:
            return None
        key = (deployment.id, hashlib.sha256(body).digest())
        known = self._known.get(key)
        if known is not None:
            return known
        provider = deployment.provider
        credential = provider.credentials[0] if provider.credentials else None
        headers = [("content-type", "application/json"), *authentication(provider, credential)]
        deadlines = Timeouts(timeout_s, timeout_s, timeout_s)
        try:
            answer = await self._transport.open(
                provider, credential, deadlines, UpstreamRequest("/tokenize", tuple(headers), body, False)
            )
            content = await answer.read()
            count = orjson.loads(content).get("count") if answer.status == 200 else None
        except (UpstreamFailure, orjson.JSONDecodeError, AttributeError):
            return None
        if type(count) is not int or count < 0:
            return None
        self._known[key] = count
        if len(self._known) > _KEEP:
            self._known.popitem(last=False)
        return count
