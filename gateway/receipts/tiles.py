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
    """Hashes of complete subtrees, computed from leaf hashes that the store reads, with the latest tiles kept.

    `read_leaves(start, end)` returns the stored leaf hashes of that range. Full tiles never change and may be kept.
    """

    def __init__(self, read_leaves: ReadLeaves, keep: int = 512) -> None:
        self._read = read_leaves
        self._kept: OrderedDict[tuple[int, int], list[bytes]] = OrderedDict()
        self._keep = keep

    def tile(self, level: int, number: int, width: int = WIDTH) -> list[bytes]:
        """The first `width` hashes of a tile: leaf hashes at level 0, roots of full tiles below above it."""
        known = self._kept.get((level, number))
        if known is not None:
            self._kept.move_to_end((level, number))
            return known[:width]
        start = number * WIDTH
        if level == 0:
            hashes = self._read(start, start + width)
        else:
            hashes = [self.hash_of(level * _HEIGHT, start + i) for i in range(width)]
        if len(hashes) != width:
            raise LookupError("the log does not have these entries")
        if width == WIDTH:
            self._kept[(level, number)] = hashes
            if len(self._kept) > self._keep:
                self._kept.popitem(last=False)
        return hashes

    def hash_of(self, level: int, index: int) -> bytes:
        """The root of the complete subtree of 2^level leaves at this index."""
        tile_level, height = divmod(level, _HEIGHT)
        if height == 0 and tile_level:
            return _reduce(self.tile(tile_level - 1, index))
        count = 1 << height
        first = index * count
        number, offset = divmod(first, WIDTH)
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
