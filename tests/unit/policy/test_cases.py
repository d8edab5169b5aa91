"""The cases beside the policies: facts and the decision they must give."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from gateway.config.loader import load
from gateway.exchange import Endpoint, Principal
from gateway.policy.engine import PolicyEngine
from gateway.policy.facts import patterns
from gateway.policy.source import PolicyProblem, shipped
from gateway.policy.source import load as load_policies

CASES = sorted((shipped() / "cases").glob("*.yaml"))


def cases() -> list[Any]:
    found = []
    for file in CASES:
        for case in yaml.safe_load(file.read_text("utf-8")):
            found.append(pytest.param(case, id=f"{file.stem}: {case['name']}"))
    return found


def decide(case: dict[str, Any], tmp_path: Path, policies: list[Path] | None = None, defaults: bool = True):  # type: ignore[no-untyped-def]
    provider = {
        "kind": "openai-compatible",
        "base_url": "http://127.0.0.1:1/v1",
        "region": "eu",
        **case.get("provider", {}),
    }
    config = {
        "admin": {"token": "an-admin-token-of-decent-length-1"},
        "providers": {"prov": provider},
        "deployments": [{"id": "dep", "provider": "prov", "model": "m", **case.get("deployment", {})}],
        "models": {"model": {"deployments": ["dep"]}},
        "tenants": [
            {
                "id": "tenant",
                "allow": {"providers": ["*"], "regions": ["*"], "models": ["*"], **case.get("allow", {})},
                "require": case.get("require", {}),
                "workloads": case.get("workloads", {}),
            }
        ],
    }
    file = tmp_path / "assay.yaml"
    file.write_text(yaml.safe_dump(config), "utf-8")
    loaded = load(file, {})
    assert loaded.snapshot is not None, loaded.problems
    if policies is None:
        policies = [shipped() / "examples" / name for name in case.get("policies", [])]
    engine = PolicyEngine(load_policies(policies, default_policies=defaults))
    alias = loaded.snapshot.models["model"]
    return engine.decide(loaded.snapshot, Principal("tenant", "k"), alias, case.get("workload"), Endpoint.chat)


@pytest.mark.parametrize("case", cases())
def test_case(case: dict[str, Any], tmp_path: Path) -> None:
    """The facts of the case give its decision, for the reasons it names."""
    decision = decide(case, tmp_path)
    if case["decision"] == "hidden":
        assert not decision.visible
        assert set(decision.determining) == set(case.get("hidden_by", ["no-permit"]))
        return
    assert decision.visible
    assert bool(decision.permitted) == (case["decision"] == "permit")
    if case["decision"] == "deny":
        assert {r.id for r in decision.candidates[0].reasons} == set(case["because"])


def test_without_policies_nothing_is_permitted(tmp_path: Path) -> None:
    """No policy, no permit: the default is to deny."""
    assert not decide({}, tmp_path, [], defaults=False).visible


BAD = {
    "no id": '@reason("x") forbid (principal, action, resource);',
    "no reason": '@id("x") forbid (principal, action, resource);',
    "duplicate": '@id("provider-not-allowed") @reason("x") forbid (principal, action, resource);',
    "unknown fact": (
        '@id("x") @reason("x") forbid (principal is Tenant, action == Action::"infer", resource is Deployment) '
        "when { resource.nope };"
    ),
    "not cedar": "forbid when you like",
}


@pytest.mark.parametrize("kind", BAD)
def test_bad_policies_are_refused_with_their_file(kind: str, tmp_path: Path) -> None:
    """Missing annotations, duplicate ids, unknown facts and syntax errors stop the load and name the file."""
    file = tmp_path / "own.cedar"
    file.write_text(BAD[kind], "utf-8")
    with pytest.raises(PolicyProblem) as caught:
        load_policies([file])
    assert all("own.cedar" in problem for problem in caught.value.problems)


def test_an_evaluation_error_denies(tmp_path: Path) -> None:
    """Cedar skips a forbid that errs, which would fail open; here it denies."""
    file = tmp_path / "own.cedar"
    file.write_text(
        '@id("errs") @reason("x") forbid (principal is Tenant, action == Action::"infer", resource is Deployment) '
        "when { resource.review_age_days * 9223372036854775807 > 0 };",
        "utf-8",
    )
    decision = decide({}, tmp_path, [file])
    assert decision.permitted == ()
    assert [r.id for r in decision.candidates[0].reasons] == ["evaluation-error"]


@pytest.mark.parametrize("rule", sorted(p.id for p in load_policies([]).rules if p.effect == "forbid"))
def test_every_forbid_decides_a_case(rule: str) -> None:
    """A default policy that no case would miss could be lost unnoticed."""
    named = {r for file in CASES for case in yaml.safe_load(file.read_text("utf-8")) for r in case.get("because", [])}
    hidden = {
        r for file in CASES for case in yaml.safe_load(file.read_text("utf-8")) for r in case.get("hidden_by", [])
    }
    assert rule in named | hidden


def test_patterns_match_whole_segments() -> None:
    """`prov/*` matches prov/m, never provz/m or prov/a/b."""
    assert set(patterns("prov/m")) == {"*", "prov/m", "prov/*", "*/m", "*/*"}
    assert "prov/*" not in patterns("provz/m") and "prov/*" not in patterns("prov/a/b")
