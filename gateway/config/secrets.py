"""Secrets that cannot be formatted by accident: `str`, `repr`, logs and serialisers see a placeholder."""

from __future__ import annotations

import hmac


class Secret:
    """A secret string. Only `reveal()` gives it; equality is constant time; it cannot be pickled or formatted."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        """The secret itself, to be used at the one edge that needs it."""
        return self._value

    def __repr__(self) -> str:
        return "Secret(****)"

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return repr(self)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and hmac.compare_digest(self._value.encode(), other._value.encode())

    def __hash__(self) -> int:
        return hash(self._value)

    def __reduce__(self) -> str:
        raise TypeError("a secret is never pickled")
