"""The leak scan on the line: prompts and answers are taken in, answers are looked at before or as they go out."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Literal

from gateway.admission.counting import prompt_texts
from gateway.exchange import Check, Exchange, InferenceRequest
from gateway.integrity.fingerprints import GUARANTEED_WORDS, Fingerprints, fingerprints
from gateway.integrity.leak_index import Finding, LeakIndex

Mode = Literal["disabled", "observe", "guard"]
_OFF_LOOP = 100_000
_STEP = 400
_TAIL = 900


class LeakScan:
    """`observe` flags and delivers, `guard` withholds, `disabled` does nothing."""

    def __init__(self, index: LeakIndex, mode: Mode) -> None:
        self._index = index
        self.mode: Mode = mode

    async def whole(
        self, exchange: Exchange, deployment: str, texts: tuple[str, ...], hold: StreamHold | None = None
    ) -> Check | None:
        """The check of a whole answer, which is then taken in with its prompt. A held stream knows its prompt."""
        if self.mode == "disabled" or exchange.request is None or exchange.principal is None:
            return None
        asked = hold.asked if hold is not None else await self._asked(exchange.request, exchange.principal.tenant)
        answered = await _prints("\n".join(texts))
        finding = self._index.scan(deployment, exchange.principal.tenant, answered)
        self._take_in(exchange, deployment, asked, answered, finding)
        return self._check(finding)

    async def _asked(self, request: InferenceRequest, tenant: str) -> Fingerprints:
        """The prompt's fingerprints; from now on its text explains itself."""
        asked = await _prints("\n".join(prompt_texts(request.endpoint.dialect, request.fields)[0]))
        self._index.own(tenant, asked)
        return asked

    def _take_in(
        self, exchange: Exchange, deployment: str, asked: Fingerprints, answered: Fingerprints, finding: Finding | None
    ) -> None:
        assert exchange.principal is not None
        tenant = exchange.principal.tenant
        prints = [asked]
        if finding is None:
            # Text found to be another's does not become this tenant's own.
            self._index.own(tenant, answered)
            prints.append(answered)
        self._index.add(deployment, tenant, exchange.receipt_id, prints)

    def _check(self, finding: Finding | None) -> Check | None:
        if finding is None:
            return None
        return Check(
            "foreign_text",
            "failed",
            f"{finding.identifiers} identifiers and {finding.shingles} passages of one request of another tenant",
            hard=self.mode == "guard",
            evidence=(("source_receipt", finding.source_receipt),),
        )

    async def hold(self, exchange: Exchange, deployment: str) -> StreamHold | None:
        """What holds a stream back in `guard`; None in the other modes."""
        if self.mode != "guard" or exchange.request is None or exchange.principal is None:
            return None
        tenant = exchange.principal.tenant
        asked = await self._asked(exchange.request, tenant)
        return StreamHold(asked, lambda prints: self._check(self._index.scan(deployment, tenant, prints)))


async def _prints(text: str) -> Fingerprints:
    """Off the event loop where the text is long enough to stall it."""
    if len(text) > _OFF_LOOP:
        return await asyncio.to_thread(fingerprints, text)
    return fingerprints(text)


class StreamHold:
    """Keeps the last words of a stream until they were scanned together with what followed them."""

    def __init__(self, asked: Fingerprints, look: Callable[[Fingerprints], Check | None]) -> None:
        self.asked = asked
        self._look_for = look
        self._held: deque[tuple[bytes, int]] = deque()
        self._text = ""  # the tail of what was scanned, and all that was not
        self._scanned = 0
        self._words = 0

    def pass_on(self, data: bytes, text: str) -> tuple[bytes, Check | None]:
        """Takes the bytes of an event and its text; gives what may go out now, or the check that ends the stream."""
        words = text.count(" ") + (1 if text else 0)
        self._held.append((data, words))
        self._text += text
        self._words += words
        if len(self._text) - self._scanned >= _STEP:
            check = self._look()
            if check is not None:
                return b"", check
            return self._release(), None
        return b"", None

    def finish(self) -> tuple[bytes, Check | None]:
        """The rest, once the answer is complete."""
        check = self._look()
        if check is not None:
            return b"", check
        rest = b"".join(data for data, _ in self._held)
        self._held.clear()
        return rest, None

    def _look(self) -> Check | None:
        check = self._look_for(fingerprints(self._text))
        self._text = self._text[-_TAIL:]
        self._scanned = len(self._text)
        return check

    def _release(self) -> bytes:
        out: list[bytes] = []
        while self._held and self._words - self._held[0][1] >= GUARANTEED_WORDS * 2:
            data, words = self._held.popleft()
            self._words -= words
            out.append(data)
        return b"".join(out)
