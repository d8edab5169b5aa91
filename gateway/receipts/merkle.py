"""Merkle trees as RFC 6962 and RFC 9162 define them, over hashes that somebody else keeps.

Written from section 2.1 of RFC 9162. `hash_of(level, index)` gives the root of the complete subtree of 2^level leaves
that begins at leaf index * 2^level; everything here asks only for subtrees that are complete in the tree meant.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

HashOf = Callable[[int, int], bytes]
EMPTY_ROOT = hashlib.sha256(b"").digest()


def leaf_hash(entry: bytes) -> bytes:
    """SHA-256(0x00 || entry)."""
    return hashlib.sha256(b"\x00" + entry).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """SHA-256(0x01 || left || right)."""
    return hashlib.sha256(b"\x01" + left + right).digest()


def _split(size: int) -> int:
    """The largest power of two smaller than `size`."""
    return 1 << (size - 1).bit_length() - 1


def range_hash(start: int, end: int, hash_of: HashOf) -> bytes:
    """MTH of leaves [start, end), where `start` is a multiple of the range's largest subtree."""
    size = end - start
    if size == 0:
        return EMPTY_ROOT
    if size & (size - 1) == 0 and start % size == 0:
        level = size.bit_length() - 1
        return hash_of(level, start >> level)
    k = _split(size)
    return node_hash(range_hash(start, start + k, hash_of), range_hash(start + k, end, hash_of))


def root(size: int, hash_of: HashOf) -> bytes:
    """The root of the tree of the first `size` leaves."""
    return range_hash(0, size, hash_of)


def inclusion_proof(index: int, size: int, hash_of: HashOf) -> list[bytes]:
    """PATH(index, D[size]) of RFC 9162, 2.1.3.1: from the leaf upwards."""
    if not 0 <= index < size:
        raise ValueError("the index is not in the tree")
    proof: list[bytes] = []
    start, end = 0, size
    while end - start > 1:
        k = _split(end - start)
        if index < start + k:
            proof.append(range_hash(start + k, end, hash_of))
            end = start + k
        else:
            proof.append(range_hash(start, start + k, hash_of))
            start += k
    proof.reverse()
    return proof


def consistency_proof(first: int, second: int, hash_of: HashOf) -> list[bytes]:
    """PROOF(first, D[second]) of RFC 9162, 2.1.4.1."""
    if not 0 < first <= second:
        raise ValueError("the first size must be positive and not larger than the second")
    proof: list[bytes] = []
    start, end, complete = 0, second, True
    while first != end:
        k = _split(end - start)
        if first <= start + k:
            proof.append(range_hash(start + k, end, hash_of))
            end = start + k
        else:
            proof.append(range_hash(start, start + k, hash_of))
            start += k
            complete = False
    if not complete:
        proof.append(range_hash(start, end, hash_of))
    proof.reverse()
    return proof


def root_from_inclusion(index: int, size: int, leaf: bytes, proof: list[bytes]) -> bytes:
    """The root that a proof implies (RFC 9162, 2.1.3.2); raises `ValueError` when the proof has the wrong shape."""
    if not 0 <= index < size:
        raise ValueError("the index is not in the tree")
    node, last, result = index, size - 1, leaf
    for sibling in proof:
        if last == 0:
            raise ValueError("the proof is too long")
        if node & 1 or node == last:
            result = node_hash(sibling, result)
            while node and not node & 1:
                node >>= 1
                last >>= 1
        else:
            result = node_hash(result, sibling)
        node >>= 1
        last >>= 1
    if last:
        raise ValueError("the proof is too short")
    return result


def verify_consistency(first: int, second: int, first_root: bytes, second_root: bytes, proof: list[bytes]) -> bool:
    """Whether a proof shows that the first tree is the beginning of the second (RFC 9162, 2.1.4.2)."""
    if first == second:
        return not proof and first_root == second_root
    if not 0 < first < second:
        return False
    path = list(proof)
    if first & (first - 1) == 0:
        path.insert(0, first_root)
    if not path:
        return False
    node, last = first - 1, second - 1
    while node & 1:
        node >>= 1
        last >>= 1
    one = two = path[0]
    for sibling in path[1:]:
        if last == 0:
            return False
        if node & 1 or node == last:
            one, two = node_hash(sibling, one), node_hash(sibling, two)
            while node and not node & 1:
                node >>= 1
                last >>= 1
        else:
            two = node_hash(two, sibling)
        node >>= 1
        last >>= 1
    return last == 0 and one == first_root and two == second_root
