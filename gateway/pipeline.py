"""The line: authenticate → admit → decide → plan → dispatch → inspect → seal → reply.

Every inference request, of every endpoint and dialect, streaming or not, runs through `Pipeline.run` from top to
bottom. What becomes of it is gathered in one `Exchange`, and `_finish` runs exactly once for each, however it ends.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Protocol

from gateway.admission.counting import estimate, estimate_text
from gateway.admission.limits import LocalLimiter, Reservation
from gateway.admission.media import refuse_foreign_references
from gateway.admission.parse import client_request_id, parse_count_tokens, parse_request, require_json
from gateway.admission.pricing import cost, most
from gateway.capacity import CapacityGate, nobody
from gateway.config.snapshot import Deployment, Snapshot
from gateway.dispatch import Answered, Dispatcher
from gateway.errors import (
    AssayError,
    InsufficientQuota,
    InternalError,
    RateLimitExceeded,
    ReceiptUnavailable,
    UnsupportedParameter,
    render,
)
from gateway.exchange import Check, Endpoint, Exchange, Principal, Reason, Usage
from gateway.ids import receipt_id, request_id
from gateway.integrity.checks import Facts, SeenIds, check_answer
from gateway.integrity.verdict import Rules, integrity_of, withheld_because
from gateway.leaks import LeakScan
from gateway.policy.engine import PolicyEngine, require_permitted, stores_where_forbidden, workload_of
from gateway.protocols.messages_stream import count_tokens_answer
from gateway.protocols.registry import translation
from gateway.providers.evidence import served_is_accepted
from gateway.receipts.commitments import commit
from gateway.replies import ReplyPort, header_pairs
from gateway.routing.health import Health
from gateway.routing.plan import plan as make_plan
from gateway.streaming import StreamSession

LOG = logging.getLogger("assay.pipeline")
Headers = list[tuple[bytes, bytes]]


class Authenticate(Protocol):
    """identity.Authenticator, as the line uses it."""

    async def authenticate(self, headers: Headers) -> Principal: ...


class Sealer(Protocol):
    """Makes, signs and queues the receipt; the returned awaitable is done when it is durable."""

    def seal(self, exchange: Exchange) -> Awaitable[None]: ...


@dataclass(slots=True)
class Stages:
    """What the composition root wires together."""

    snapshot: Callable[[], Snapshot]
    authenticator: Authenticate
    policy: Callable[[], PolicyEngine]
    health: Health
    dispatcher: Dispatcher
    limiter: LocalLimiter
    sealer: Sealer
    capacity: CapacityGate
    leaks: LeakScan
    seen: SeenIds
    rules: Callable[[], Rules]
    observe: Callable[[Exchange], None]
    header_wait_s: float
    keep_alive_s: float
    max_body_bytes: int


class Pipeline:
    """The line itself. One per process."""

    def __init__(self, stages: Stages) -> None:
        self.stages = stages

    async def run(
        self, endpoint: Endpoint, headers: Headers, read_body: Callable[[int], Awaitable[bytes]], reply: ReplyPort
    ) -> None:
        """Answers one request. Raises only what has no receipt: 401, 413, 415 and a client that left early."""
        stages = self.stages
        principal = await stages.authenticator.authenticate(headers)
        require_json(headers)
        exchange = Exchange(request_id(), receipt_id(), endpoint, time.time(), time.monotonic(), principal=principal)
        exchange.raw_body = await read_body(stages.max_body_bytes)
        task = asyncio.current_task()
        reply.on_gone(task.cancel if task else None)
        reservation: Reservation | None = None
        session: StreamSession | None = None
        try:
            exchange.commitments["request"] = commit(exchange.raw_body)
            snapshot = stages.snapshot()
            self._admit(exchange, headers)
            self._decide(exchange, snapshot)
            await self._plan(exchange, snapshot)
            reservation = self._reserve(exchange, snapshot)
            if exchange.stream:
                session = StreamSession(
                    exchange,
                    reply,
                    stages.header_wait_s,
                    stages.keep_alive_s,
                    stages.limiter.headers(reservation),
                    stages.leaks,
                )
                session.expect()
            assert exchange.plan is not None
            answered = await stages.dispatcher.dispatch(exchange, snapshot, exchange.plan.order)
            if session is None:
                await self._answer_whole(exchange, answered, reply, reservation)
            else:
                await session.relay(answered, self._inspect, self._before_end(exchange, answered, reservation))
        except asyncio.CancelledError:
            await self._client_left(exchange, session, reservation)
        except AssayError as error:
            await self._refuse(exchange, error, reply, session, reservation)
        except Exception:
            LOG.exception("request failed", extra={"request_id": exchange.request_id})
            await self._refuse(exchange, InternalError("an internal error occurred"), reply, session, reservation)
        finally:
            if session is not None:
                session.close()
            if reservation is not None:
                stages.limiter.settle(reservation, 0, None)

    async def count_tokens(
        self, headers: Headers, read_body: Callable[[int], Awaitable[bytes]], reply: ReplyPort
    ) -> None:
        """`/v1/messages/count_tokens`: the same door and the same policy; nothing is sent to a provider to answer."""
        stages = self.stages
        principal = await stages.authenticator.authenticate(headers)
        request = parse_count_tokens(await read_body(stages.max_body_bytes), headers)
        snapshot = stages.snapshot()
        workload = workload_of(snapshot, principal, request.workload)
        alias = snapshot.models.get(request.model)
        decision = stages.policy().decide(snapshot, principal, alias, workload, Endpoint.messages)
        require_permitted(decision, request.model)
        tokens = await stages.capacity.count(snapshot.deployments[decision.permitted[0]], request)
        reply.send(200, [("x-request-id", request_id())], count_tokens_answer(tokens))

    # admit, decide, plan

    def _admit(self, exchange: Exchange, headers: Headers) -> None:
        exchange.client_request_id = client_request_id(headers)
        request = parse_request(exchange.endpoint, exchange.raw_body, headers)
        exchange.request = request
        # No provider-side state is kept for tenants yet, so whatever a request names of it is nobody's.
        refuse_foreign_references(request, lambda kind, id: False)
        exchange.requested_model = request.model
        exchange.stream = request.stream
        exchange.session = request.session

    def _decide(self, exchange: Exchange, snapshot: Snapshot) -> None:
        request, principal = exchange.request, exchange.principal
        assert request is not None and principal is not None
        alias = snapshot.models.get(request.model)
        exchange.workload = workload_of(snapshot, principal, request.workload)
        decision = self.stages.policy().decide(snapshot, principal, alias, exchange.workload, exchange.endpoint)
        exchange.decision = decision
        require_permitted(decision, request.model)
        if request.fields.get("store") is True and stores_where_forbidden(
            snapshot, principal.tenant, exchange.workload
        ):
            raise UnsupportedParameter("`store` is refused where zero retention is required", param="store")

    async def _plan(self, exchange: Exchange, snapshot: Snapshot) -> None:
        request, principal = exchange.request, exchange.principal
        assert request is not None and principal is not None and exchange.decision is not None
        tenant = snapshot.tenants[principal.tenant]
        workload = tenant.workloads.get(exchange.workload) if exchange.workload else None

        def able(deployment: Deployment) -> Reason | None:
            if translation(exchange.endpoint.dialect, deployment.endpoints) is None:
                return Reason("endpoint-not-offered", "The deployment does not offer this endpoint.")
            if request.remote_media and deployment.provider.self_hosted:
                return Reason("remote-media", "Self-hosted engines take media only as data: URLs.")
            return None

        plan = make_plan(
            snapshot,
            exchange.decision,
            snapshot.models[request.model],
            workload.fallback if workload else None,
            request.narrowing,
            self.stages.health,
            able,
        )
        exchange.plan = plan
        exchange.count = estimate(request)
        if not plan.order:
            raise nobody(plan)
        exchange.plan = await self.stages.capacity.fitting(exchange, snapshot, plan)

    def _reserve(self, exchange: Exchange, snapshot: Snapshot) -> Reservation | None:
        request, principal, plan = exchange.request, exchange.principal, exchange.plan
        assert request is not None and principal is not None and plan is not None and exchange.count is not None
        tenant = snapshot.tenants[principal.tenant]
        limiter = self.stages.limiter
        if not limiter.applies(principal, tenant):
            return None
        prompt = exchange.count.prompt or 0
        worst: Decimal | None = Decimal(0)
        tokens = prompt
        for name in plan.order:
            deployment = snapshot.deployments[name]
            output = request.max_output_tokens or deployment.max_output_tokens or 0
            tokens = max(tokens, prompt + output * request.choices)
            price = most(deployment.price, prompt, output * request.choices)
            worst = None if price is None or worst is None else max(worst, price)
        return limiter.reserve(principal, tenant, request.model, tokens, worst)

    # inspect

    def _inspect(
        self,
        exchange: Exchange,
        answered: Answered,
        *,
        finished: bool,
        usage: Usage | None,
        further: Check | None = None,
    ) -> AssayError | None:
        """Runs the checks on what came back; returns the error that must take the answer's place, if any."""
        deployment, who = answered.deployment, answered.effective
        accepted = served_is_accepted(deployment, who.model.value)
        view = answered.view
        facts = Facts(
            deployment.id,
            deployment.provider.self_hosted,
            answered.ids.sent_id,
            who.response_id,
            accepted,
            view.created if view else None,
            time.time(),
            exchange.count,
            usage,
            deployment.context_window,
            finished,
            exchange.endpoint is not Endpoint.embeddings,
        )
        exchange.effective = who
        exchange.substituted = accepted is False
        exchange.checks = check_answer(facts, self.stages.seen)
        if further is not None:
            exchange.checks.append(further)
        error = withheld_because(exchange.checks, self.stages.rules())
        exchange.integrity = integrity_of(exchange.checks, withheld=error is not None)
        return error

    async def _answer_whole(
        self, exchange: Exchange, answered: Answered, reply: ReplyPort, reservation: Reservation | None
    ) -> None:
        view = answered.view
        assert view is not None and exchange.request is not None
        exchange.attempts.append(answered.attempt)
        answered.commit_response(exchange)
        exchange.usage = view.usage
        finished = all(reason for reason in view.finish_reasons) if view.finish_reasons else bool(view.texts == ())
        foreign = await self.stages.leaks.whole(exchange, answered.deployment.id, view.texts)
        error = self._inspect(exchange, answered, finished=finished, usage=view.usage, further=foreign)
        exchange.cost_usd = cost(answered.deployment.price, view.usage)
        if error is not None:
            raise error
        body = answered.body
        exchange.repairs += answered.repairs
        exchange.outcome = "completed"
        exchange.commitments["response"] = commit(body)
        self._settle(exchange, reservation)
        await self.stages.sealer.seal(exchange)
        reply.on_gone(None)
        reply.send(200, header_pairs(exchange, self.stages.limiter.headers(reservation)), body)
        self.stages.observe(exchange)

    # seal

    def _before_end(
        self, exchange: Exchange, answered: Answered, reservation: Reservation | None
    ) -> Callable[[], Awaitable[None]]:
        """What happens between a stream's last event and its end marker: the bill, and the durable receipt."""

        async def seal() -> None:
            exchange.cost_usd = cost(answered.deployment.price, exchange.usage)
            self._settle(exchange, reservation)
            await self.stages.sealer.seal(exchange)
            self.stages.observe(exchange)

        return seal

    def _settle(self, exchange: Exchange, reservation: Reservation | None) -> None:
        if reservation is not None:
            usage = exchange.usage
            self.stages.limiter.settle(
                reservation, usage.prompt + usage.completion if usage else None, exchange.cost_usd
            )

    async def _client_left(
        self, exchange: Exchange, session: StreamSession | None, reservation: Reservation | None
    ) -> None:
        """The client went away: what was delivered is billed, and the receipt is written all the same."""
        if exchange.outcome == "completed":
            return
        exchange.outcome = "cancelled"
        self._unfinished(exchange, session)
        self._settle(exchange, reservation)
        self._forget(self.stages.sealer.seal(exchange))
        self.stages.observe(exchange)

    def _unfinished(self, exchange: Exchange, session: StreamSession | None) -> None:
        """Attempt, commitments and estimated usage of a stream that did not reach its end."""
        if session is None or session.answered is None:
            return
        answered = session.answered
        session.stop()
        if exchange.effective is None:
            exchange.effective = answered.effective
        if exchange.usage is None:
            prompt = exchange.count.prompt if exchange.count and exchange.count.prompt else 0
            exchange.usage = Usage(prompt, max(estimate_text(session.text()), session.events))
            exchange.usage_estimated = True
        exchange.cost_usd = cost(answered.deployment.price, exchange.usage)
        answered.commit_response(exchange)

    async def _refuse(
        self,
        exchange: Exchange,
        error: AssayError,
        reply: ReplyPort,
        session: StreamSession | None,
        reservation: Reservation | None,
    ) -> None:
        """An error is the answer: with its status where nothing was sent, else as the stream's last event."""
        exchange.error = error
        opened = session is not None and session.opened
        exchange.outcome = (
            "interrupted" if opened else "failed" if exchange.attempts or exchange.effective else "refused"
        )
        if error.status == 500:
            exchange.outcome = "failed"
        if error.type == "integrity_error":
            exchange.integrity = "failed"
        self._unfinished(exchange, session)
        self._settle(exchange, reservation)
        if session is not None and opened:
            session.commit_error(error)
        else:
            body = render(error, anthropic=exchange.endpoint is Endpoint.messages, receipt=exchange.receipt_id)
            exchange.commitments["response"] = commit(body)
        sealed = self.stages.sealer.seal(exchange)
        if isinstance(error, RateLimitExceeded | InsufficientQuota | ReceiptUnavailable):
            self._forget(sealed)
        else:
            try:
                await sealed
            except ReceiptUnavailable as unavailable:
                error = unavailable
                body = render(error, anthropic=exchange.endpoint is Endpoint.messages)
            except asyncio.CancelledError:
                self.stages.observe(exchange)
                return
        reply.on_gone(None)
        if session is not None and opened:
            session.end_with_error(error)
        else:
            extra = list(error.headers) or list(self.stages.limiter.headers(reservation))
            if error.retry_after_s is not None:
                extra.append(("retry-after", str(error.retry_after_s)))
            reply.send(error.status, header_pairs(exchange, tuple(extra)), body)
        self.stages.observe(exchange)

    def _forget(self, sealed: Awaitable[None]) -> None:
        """A receipt that nobody waits for; its failure is logged, as its caller is gone."""
        future = asyncio.ensure_future(sealed)

        def done(finished: asyncio.Future[None]) -> None:
            if not finished.cancelled() and finished.exception() is not None:
                LOG.error("a receipt could not be recorded")

        future.add_done_callback(done)
