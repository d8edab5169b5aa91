"""Tenant scope: the one place where a query is limited to a tenant, so that a lint can find those that are not."""

from __future__ import annotations

from typing import Any, Final, TypeVar

from sqlalchemy import Delete, Select, Table, Update

Query = TypeVar("Query", Select[Any], Update, Delete)


class _Every:
    """Whoever asks for every tenant says so by this name."""


#: For administrators and the gateway itself: no limit to a tenant.
EVERY_TENANT: Final = _Every()


def scoped(query: Query, table: Table, tenant: str | _Every) -> Query:
    """The query limited to one tenant's rows of `table`, or expressly to none."""
    if isinstance(tenant, _Every):
        return query
    return query.where(table.c.tenant == tenant)
