"""The leak index finds another tenant's private text, and nothing else."""

from __future__ import annotations

import random

import pytest

from gateway.integrity.fingerprints import fingerprints
from gateway.integrity.leak_index import EPOCH_S, RESIDENCY_S, LeakIndex

TEXT = "harbour settlement annex fender mooring survey berth counsel demurrage payable consent starboard metres october"
TEXT += " ledger quarry lantern velvet orchard thimble copper granite saddle walnut marble pepper cinder anchor violet"
WORDS = TEXT.split()


def private(seed: int, words: int) -> str:
    dice = random.Random(seed)
    ids = f"invoice {dice.randrange(10**7, 10**8)} of person{dice.randrange(10**6)}@hartwell.example"
    return f"{ids}: {' '.join(dice.choices(WORDS, k=words))}"


def spliced(piece: str) -> str:
    return f"Your garden wants lime in spring and water in summer. {piece} That is all there is about gardens today."


def index_with(text: str, tenant: str = "one", deployment: str = "d") -> LeakIndex:
    index = LeakIndex()
    prints = fingerprints(text)
    index.own(tenant, prints)
    index.add(deployment, tenant, "rcpt_source", [prints])
    return index


@pytest.mark.parametrize(("words", "least"), [(48, 0.95), (64, 0.98)])
def test_foreign_private_text_is_found(words: int, least: float) -> None:
    """At 48 and 64 words with identifiers, in nearly every trial, naming the source and no text."""
    found = 0
    for seed in range(300):
        text = private(seed, words)
        finding = index_with(text).scan("d", "two", fingerprints(spliced(text)))
        found += finding is not None and finding.source_receipt == "rcpt_source"
    assert found / 300 >= least


def test_ones_own_text_is_never_foreign() -> None:
    """Whoever sent or received a text may be told it again."""
    text = private(1, 80)
    index = index_with(text)
    assert index.scan("d", "one", fingerprints(spliced(text))) is None
    index.own("two", fingerprints(text))
    assert index.scan("d", "two", fingerprints(spliced(text))) is None


def test_what_did_not_run_there_cannot_have_leaked() -> None:
    """Another deployment, or longer ago than the residency window."""
    text = private(2, 80)
    now = [0.0]
    index = LeakIndex(clock=lambda: now[0])
    prints = fingerprints(text)
    index.add("d", "one", "r", [prints])
    answer = fingerprints(spliced(text))
    assert index.scan("other", "two", answer) is None
    now[0] = RESIDENCY_S - 1
    assert index.scan("d", "two", answer) is not None
    now[0] = RESIDENCY_S + 2 * EPOCH_S
    assert index.scan("d", "two", answer) is None


def test_text_of_three_tenants_is_public() -> None:
    """Boilerplate that several tenants share alarms nobody."""
    text = private(3, 80)
    index = index_with(text)
    for tenant in ("three", "four"):
        index.own(tenant, fingerprints(text))
    assert index.scan("d", "two", fingerprints(spliced(text))) is None


def test_common_words_without_identifiers_do_not_alarm() -> None:
    """Shared prose is not private by its form."""
    text = " ".join(random.Random(4).choices(WORDS, k=200))
    assert index_with(text).scan("d", "two", fingerprints(text)) is None


def test_sealed_epochs_answer_as_open_ones() -> None:
    """Sorting an epoch into arrays changes no finding, and an entry takes 12 bytes."""
    now = [0.0]
    index = LeakIndex(clock=lambda: now[0])
    texts = [private(seed, 80) for seed in range(50)]
    for number, text in enumerate(texts):
        prints = fingerprints(text)
        index.own("one", prints)
        index.add("d", "one", f"r{number}", [prints])
    now[0] = EPOCH_S + 1
    for number, text in enumerate(texts):
        finding = index.scan("d", "two", fingerprints(spliced(text)))
        assert finding is not None and finding.source_receipt == f"r{number}"
    shingles, _ = index._epochs[0].deployments["d"]
    assert shingles.nbytes == 12 * len(shingles)


def test_spacing_case_and_punctuation_do_not_hide_text() -> None:
    """Normalised before it is hashed."""
    text = private(5, 80)
    disguised = text.upper().replace(" ", "  \n").replace(":", " –")
    assert index_with(text).scan("d", "two", fingerprints(disguised)) is not None


@pytest.mark.parametrize("text", ["", "a", "🦀" * 50, "\ud83d broken", "x" * 10_000, "1 " * 5000, "\x00" * 100])
def test_odd_text_has_fingerprints_or_none(text: str) -> None:
    """Nothing that a model can write stops the scan."""
    fingerprints(text)
