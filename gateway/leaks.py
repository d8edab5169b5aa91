"""The leak scan on the line: prompts and answers are taken in, answers are looked at before or as they go out."""

from __future__ import annotations

import asyncio
from typing import Literal

from gateway.admission.counting import prompt_texts
from gateway.exchange import Check, Exchange
from gateway.integrity.fingerprints import GUARANTEED_WORDS, Fingerprints, fingerprints
from gateway.integrity.leak_index import Finding, LeakIndex

Mode = Literal["disabled", "observe", "guard"]
_OFF_LOOP = 200_000
_STEP = 400
_TAIL = 900


class LeakScan:
    """`observe` flags and delivers, `guard` withholds, `disabled` does nothing."""

    def __init__(self, index: LeakIndex, mode: Mode) -> None:
        self._index = index
        self.mode: Mode = mode

    async def whole(self, exchange: Exchange, deployment: str, texts: tuple[str, ...]) -> Check | None:
        """The check of a whole answer; its prompt and itself are taken in afterwards."""
        if self.mode == "disabled" or exchange.request is None or exchange.principal is None:
            return None
        prompt = "\n".join(prompt_texts(exchange.endpoint.dialect, exchange.request.fields)[0])
        answer = "\n".join(texts)
        if len(prompt) + len(answer) > _OFF_LOOP:
            asked, answered = await asyncio.to_thread(lambda: (fingerprints(prompt), fingerprints(answer)))
        else:
            asked, answered = fingerprints(prompt), fingerprints(answer)
        tenant = exchange.principal.tenant
        self._index.own(tenant, asked)
        finding = self._index.scan(deployment, tenant, answered)
        self._take_in(exchange, deployment, asked, answered, finding)
        return self._check(finding)

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

    def hold(self, exchange: Exchange, deployment: str) -> StreamHold | None:
        """What holds a stream back in `guard`; None in the other modes."""
        if self.mode != "guard" or exchange.request is None or exchange.principal is None:
            return None
        prompt = "\n".join(prompt_texts(exchange.endpoint.dialect, exchange.request.fields)[0])
        self._index.own(exchange.principal.tenant, fingerprints(prompt))
        return StreamHold(self, self._index, deployment, exchange.principal.tenant)


class StreamHold:
    """Keeps the last words of a stream until they were scanned together with what followed them."""

    def __init__(self, scan: LeakScan, index: LeakIndex, deployment: str, tenant: str) -> None:
        self._scan = scan
        self._index = index
        self._deployment = deployment
        self._tenant = tenant
        self._held: list[tuple[bytes, int]] = []
        self._text = ""
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
        self._held = []
        return rest, None

    def _look(self) -> Check | None:
        tail = self._text[max(self._scanned - _TAIL, 0) :]
        self._scanned = len(self._text)
        return self._scan._check(self._index.scan(self._deployment, self._tenant, fingerprints(tail)))

    def _release(self) -> bytes:
        out: list[bytes] = []
        while self._held and self._words - self._held[0][1] >= GUARANTEED_WORDS * 2:
            data, words = self._held.pop(0)
            self._words -= words
            out.append(data)
        return b"".join(out)
