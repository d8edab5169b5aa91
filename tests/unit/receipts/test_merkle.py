"""The tree against a brute-force oracle written from the definition."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.receipts import merkle
from gateway.receipts.tiles import TileCache, parse_tile_path


def oracle(leaves: list[bytes]) -> bytes:
    """MTH of RFC 9162, 2.1.1, over entries."""
    if not leaves:
        return hashlib.sha256(b"").digest()
    if len(leaves) == 1:
        return hashlib.sha256(b"\x00" + leaves[0]).digest()
    k = 1
    while k * 2 < len(leaves):
        k *= 2
    return hashlib.sha256(b"\x01" + oracle(leaves[:k]) + oracle(leaves[k:])).digest()


def tree(leaves: list[bytes]) -> TileCache:
    hashes = [merkle.leaf_hash(leaf) for leaf in leaves]
    return TileCache(lambda start, end: hashes[start:end])


def entries(size: int) -> list[bytes]:
    return [f"entry {n}".encode() for n in range(size)]


@pytest.mark.parametrize("size", [0, 1, 2, 3, 4, 5, 7, 8, 9, 255, 256, 257, 511, 513, 1000, 65537])
def test_roots_equal_the_definition(size: int) -> None:
    """Through tiles and without them the root is the same."""
    leaves = entries(size)
    assert merkle.root(size, tree(leaves).hash_of) == oracle(leaves)


def test_the_vectors_of_rfc_6962() -> None:
    """The reference implementation's test tree of eight leaves."""
    leaves = [
        bytes.fromhex(h)
        for h in ("", "00", "10", "2021", "3031", "40414243", "5051525354555657", "606162636465666768696a6b6c6d6e6f")
    ]
    root = merkle.root(8, tree(leaves).hash_of)
    assert root.hex() == "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328"


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 700), st.data())
def test_inclusion_proofs_lead_to_the_root_and_forged_ones_do_not(size: int, data: st.DataObject) -> None:
    """Every entry is provable; another entry, index or proof is not."""
    leaves = entries(size)
    index = data.draw(st.integers(0, size - 1))
    hashes = tree(leaves).hash_of
    proof = merkle.inclusion_proof(index, size, hashes)
    root = oracle(leaves)
    assert merkle.root_from_inclusion(index, size, merkle.leaf_hash(leaves[index]), proof) == root
    assert merkle.root_from_inclusion(index, size, merkle.leaf_hash(b"forged"), proof) != root
    if proof:
        with pytest.raises(ValueError, match="short"):
            merkle.root_from_inclusion(index, size, merkle.leaf_hash(leaves[index]), proof[:-1])
    with pytest.raises(ValueError, match="long"):
        merkle.root_from_inclusion(index, size, merkle.leaf_hash(leaves[index]), [*proof, b"\x00" * 32])


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 600), st.integers(0, 300))
def test_consistency_proofs_show_growth_and_nothing_else(first: int, more: int) -> None:
    """The earlier tree is the beginning of the later one; a rewritten entry is not."""
    second = first + more
    leaves = entries(second)
    proof = merkle.consistency_proof(first, second, tree(leaves).hash_of)
    old, new = oracle(leaves[:first]), oracle(leaves)
    assert merkle.verify_consistency(first, second, old, new, proof)
    rewritten = [b"rewritten", *leaves[1:]]
    assert not merkle.verify_consistency(first, second, old, oracle(rewritten), proof)


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("000", (0, 256)),
        ("067.p/8", (67, 8)),
        ("x001/x234/067", (1234067, 256)),
        ("x000/001", None),
        ("1", None),
        ("000.p/0", None),
        ("000.p/256", None),
        ("000.p/08", None),
        ("../etc", None),
        ("x001/067.p/255", (1067, 255)),
    ],
)
def test_tile_paths_are_canonical(path: str, place: tuple[int, int] | None) -> None:
    """C2SP tlog-tiles: one spelling for each tile."""
    assert parse_tile_path(path) == place
