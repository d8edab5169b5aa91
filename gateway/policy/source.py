"""Policy files: found, parsed, checked against the schema, and named by file and line when something is wrong."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from pathlib import Path

import cedarpy

_HERE = Path(__file__).resolve().parent.parent
_ID = re.compile(r'@id\(\s*"((?:[^"\\]|\\.)*)"\s*\)')
_POSITION = re.compile(r"line (\d+)")


class PolicyProblem(Exception):
    """Policies that cannot be loaded; each problem is `file:line: sentence`."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


@dataclass(frozen=True, slots=True)
class PolicyRule:
    """One policy as operators know it."""

    id: str
    reason: str
    effect: str  # permit | forbid
    file: str
    line: int
    text: str


@dataclass(frozen=True, slots=True)
class PolicySource:
    """All policies of an installation, parsed."""

    policies: cedarpy.PolicySet
    schema: cedarpy.Schema
    rules: tuple[PolicyRule, ...]
    digest: str  # sha256 hex over schema and files
    version: str


def shipped() -> Path:
    """The shipped policies: beside the package in a source checkout, inside it in a wheel."""
    for folder in (_HERE / "_data" / "policies", _HERE.parent / "policies"):
        if (folder / "schema.cedarschema").exists():
            return folder
    raise PolicyProblem(["the shipped policies are missing from this installation"])


def load(extra: list[Path], *, default_policies: bool = True) -> PolicySource:
    """Reads and strictly validates everything; raises `PolicyProblem` naming all that is wrong."""
    base = shipped()
    schema_text = (base / "schema.cedarschema").read_text("utf-8")
    schema = cedarpy.Schema.from_str(schema_text)
    files = sorted((base / "default").glob("*.cedar")) if default_policies else []
    problems: list[str] = []
    for entry in extra:
        found = sorted(entry.rglob("*.cedar")) if entry.is_dir() else [entry]
        if not found:
            problems.append(f"{entry}: holds no .cedar file")
        files += found
    rules: list[PolicyRule] = []
    texts: list[str] = []
    for file in files:
        try:
            text = file.read_text("utf-8")
        except (OSError, UnicodeDecodeError):
            problems.append(f"{file}: cannot be read")
            continue
        texts.append(text)
        rules += _rules(file, text, schema, problems)
    seen: dict[str, PolicyRule] = {}
    for rule in rules:
        if rule.id in seen:
            other = seen[rule.id]
            problems.append(f"{rule.file}:{rule.line}: the id `{rule.id}` is already used in {other.file}:{other.line}")
        seen[rule.id] = rule
    if problems:
        raise PolicyProblem(problems)
    everything = "\n".join(texts)
    digest = hashlib.sha256("\x00".join([schema_text, *texts]).encode()).hexdigest()
    return PolicySource(
        cedarpy.PolicySet.from_str(everything), schema, tuple(rules), digest, f"{len(rules)}-{digest[:8]}"
    )


def _rules(file: Path, text: str, schema: cedarpy.Schema, problems: list[str]) -> list[PolicyRule]:
    try:
        parsed = json.loads(cedarpy.policies_to_json_str(text))
    except ValueError as error:
        problems.append(f"{file}{_line_of_error(str(error))}: {_first_line(str(error))}")
        return []
    if parsed.get("templates"):
        problems.append(f"{file}: templates are not supported")
    lines = {match.group(1): text.count("\n", 0, match.start()) + 1 for match in _ID.finditer(text)}
    rules: list[PolicyRule] = []
    by_position: dict[str, str] = {}
    for position, policy in parsed["staticPolicies"].items():
        annotations = policy.get("annotations") or {}
        name = annotations.get("id") or ""
        if not name or not annotations.get("reason"):
            problems.append(
                f"{file}: every policy needs @id and @reason (the {policy['effect']} number {position} has not)"
            )
            continue
        by_position[position] = name
        line = lines.get(name, 1)
        rules.append(PolicyRule(name, annotations["reason"], policy["effect"], str(file), line, text))
    result = cedarpy.validate_policies(text, schema)
    for found in [] if result.validation_passed else result.errors:
        name = by_position.get(found.policy_id, found.policy_id)
        problems.append(f"{file}:{lines.get(name, 1)}: {name}: {_first_line(found.error)}")
    return rules


def _line_of_error(message: str) -> str:
    match = _POSITION.search(message)
    return f":{match.group(1)}" if match else ""


def _first_line(message: str) -> str:
    return " ".join(message.split())[:300]
