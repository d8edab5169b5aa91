"""Where the members of a JSON object and the elements of an array stand, so that an edit touches nothing else.

The text must already be known to be valid JSON: this module finds places, it does not judge. Offsets are characters.
"""

from __future__ import annotations

import json
import re
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import NamedTuple

_SPACE = re.compile(r"[ \t\n\r]*")
_SCAN = json.JSONDecoder().scan_once  # type: ignore[attr-defined]


class Place(NamedTuple):
    """A member: where its key begins (the quote), and its value's range."""

    key_start: int
    start: int
    end: int


def skip_space(text: str, at: int) -> int:
    """The next position that is not JSON white space."""
    match = _SPACE.match(text, at)
    return match.end() if match else at


def value_end(text: str, start: int) -> int:
    """Where the value that begins at `start` ends."""
    try:
        end: int = _SCAN(text, start)[1]
    except StopIteration:
        raise ValueError("no JSON value here") from None
    return end


def members(text: str, at: int = 0) -> dict[str, Place]:
    """The members of the object that begins at `at` (white space allowed before it), in the order written.

    Of a key given twice the last place is kept, as parsers do. Raises ValueError or IndexError where there is none.
    """
    at = skip_space(text, at)
    if text[at] != "{":
        raise ValueError("not an object")
    places: dict[str, Place] = {}
    at = skip_space(text, at + 1)
    while text[at] != "}":
        key_start = at
        if text[at] != '"':
            raise ValueError("not a key")
        key, at = scanstring(text, at + 1, True)
        at = skip_space(text, at)
        if text[at] != ":":
            raise ValueError("no colon after a key")
        start = skip_space(text, at + 1)
        end = value_end(text, start)
        places[key] = Place(key_start, start, end)
        at = skip_space(text, end)
        if text[at] == ",":
            at = skip_space(text, at + 1)
    return places


def elements(text: str, at: int) -> list[tuple[int, int]]:
    """The ranges of the elements of the array that begins at `at`."""
    if text[at] != "[":
        raise ValueError("not an array")
    ranges: list[tuple[int, int]] = []
    at = skip_space(text, at + 1)
    while text[at] != "]":
        end = value_end(text, at)
        ranges.append((at, end))
        at = skip_space(text, end)
        if text[at] == ",":
            at = skip_space(text, at + 1)
    return ranges
