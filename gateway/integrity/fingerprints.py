"""Fingerprints of text: winnowed word shingles and identifiers, computed by numpy without a loop over words.

Winnowing (Schleimer, Wilkerson, Aiken, SIGMOD 2003): hashes of every 8 words, of which the smallest of each window of
17 is kept; any shared run of 24 words shares a fingerprint, and nothing shorter than 8 words ever matches. Values are
not keyed here and never leave memory: an epoch's key mixes them before they are stored.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
import numpy.typing as npt

Hashes = npt.NDArray[np.uint64]
K = 8
WINDOW = 17
GUARANTEED_WORDS = K + WINDOW - 1
_BASE = 0x9E3779B97F4A7C15 | 1
_INVERSE = pow(_BASE, -1, 1 << 64)
_SHINGLE = np.array([pow(0xC2B2AE3D27D4EB4F | 1, k, 1 << 64) for k in range(K)], dtype=np.uint64)
#: What is private by its form: addresses, account numbers, long numbers, codes, ids, paths, long tokens.
_IDENTIFIER = re.compile(
    r"[\w.+-]+@[\w-]+\.[\w.-]*\w"
    r"|\b[a-z]{2}\d{2}[a-z0-9]{10,30}\b"
    r"|[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
    r"|(?:/[\w.-]+){3,}"
    r"|\b[a-z]{0,6}[-_/]?\d{6,}(?:[-_/][a-z0-9]+)*\b"
    r"|\b[a-z]{1,6}[-_/]\d{4,}(?:[-_/][a-z0-9]+)*\b"
    r"|\b\d{3,}[-_/][a-z]{1,6}\b"
    r"|\b(?=\w*\d)(?=\w*[a-z])\w{20,}\b"
)


class _Powers:
    """Powers of the base and of its inverse modulo 2^64, grown as texts demand."""

    def __init__(self) -> None:
        self.up = np.ones(1, dtype=np.uint64)
        self.down = np.ones(1, dtype=np.uint64)

    def take(self, length: int) -> tuple[Hashes, Hashes]:
        if len(self.up) < length:
            size = max(length, 4096)
            self.up = np.full(size, _BASE, dtype=np.uint64)
            self.down = np.full(size, _INVERSE, dtype=np.uint64)
            self.up[0] = self.down[0] = 1
            np.cumprod(self.up, out=self.up)
            np.cumprod(self.down, out=self.down)
        return self.up[:length], self.down[:length]


_POWERS = _Powers()
_WORD_BYTE = np.zeros(256, dtype=bool)
_WORD_BYTE[[*range(48, 58), *range(97, 123), *range(128, 256)]] = True


@dataclass(frozen=True, slots=True)
class Fingerprints:
    """Of one text: its winnowed shingles, each once, and its identifiers."""

    shingles: Hashes
    identifiers: Hashes


_NO_HASHES: Hashes = np.empty(0, np.uint64)


def normalise(text: str) -> str:
    """NFKC and casefold, so that what reads alike is alike."""
    return text.lower() if text.isascii() else unicodedata.normalize("NFKC", text).casefold()


def fingerprints(text: str) -> Fingerprints:
    """The fingerprints of a text of any length."""
    text = normalise(text)
    identifiers = _identifiers(text)
    words = _words(np.frombuffer(text.encode("utf-8", "surrogatepass"), dtype=np.uint8))
    if len(words) < K:
        return Fingerprints(_NO_HASHES, identifiers)
    count = len(words) - K + 1
    shingles = words[:count] * _SHINGLE[0]
    for k in range(1, K):
        shingles += words[k : count + k] * _SHINGLE[k]
    return Fingerprints(_winnow(mix(shingles, 0x2545F4914F6CDD1D)), identifiers)


def _identifiers(text: str) -> Hashes:
    """Only tokens that are not plain words are looked at closely, which are few."""
    odd = [token for token in text.split() if not token.isalpha() and len(token) > 4]
    found = _IDENTIFIER.findall(" ".join(odd)) if odd else []
    return np.array(sorted({_identifier(item) for item in found}), dtype=np.uint64) if found else _NO_HASHES


def _identifier(text: str) -> int:
    return int.from_bytes(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big")


def _words(data: npt.NDArray[np.uint8]) -> Hashes:
    """A hash for each word: the polynomial over its bytes, read off prefix sums modulo 2^64."""
    inside = _WORD_BYTE[data]
    edges = np.flatnonzero(np.diff(inside, prepend=False, append=False))
    starts, ends = edges[::2], edges[1::2]
    up, down = _POWERS.take(len(data) + 1)
    sums = np.zeros(len(data) + 1, dtype=np.uint64)
    np.cumsum((data.astype(np.uint64) + np.uint64(1)) * up[: len(data)], out=sums[1:])
    return mix((sums[ends] - sums[starts]) * down[starts], 0x9FB21C651E98DF25)


def mix(values: Hashes, key: int) -> Hashes:
    """A keyed 64-bit mixer (the finaliser of splitmix64 over value xor key)."""
    mixed = values ^ np.uint64(key & 0xFFFFFFFFFFFFFFFF)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    result: Hashes = mixed ^ (mixed >> np.uint64(31))
    return result


def _winnow(shingles: Hashes) -> Hashes:
    """The smallest hash of each window, each once."""
    if len(shingles) <= WINDOW:
        smallest: Hashes = shingles.min(keepdims=True)
        return smallest
    windows = np.lib.stride_tricks.sliding_window_view(shingles, WINDOW)
    kept: Hashes = np.unique(windows.min(axis=1))
    return kept
