"""Deterministic checks of every exchange: does what came back fit what was sent?

They find inconsistency; they never prove a model. A check that does not apply is absent, one that cannot decide is
`inconclusive` and never shown as passed. Sources: integrity.md C-R2 (token conservation) and C-R3 (binding), and the
recorded replies of vLLM 0.32 (`id` is `chatcmpl-<X-Request-Id>`).
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from gateway.exchange import Check, EventView, TokenCount, Usage, VerdictName

MIN_ESTIMATE = 200
MIN_RATIO = 0.25
CREATED_SKEW_S = 300


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known about one answer, however it came."""

    deployment: str
    echoes_ids: bool  # engines whose response id carries our request id
    sent_id: str
    response_id: str | None
    accepted: bool | None  # providers' judgement of the served model; None when nothing was said
    created: int | None
    received: float  # Unix time, s
    count: TokenCount | None
    usage: Usage | None
    context_window: int | None
    finished: bool  # every choice has its finish reason, or the dialect has none
    has_choices: bool
    fresh_salt: bool = False


class SeenIds:
    """Response ids of late, by deployment: an upstream that repeats one has answered somebody else."""

    def __init__(self, keep: int = 4096) -> None:
        self._seen: dict[str, OrderedDict[str, str]] = {}
        self._keep = keep

    def first_time(self, deployment: str, response_id: str, sent_id: str) -> bool:
        """Whether no other request of ours was answered with this id by this deployment; it is known from now on."""
        seen = self._seen.get(deployment)
        if seen is None:
            seen = self._seen[deployment] = OrderedDict()
        known = seen.get(response_id)
        if known is not None:
            return known == sent_id
        seen[response_id] = sent_id
        if len(seen) > self._keep:
            seen.popitem(last=False)
        return True


def check_answer(facts: Facts, seen: SeenIds) -> list[Check]:
    """All checks of a whole answer, or of a stream that has ended."""
    checks = [*identity_checks(facts, seen), *usage_checks(facts)]
    if facts.has_choices:
        checks.append(
            _check(
                "completeness", facts.finished, "every choice has its finish reason", "a choice has no finish reason"
            )
        )
    return checks


def identity_checks(facts: Facts, seen: SeenIds) -> list[Check]:
    """What the first bytes of an answer already decide: whose answer it is, and which model's."""
    checks = []
    if facts.echoes_ids:
        bound = facts.response_id is not None and facts.sent_id in facts.response_id
        checks.append(
            _check("binding", bound, "the response id carries the request id", "the response id is another request's")
        )
    if facts.response_id:
        new = seen.first_time(facts.deployment, facts.response_id, facts.sent_id)
        if not new or facts.echoes_ids:
            checks.append(
                _check(
                    "unique_id", new, "the response id is new", "the response id was seen before", hard=facts.echoes_ids
                )
            )
    if facts.accepted is None:
        checks.append(Check("model", "inconclusive", "the upstream did not say which model it served"))
    else:
        checks.append(
            _check(
                "model",
                facts.accepted,
                "the deployment may serve this model",
                "the deployment may not serve this model",
            )
        )
    if facts.created is not None and abs(facts.created - facts.received) > CREATED_SKEW_S and facts.echoes_ids:
        checks.append(Check("created", "failed", "the answer says it was made at another time", hard=False))
    return checks


def usage_checks(facts: Facts) -> list[Check]:
    """Token conservation and capacity: was the prompt that was read the prompt that was sent, and did it fit?"""
    usage, count = facts.usage, facts.count
    checks: list[Check] = []
    window = facts.context_window
    if usage is None:
        if count is not None and count.method == "estimated":
            checks.append(Check("token_conservation", "inconclusive", "the upstream reported no usage"))
        known = count is not None and count.prompt is not None and count.method != "unknown"
        if window is not None and known and count is not None and (count.prompt or 0) > window:
            checks.append(Check("capacity", "failed", "an answer to more tokens than the window holds"))
        return checks
    if count is not None and count.prompt is not None and count.method != "unknown":
        checks.append(_conservation(count, usage))
    if window is not None:
        over = usage.prompt > window or (
            count is not None and count.prompt is not None and count.method == "exact" and count.prompt > window
        )
        checks.append(
            _check("capacity", not over, "prompt within the window", "an answer to more tokens than the window holds")
        )
    if facts.fresh_salt and usage.cached:
        checks.append(Check("cache_isolation", "failed", "cached tokens on a salt that was never used"))
    return checks


def _conservation(count: TokenCount, usage: Usage) -> Check:
    assert count.prompt is not None
    if count.method == "exact":
        return _check(
            "token_conservation",
            usage.prompt == count.prompt,
            "the upstream read as many tokens as were sent",
            f"the upstream read {usage.prompt} tokens of {count.prompt}",
        )
    if count.prompt >= MIN_ESTIMATE and usage.prompt < count.prompt * MIN_RATIO:
        return Check("token_conservation", "failed", f"the upstream read {usage.prompt} tokens of about {count.prompt}")
    verdict: VerdictName = "passed" if count.prompt >= MIN_ESTIMATE else "inconclusive"
    if verdict == "inconclusive":
        # Too short for the estimate's band to tell anything: the check does not apply.
        return (
            Check("token_conservation", "passed", "short prompt, reported count plausible")
            if usage.prompt > 0
            else Check("token_conservation", "failed", "the upstream read no tokens", hard=False)
        )
    return Check("token_conservation", verdict, "the reported prompt is within the estimate's band")


class StreamChecks:
    """The same for a stream, event by event: whose stream it is must not change, and nothing follows its end."""

    __slots__ = ("_choices", "_finished", "_id", "_model", "_seen")

    def __init__(self, choices: int) -> None:
        self._choices = choices
        self._seen: set[int] = set()
        self._finished: set[int] = set()
        self._id: str | None = None
        self._model: str | None = None

    def event(self, view: EventView, *, has_content: bool) -> Check | None:
        """A failed check, or None. Call before the event is delivered."""
        failed = self.content() if has_content else None
        if failed is None and view.id and view.id != self._id:
            if self._id is not None:
                failed = Check("one_id", "failed", "an event of the stream carries another id")
            self._id = view.id
        if failed is None and view.model and view.model != self._model:
            if self._model is not None:
                failed = Check("one_model", "failed", "an event of the stream names another model")
            self._model = view.model
        self._seen.update(view.choices_seen)
        self._finished.update(index for index, _ in view.finish_reasons)
        return failed

    def content(self) -> Check | None:
        """Text arrives: it must not come after every choice has finished."""
        if len(self._finished) >= self._choices and self._seen <= self._finished:
            return Check("after_end", "failed", "content followed the end of the stream")
        return None


def _check(name: str, good: bool, passed: str, failed: str, *, hard: bool = True) -> Check:
    return Check(name, "passed", passed, hard) if good else Check(name, "failed", failed, hard)
