"""The log as C2SP tlog-tiles: 256 hashes a tile, entry bundles beside them, and any subtree's hash from them."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable

from gateway.receipts.merkle import node_hash

WIDTH = 256
_HEIGHT = 8
_PATH = re.compile(r"^(?:(x\d{3}/)*)(\d{3})(?:\.p/(\d{1,3}))?$")
ReadLeaves = Callable[[int, int], list[bytes]]


class TileCache:
    """Hashes of complete subtrees, from leaf hashes that the store reads, with the latest tiles kept.

    `read_leaves(start, end)` returns the stored leaf hashes of that range, `read_roots(start, end)` the stored roots
    of full leaf tiles; a store that keeps none may leave it out. What is kept never changes, because a subtree is
    asked for only when it is complete; a tile that grew is read on from where it ended.
    """

    def __init__(self, read_leaves: ReadLeaves, read_roots: ReadLeaves | None = None, keep: int = 128) -> None:
        self._leaves = read_leaves
        self._roots = read_roots
        self._kept: OrderedDict[tuple[int, int], list[bytes]] = OrderedDict()
        self._keep = keep

    def clear(self) -> None:
        """Forgets everything: what was read in a transaction that failed never was."""
        self._kept.clear()

    def tile(self, level: int, number: int, width: int = WIDTH) -> list[bytes]:
        """The first `width` hashes of a tile: leaf hashes at level 0, roots of full tiles below above it."""
        known = self._kept.get((level, number), [])
        if len(known) < width:
            start = number * WIDTH
            known = known + self._fetch(level, start + len(known), start + width)
            if len(known) != width:
                raise LookupError("the log does not have these entries")
            self._kept[(level, number)] = known
            if len(self._kept) > self._keep:
                self._kept.popitem(last=False)
        self._kept.move_to_end((level, number))
        return known[:width]

    def _fetch(self, level: int, start: int, end: int) -> list[bytes]:
        if level == 0:
            return self._leaves(start, end)
        if level == 1 and self._roots is not None:
            return self._roots(start, end)
        return [_reduce(self.tile(level - 1, i)) for i in range(start, end)]

    def hash_of(self, level: int, index: int) -> bytes:
        """The root of the complete subtree of 2^level leaves at this index."""
        tile_level, height = divmod(level, _HEIGHT)
        count = 1 << height
        number, offset = divmod(index * count, WIDTH)
        return _reduce(self.tile(tile_level, number, offset + count)[offset:])


def _reduce(hashes: list[bytes]) -> bytes:
    while len(hashes) > 1:
        hashes = [node_hash(hashes[i], hashes[i + 1]) for i in range(0, len(hashes), 2)]
    return hashes[0]


def parse_tile_path(path: str) -> tuple[int, int] | None:
    """(tile number, width) of `x001/x234/067` or `067.p/8`; None for anything that is not a canonical path."""
    match = _PATH.match(path)
    if match is None:
        return None
    plain, _, partial = path.partition(".p/")
    groups = plain.split("/")
    if len(groups) > 6 or (len(groups) > 1 and groups[0] == "x000"):
        return None
    number = int("".join(group.lstrip("x") for group in groups))
    width = int(partial) if partial else WIDTH
    if not 0 < width <= WIDTH or (partial and (width == WIDTH or partial.startswith("0"))):
        return None
    return number, width


def entry_bundle(entries: list[bytes]) -> bytes:
    """Entries, each after its length in two bytes (big-endian)."""
    return b"".join(len(entry).to_bytes(2, "big") + entry for entry in entries)


def tile_path(level: int | str, number: int, width: int = WIDTH) -> str:
    """The path of a tile (`level` may be `entries`), beneath the log's prefix."""
    groups = [f"{number % 1000:03d}"]
    while number := number // 1000:
        groups.insert(0, f"x{number % 1000:03d}")
    return f"tile/{level}/{'/'.join(groups)}" + (f".p/{width}" if width < WIDTH else "")


def tiles_of(size: int) -> list[tuple[int, int, int]]:
    """(level, number, width) of every hash tile that a tree of this size has, partial ones included."""
    found = []
    level, hashes = 0, size
    while hashes:
        found += [(level, number, min(WIDTH, hashes - number * WIDTH)) for number in range(-(-hashes // WIDTH))]
        level, hashes = level + 1, hashes // WIDTH
    return found
