"""The log's side of witnessing: shows every new checkpoint to the witnesses and keeps their cosignatures.

A witness that will not follow, because what it cosigned before is not the beginning of what it is shown now, is
proof of two histories: that is an alarm, whichever side is wrong.
"""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import Callable, Sequence
from typing import Protocol

import httpx

from gateway.config.settings import ReceiptSettings
from gateway.errors import ReceiptUnavailable
from gateway.receipts.checkpoint import parse_checkpoint
from gateway.receipts.cosignature import COSIGNATURE, VerifierKey, cosigned_at, parse_vkey

LOG = logging.getLogger("assay.witness")
_TIMEOUT_S = 5.0
_MAX_ANSWER = 16 * 1024


class WitnessedLog(Protocol):
    """What is asked of the log."""

    async def latest(self) -> tuple[int, bytes, str] | None: ...

    async def consistency(self, first: int, second: int) -> list[bytes]: ...

    async def cosigned(self, size: int, lines: Sequence[str]) -> None: ...

    async def lead(self, work: int, seconds: float) -> bool: ...


def witness_key(name: str, text: str) -> VerifierKey:
    """A witness's key from the configuration: a verifier key, or 32 bytes in base64. Raises `ValueError`."""
    if "+" in text and text.startswith(name + "+"):
        return parse_vkey(text)
    public = base64.b64decode(text, validate=True)
    if len(public) != 32:
        raise ValueError(f"the key of the witness {name} is not an Ed25519 key")
    return VerifierKey(name, COSIGNATURE, public)


class WitnessClient:
    """One per process; the process that holds the lease speaks. `witnesses` are (key, submission URL)."""

    LEASE = 2

    def __init__(
        self,
        log: WitnessedLog,
        witnesses: Sequence[tuple[VerifierKey, str]],
        alarm: Callable[[str, str], None],
        interval_s: float,
        http: httpx.AsyncClient | None = None,
    ) -> None:
        self._log = log
        self._witnesses = witnesses
        self._alarm = alarm
        self._interval_s = interval_s
        self._http = http or httpx.AsyncClient(timeout=_TIMEOUT_S, trust_env=False, follow_redirects=False)
        self._seen: dict[str, int] = {}
        self._alarmed: set[str] = set()

    @classmethod
    def of(cls, settings: ReceiptSettings, log: WitnessedLog, alarm: Callable[[str, str], None]) -> WitnessClient:
        """The client for the configured witnesses. Raises `ValueError` for a key that is none."""
        witnesses = [(witness_key(w.name, w.public_key), w.url) for w in settings.witnesses]
        return cls(log, witnesses, alarm, settings.checkpoint_interval_s)

    async def run(self) -> None:
        """Until it is cancelled; a witness that does not answer is asked again with the next checkpoint."""
        try:
            while True:
                await asyncio.sleep(self._interval_s)
                try:
                    await self.once()
                except ReceiptUnavailable:
                    LOG.warning("the log cannot be read; witnesses are asked later")
        finally:
            await self._http.aclose()

    async def once(self) -> None:
        """Shows the newest checkpoint to every witness that has not cosigned it yet."""
        if not await self._log.lead(self.LEASE, 3 * self._interval_s + _TIMEOUT_S):
            return
        newest = await self._log.latest()
        if newest is None or newest[0] == 0:
            return
        size, _, text = newest
        waiting = [(key, url) for key, url in self._witnesses if self._seen.get(key.name) != size]
        lines = await asyncio.gather(*(self._ask(key, url, size, text) for key, url in waiting))
        await self._log.cosigned(size, [line for line in lines if line is not None])

    async def _ask(self, key: VerifierKey, url: str, size: int, text: str) -> str | None:
        """The witness's signature line, None where it gave none."""
        try:
            for _ in range(2):
                old = self._seen.get(key.name, 0)
                proof = await self._log.consistency(old, size) if 0 < old < size else []
                answer = await self._http.post(
                    f"{url.rstrip('/')}/add-checkpoint", content=_request(old, proof, text), timeout=_TIMEOUT_S
                )
                if answer.status_code == 200:
                    return self._accept(key, size, text, answer.text[:_MAX_ANSWER])
                if not self._learn(key, size, answer):
                    return None
        except (httpx.HTTPError, OSError) as error:
            LOG.warning("the witness %s does not answer: %s", key.name, type(error).__name__)
        return None

    def _learn(self, key: VerifierKey, size: int, answer: httpx.Response) -> bool:
        """What a refusal means; whether it is worth asking again."""
        kind = answer.headers.get("content-type", "").partition(";")[0].strip()
        told = answer.text.strip()
        if answer.status_code == 409 and kind == "text/x.tlog.size" and told.isdigit():
            self._seen[key.name] = int(told)
            if int(told) > size:
                self._once(
                    f"{key.name} cosigned {told}", "log_rollback", key, f"it cosigned {told} entries, we have {size}"
                )
                return False
            return True
        if answer.status_code in (409, 422):
            self._once(
                f"{key.name} refused", "split_view", key, f"it does not accept our {size} entries as a continuation"
            )
        else:
            LOG.warning("the witness %s refused: status %d", key.name, answer.status_code)
        return False

    def _once(self, mark: str, kind: str, key: VerifierKey, what: str) -> None:
        if mark not in self._alarmed:
            self._alarmed.add(mark)
            self._alarm(kind, f"witness {key.name}: {what}")

    def _accept(self, key: VerifierKey, size: int, text: str, given: str) -> str | None:
        for line in given.splitlines(keepends=True):
            try:
                valid = cosigned_at(key, parse_checkpoint(text.partition("\n\n")[0] + "\n\n" + line))
            except ValueError:
                continue
            if valid is not None:
                self._seen[key.name] = size
                return line if line.endswith("\n") else line + "\n"
        LOG.warning("the witness %s gave no cosignature of its own", key.name)
        return None


def _request(old: int, proof: Sequence[bytes], text: str) -> bytes:
    head = [f"old {old}", *(base64.b64encode(item).decode() for item in proof)]
    return ("\n".join(head) + "\n\n" + text).encode()
