"""A configuration is read as it was meant, or every problem in it is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.config.document import read
from gateway.config.loader import load
from gateway.config.secrets import Secret

DATA = Path(__file__).resolve().parents[2] / "data"
ENV = {
    "ASSAY_ADMIN_TOKEN": "an-admin-token-of-decent-length-1",
    "OPENAI_API_KEY": "provider-credential",
    "ACME_KEY": "sk-acme-0f9e8d7c6b5a",
}


def written(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "assay.yaml"
    file.write_text(text, "utf-8")
    return file


def test_the_contracts_example_is_valid() -> None:
    """The documented example loads without a problem."""
    loaded = load(DATA / "contract_example.yaml", ENV)
    assert loaded.problems == []
    assert loaded.snapshot is not None
    assert loaded.snapshot.deployments["gpt-4o-openai"].pinned
    assert loaded.snapshot.tenants["acme"].workloads["healthcare"].fallback == "deny"


def test_an_unset_variable_is_a_problem_with_its_line() -> None:
    """A secret that is not there is found before anything starts."""
    loaded = load(DATA / "contract_example.yaml", {})
    text = "\n".join(str(problem) for problem in loaded.problems)
    assert "ASSAY_ADMIN_TOKEN is not set" in text and "contract_example.yaml:" in text


TEN_MISTAKES = """\
server:
  prot: 8080
admin:
  token: short
providers:
  one: {kind: opnai, api_key: k}
  two: {kind: openai-compatible}
  three: {kind: openai, region: no, base_url: "ftp://x"}
deployments:
  - {id: d1, provider: thre, model: m}
  - {id: d1, provider: three, model: m, retries: -1}
models:
  alias: {deployments: [d9]}
tenants:
  - id: acme
    allow: {providers: ["thr*"], models: [nope]}
    keys: [{id: k, secret: tiny}]
"""


def test_ten_mistakes_are_ten_reports(tmp_path: Path) -> None:
    """One pass finds all that is wrong, each with file, line and key, and the nearest known name."""
    loaded = load(written(tmp_path, TEN_MISTAKES), {})
    reports = {problem.key: str(problem) for problem in loaded.problems}
    assert "did you mean `port`" in reports["server.prot"] and ":2:" in reports["server.prot"]
    assert "did you mean `openai`" in reports["providers.one.kind"]
    assert "did you mean `three`" in reports["deployments[0].provider"]
    assert "deployments[1].retries" in reports
    assert "unknown deployment `d9`" in reports["models.alias.deployments[0]"]
    assert "tenants[0].allow.providers[0]" in reports
    assert "unknown model `nope`" in reports["tenants[0].allow.models[0]"]


SEMANTIC = """\
admin:
  token: short
providers:
  two: {kind: openai-compatible}
  three: {kind: openai, base_url: "ftp://x"}
  four: {kind: azure, base_url: "https://example.test"}
deployments:
  - {id: d1, provider: three, model: m}
  - {id: d1, provider: four, model: m}
models: {}
tenants:
  - id: acme
    keys: [{id: k, secret: tiny, workload: nowhere}, {id: k, secret: 0123456789abcdefghijk}]
"""


def test_weak_secrets_duplicates_and_contradictions_are_refused(tmp_path: Path) -> None:
    """What single fields cannot tell is checked too."""
    text = "\n".join(str(problem) for problem in load(written(tmp_path, SEMANTIC), {}).problems)
    for expected in (
        "at least 24 characters",
        "must state base_url",
        "must be an http or https URL",
        "must state accept_models",
        "`d1` is given more than once",
        "no workload `nowhere`",
        "random secret",
        "`k` is given more than once",
    ):
        assert expected in text, expected


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("no", "no"),
        ("yes", "yes"),
        ("on", "on"),
        ("True", "True"),
        ("true", True),
        ("010", "010"),
        ("0x1F", "0x1F"),
        ("12:30:45", "12:30:45"),
        ("2026-12-01", "2026-12-01"),
        ("1.50", 1.5),
        ("17", 17),
        ("null", None),
        ("'17'", "17"),
        ("1_000", "1_000"),
    ],
)
def test_scalars_are_yaml_1_2(tmp_path: Path, text: str, value: object) -> None:
    """Norway is a country: only true and false are booleans, and numbers are decimal."""
    document = read(written(tmp_path, f"key: {text}\n"), {})
    assert document.problems == []
    assert document.value == {"key": value} and type(document.value["key"]) is type(value)


@pytest.mark.parametrize(
    "text", ["a: 1\na: 2\n", "a: {b: 1, b: 2}\n", "a: !!python/object:os.system x\n", "? [a]\n: b\n"]
)
def test_traps_are_problems(tmp_path: Path, text: str) -> None:
    """Duplicate keys, tags and keys that are not text are refused."""
    assert read(written(tmp_path, text), {}).problems


def test_aliases_cannot_expand_without_bound(tmp_path: Path) -> None:
    """A document of nested aliases does not exhaust memory."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    assert read(written(tmp_path, "\n".join(lines)), {}).problems


def test_the_environment_cannot_add_structure(tmp_path: Path) -> None:
    """A variable's content stays one scalar."""
    document = read(written(tmp_path, "key: ${X}\n"), {"X": "a\nother: {b: 1}"})
    assert document.value == {"key": "a\nother: {b: 1}"}


def test_a_secret_is_never_formatted() -> None:
    """Neither str, repr, format nor an f-string shows it."""
    secret = Secret("tripwire")
    assert "tripwire" not in f"{secret} {secret!r} {secret:>20} {[secret]}"
