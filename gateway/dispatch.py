"""Attempts: one plan is worked off until a deployment has begun to answer, or nobody is left to ask.

A whole answer has arrived completely when `dispatch` returns; of a stream the first event has. What retry, fallback
and cool-off do is `routing.steps`; what an answer is worth is decided after this.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import orjson

from gateway.config.secrets import Secret
from gateway.config.snapshot import Deployment, Snapshot
from gateway.errors import AssayError, NoHealthyDeployment, UpstreamFailure, UpstreamTruncated
from gateway.exchange import AnswerView, Attempt, Effective, EventView, Exchange, InferenceRequest
from gateway.ids import attempt_id
from gateway.protocols.registry import translation
from gateway.protocols.sse import SseError
from gateway.protocols.stream import Relay, Relayed
from gateway.protocols.tolerant import NotJson
from gateway.protocols.translation import Translation
from gateway.protocols.views import NotAnAnswer, read_answer
from gateway.providers.adapters import AttemptIds, Credentials, cache_salt, prepare
from gateway.providers.decoding import protocol_failure
from gateway.providers.evidence import effective
from gateway.providers.litellm import Litellm, LitellmAnswer, refuse_unknown
from gateway.providers.pool import Origin
from gateway.providers.rejection import failure_of, failure_of_event
from gateway.providers.transport import Transport, UpstreamAnswer
from gateway.receipts.commitments import Committer, commit
from gateway.routing.health import Health
from gateway.routing.steps import counts_against, next_step

_MAX_ERROR_BODY = 64 * 1024


@dataclass(slots=True)
class Answered:
    """A deployment that answers: whole (`body`, `view`), or a stream whose first events are in `pending`."""

    deployment: Deployment
    ids: AttemptIds
    attempt: Attempt
    answer: UpstreamAnswer | LitellmAnswer
    effective: Effective
    upstream_response: Committer | None  # None where the raw bytes cannot be had
    view: AnswerView | None = None
    body: bytes = b""
    repairs: tuple[str, ...] = ()
    relay: Relay | None = None
    pending: list[Relayed] = field(default_factory=list)

    def commit_response(self, exchange: Exchange) -> None:
        """Fixes the commitment to the raw bytes that came, as far as they came."""
        if self.upstream_response is not None:
            exchange.commitments["upstream_response"] = self.upstream_response.done()


@dataclass(frozen=True, slots=True)
class _Opened:
    """An attempt whose upstream has begun to answer with 200."""

    request: InferenceRequest
    bridge: Translation
    deployment: Deployment
    ids: AttemptIds
    attempt: Attempt
    answer: UpstreamAnswer | LitellmAnswer
    raw: Committer | None

    def answered(self, view: AnswerView | EventView, *, ended: bool) -> Answered:
        """The answer so far, with the evidence that this view of it gives."""
        attempt = replace(self.attempt, received_id=view.id)
        if ended:
            attempt = replace(attempt, ended=time.time())
        who = effective(self.deployment, self.answer.headers, view)
        return Answered(self.deployment, self.ids, attempt, self.answer, who, self.raw)


class Dispatcher:
    """Sends attempts. `salt_key` is the current epoch's key for prefix-cache salts."""

    def __init__(
        self, transport: Transport, health: Health, salt_key: Callable[[], bytes], idempotency_key: bytes
    ) -> None:
        self._transport = transport
        self._litellm = Litellm()
        self._health = health
        self._credentials = Credentials()
        self._salt_key = salt_key
        self._idempotency_key = idempotency_key

    async def dispatch(self, exchange: Exchange, snapshot: Snapshot, order: tuple[str, ...]) -> Answered:
        """The first deployment of the plan that answers; raises the last attempt's error when none does."""
        last: UpstreamFailure | None = None
        for name in order:
            deployment = snapshot.deployments[name]
            tries = 0
            while True:
                tries += 1
                try:
                    return await self._attempt(exchange, deployment)
                except UpstreamFailure as failure:
                    last = failure
                    step = next_step(failure, tries, deployment.retries)
                if step.action == "again":
                    if step.wait_s:
                        await asyncio.sleep(step.wait_s)
                    continue
                break
            if step.action == "stop":
                break
        if last is None:
            raise NoHealthyDeployment("no deployment of this model can serve now")
        raise last.answer

    async def _attempt(self, exchange: Exchange, deployment: Deployment) -> Answered:
        request, principal = exchange.request, exchange.principal
        assert request is not None and principal is not None
        ids = self._ids(request, principal.tenant, deployment)
        credential = self._credentials.next(deployment.provider)
        started, begun = time.time(), time.monotonic()
        attempt = Attempt(
            deployment.id,
            deployment.provider.id,
            deployment.region,
            host_of(deployment),
            deployment.model,
            started,
            started,
            None,
            None,
            ids.sent_id,
        )
        self._health.started(deployment.id)
        status: int | None = None
        try:
            answered = await self._send(exchange, request, deployment, ids, credential, attempt, begun)
            status = answered.answer.status
            self._health.ended(deployment.id, failed=False, latency_s=time.monotonic() - begun)
            return answered
        except UpstreamFailure as failure:
            if counts_against(failure):
                self._health.ended(deployment.id, failed=True)
            else:
                self._health.neither(deployment.id)
            exchange.attempts.append(replace(attempt, ended=time.time(), status=failure.status, error=failure.kind))
            raise
        except AssayError:
            # What cannot be bridged or passed on is the request's fault: no attempt was made.
            self._health.neither(deployment.id)
            raise
        except asyncio.CancelledError:
            self._health.neither(deployment.id)
            exchange.attempts.append(replace(attempt, ended=time.time(), status=status, error="cancelled"))
            raise
        finally:
            exchange.upstream_ms += (time.monotonic() - begun) * 1000

    def _ids(self, request: InferenceRequest, tenant: str, deployment: Deployment) -> AttemptIds:
        salt = cache_salt(self._salt_key(), tenant, deployment.model) if deployment.provider.self_hosted else ""
        idempotency = None
        if request.idempotency_key:
            idempotency = cache_salt(self._idempotency_key, tenant, request.idempotency_key)
        return AttemptIds(attempt_id(), salt, idempotency)

    async def _send(
        self,
        exchange: Exchange,
        request: InferenceRequest,
        deployment: Deployment,
        ids: AttemptIds,
        credential: Secret | None,
        attempt: Attempt,
        begun: float,
    ) -> Answered:
        bridge = translation(request.endpoint.dialect, deployment.endpoints)
        assert bridge is not None, "the plan holds only deployments that can serve the endpoint"
        body = bridge.request(request, deployment.model, deployment.max_output_tokens)
        raw: Committer | None = None
        sent: bytes | None = None
        answer: UpstreamAnswer | LitellmAnswer
        if deployment.provider.kind == "litellm":
            fields = request.fields if body is None else orjson.loads(body)
            refuse_unknown(bridge.native, fields)
            answer = await self._litellm.open(deployment, bridge.native, fields, credential)
        else:
            outgoing = prepare(deployment, bridge.native, request, body, ids, credential)
            sent, raw = outgoing.body, Committer()
            answer = await self._transport.open(
                deployment.provider, credential, deployment.timeouts, outgoing, raw.update
            )
        try:
            if answer.status != 200:
                content = (await answer.read())[:_MAX_ERROR_BODY]
                raise failure_of(deployment.provider, answer.status, answer.headers, content)
            attempt = replace(attempt, status=200, tls_spki=answer.tls_spki)
            streamed = (answer.header("content-type") or "").startswith("text/event-stream")
            opened = _Opened(request, bridge, deployment, ids, attempt, answer, raw)
            if request.stream and streamed:
                answered = await self._first_events(opened)
            elif request.stream:
                raise protocol_failure("the upstream did not answer with an event stream")
            else:
                answered = await self._whole(opened)
        except BaseException:
            answer.close()
            raise
        if sent is not None:
            exchange.commitments["upstream_request"] = commit(sent)
        exchange.first_byte_ms = round((time.monotonic() - begun) * 1000)
        return answered

    async def _whole(self, opened: _Opened) -> Answered:
        body = await opened.answer.read()
        try:
            view = read_answer(opened.bridge.native, body)
            translated = opened.bridge.answer(body, view, opened.request)
        except (NotJson, NotAnAnswer, ValueError):
            raise protocol_failure("the upstream's answer is not what its endpoint answers") from None
        answered = opened.answered(view, ended=True)
        answered.view, answered.body, answered.repairs = view, translated.body, translated.repairs
        return answered

    async def _first_events(self, opened: _Opened) -> Answered:
        relay = opened.bridge.stream(opened.request)
        while True:
            chunk = await opened.answer.next_chunk()
            if not chunk:
                raise ended_early()
            items = feed(relay, chunk)
            for item in items:
                view = item.view
                if view is None or view.kind == "ping":
                    continue
                if view.kind == "error":
                    raise failure_of_event(opened.deployment.provider, view.error or {})
                if view.kind == "done":
                    raise ended_early()
                answered = opened.answered(view, ended=False)
                answered.relay, answered.pending = relay, items
                return answered


def feed(relay: Relay, chunk: bytes) -> list[Relayed]:
    """What these bytes of the upstream complete. Raises a `protocol` failure."""
    try:
        return relay.feed(chunk)
    except (NotJson, NotAnAnswer, SseError):
        raise protocol_failure("the upstream's stream is not what its endpoint streams") from None


def host_of(deployment: Deployment) -> str:
    """Whom an attempt connects to; through litellm nobody can say."""
    return Origin.of(deployment.provider.base_url).authority if deployment.provider.base_url else "litellm"


def ended_early() -> UpstreamFailure:
    """A stream without a first event."""
    return UpstreamFailure("truncated", UpstreamTruncated("the upstream's stream ended before its first event"))
