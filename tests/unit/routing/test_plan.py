"""Plans: order, fallback rules, cool-off, and reasons for everything that was dropped."""

from __future__ import annotations

from decimal import Decimal

import pytest

from gateway.config.secrets import Secret
from gateway.config.snapshot import Deployment, ModelAlias, Price, Provider, Snapshot, Timeouts
from gateway.errors import UpstreamError, UpstreamFailure, UpstreamTimeout
from gateway.exchange import Candidate, Decision, Narrowing, Reason
from gateway.routing.health import Health
from gateway.routing.plan import plan
from gateway.routing.steps import next_step


def deployment(id: str, *, provider: str = "p", same_as: str = "m", price: str = "1", weight: int = 1) -> Deployment:
    owner = Provider(provider, "openai-compatible", "http://127.0.0.1:1/v1", (Secret("x" * 20),), "eu", True, False)
    cost = Price(Decimal(price), Decimal(price))
    return Deployment(id, owner, "m", "eu", None, 1000, 100, cost, Timeouts(), 1, frozenset({"chat"}), same_as, weight)


def snapshot(*deployments: Deployment) -> Snapshot:
    return Snapshot(1, "", {d.id: d for d in deployments}, {}, {}, {})


def decided(*names: str, denied: tuple[str, ...] = ()) -> Decision:
    candidates = tuple(Candidate(name, name not in denied, (Reason("policy", "said so"),)) for name in names)
    return Decision(True, candidates, "", "")


A, B, C = deployment("a"), deployment("b", same_as="other"), deployment("c")
ALL = snapshot(A, B, C)


@pytest.mark.parametrize(
    ("fallback", "order"), [("deny", ("a",)), ("same_model", ("a", "c")), ("any", ("a", "b", "c"))]
)
def test_fallback_rules(fallback: str, order: tuple[str, ...]) -> None:
    """deny leaves the first, same_model those that serve the same, any all."""
    alias = ModelAlias("x", ("a", "b", "c"), "ordered", fallback)  # type: ignore[arg-type]
    made = plan(ALL, decided("a", "b", "c"), alias, None, None, Health())
    assert made.order == order
    assert {c.deployment for c in made.dropped} == {"a", "b", "c"} - set(order)
    assert all(c.reasons for c in made.dropped)


def test_the_stricter_of_model_and_workload_wins() -> None:
    """A workload that denies fallback cannot be widened by the model."""
    alias = ModelAlias("x", ("a", "b"), "ordered", "any")
    assert plan(ALL, decided("a", "b"), alias, "deny", None, Health()).order == ("a",)


def test_deny_keeps_the_first_even_when_it_rests() -> None:
    """Resting only reorders, and with deny there is nothing to reorder."""
    health = Health()
    for _ in range(3):
        health.started("a")
        health.ended("a", failed=True)
    alias = ModelAlias("x", ("a", "b"), "ordered", "deny")
    assert plan(ALL, decided("a", "b"), alias, None, None, health).order == ("a",)
    alias = ModelAlias("x", ("a", "b"), "ordered", "any")
    assert plan(ALL, decided("a", "b"), alias, None, None, health).order == ("b", "a")


def test_rest_doubles_up_to_five_minutes() -> None:
    """Three failures in a row rest for 10 s, then 20, 40 and so on; a success ends it."""
    now = [0.0]
    health = Health(clock=lambda: now[0])
    expected = [10, 20, 40, 80, 160, 300, 300]
    for _ in range(2):
        health.ended("a", failed=True)
    for seconds in expected:
        health.ended("a", failed=True)
        assert health.condition("a").resting_until == now[0] + seconds
        now[0] += seconds
    health.ended("a", failed=False)
    assert not health.resting("a") and health.condition("a").rests == 0


def test_quarantine_refuses_and_says_so() -> None:
    """A quarantined deployment serves nobody, and traffic does not go where policy did not permit."""
    health = Health(lambda name: Reason("quarantined", "leak") if name == "a" else None)
    alias = ModelAlias("x", ("a", "b"), "ordered", "deny")
    made = plan(ALL, decided("a", "b"), alias, None, None, health)
    assert made.order == () and made.refusal == "quarantined"
    alias = ModelAlias("x", ("a", "b"), "ordered", "any")
    assert plan(ALL, decided("a", "b", denied=("b",)), alias, None, None, health).order == ()


@pytest.mark.parametrize(
    ("narrowing", "order"),
    [
        (Narrowing(only=("b",)), ("b",)),
        (Narrowing(only=("p",)), ("a", "b", "c")),
        (Narrowing(ignore=("a",)), ("b", "c")),
        (Narrowing(order=("c", "a")), ("c", "a", "b")),
        (Narrowing(allow_fallbacks=False), ("a",)),
        (Narrowing(max_price=(("prompt", Decimal("0.5")),)), ()),
        (Narrowing(only=("nobody",)), ()),
        (Narrowing(quantizations=("fp8",)), ()),
    ],
)
def test_the_clients_provider_field_narrows(narrowing: Narrowing, order: tuple[str, ...]) -> None:
    """OpenRouter's meaning, over what policy permitted."""
    alias = ModelAlias("x", ("a", "b", "c"), "ordered", "any")
    assert plan(ALL, decided("a", "b", "c"), alias, None, narrowing, Health()).order == order


def test_strategies_order_by_what_they_say() -> None:
    """lowest_cost by price, least_busy by calls in flight, weighted by weight."""
    cheap = deployment("cheap", price="0.1")
    dear = deployment("dear", price="9")
    both = snapshot(dear, cheap)
    decision = decided("dear", "cheap")
    assert plan(both, decision, ModelAlias("x", (), "lowest_cost", "any"), None, None, Health()).order[0] == "cheap"
    health = Health()
    health.started("dear")
    assert plan(both, decision, ModelAlias("x", (), "least_busy", "any"), None, None, health).order[0] == "cheap"
    heavy = snapshot(deployment("light", weight=1), deployment("heavy", weight=99))
    first = [
        plan(heavy, decided("light", "heavy"), ModelAlias("x", (), "weighted", "any"), None, None, Health()).order[0]
        for _ in range(400)
    ]
    assert first.count("heavy") > 350


def failure(kind: str, status: int | None = None, wait: float | None = None) -> UpstreamFailure:
    return UpstreamFailure(kind, UpstreamError("x"), status=status, retry_after_s=wait)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("what", "tries", "action"),
    [
        (failure("connect"), 1, "again"),
        (failure("connect"), 2, "next"),
        (failure("server", 500), 1, "again"),
        (failure("limited", 429, 1.5), 1, "again"),
        (failure("limited", 429, 30), 1, "next"),
        (failure("limited", 429), 1, "next"),
        (UpstreamFailure("first_byte", UpstreamTimeout("x")), 1, "next"),
        (failure("protocol"), 1, "next"),
        (failure("refused", 401), 1, "next"),
        (failure("refused", 400), 1, "stop"),
        (failure("refused", 404), 1, "stop"),
    ],
)
def test_steps_after_a_failure(what: UpstreamFailure, tries: int, action: str) -> None:
    """Same deployment again, next candidate, or the end, as the contract says."""
    assert next_step(what, tries, 1).action == action
