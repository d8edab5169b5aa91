"""No query of a table that belongs to tenants is built without saying whose rows it means."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from gateway.storage.tables import metadata

STORAGE = Path(__file__).resolve().parents[2] / "gateway" / "storage"
OWNED = {table.name for table in metadata.tables.values() if "tenant" in table.c}
BUILDERS = {"select", "update", "delete"}


def unscoped(source: str) -> list[str]:
    """Calls of select, update or delete over an owned table whose function never calls `scoped`."""
    found = []
    for function in ast.walk(ast.parse(source)):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        calls = [node for node in ast.walk(function) if isinstance(node, ast.Call)]
        names = [call.func.id for call in calls if isinstance(call.func, ast.Name)]
        built = [call for call in calls if isinstance(call.func, ast.Name) and call.func.id in BUILDERS]
        owned = [call for call in built if any(f"tables.{table}" in ast.unparse(function) for table in OWNED)]
        if owned and names.count("scoped") < len(owned):
            found.append(function.name)
    return found


@pytest.mark.parametrize("file", sorted(STORAGE.glob("*.py")), ids=lambda file: file.name)
def test_queries_of_tenants_rows_are_scoped(file: Path) -> None:
    """Through the one helper, which makes 'every tenant' something that is written out."""
    assert unscoped(file.read_text("utf-8")) == []


def test_the_lint_finds_a_query_without_scope() -> None:
    """A rule that cannot fail protects nobody."""
    bad = "async def f(self):\n    query = select(tables.api_keys).where(tables.api_keys.c.id == 1)\n"
    assert unscoped(bad) == ["f"]
    assert {"api_keys", "receipts"} <= OWNED
