"""Receipts of every format that was ever issued verify for ever; policies of witnesses mean what they say."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from gateway.cli.verify import command
from gateway.receipts import verifier

GOLDEN = Path(__file__).resolve().parents[2] / "data" / "receipts"
FORMATS = sorted(folder.name for folder in GOLDEN.iterdir())


def load(name: str) -> tuple[dict[str, Any], dict[str, Any], str]:
    folder = GOLDEN / name
    files = (json.loads((folder / file).read_text("utf-8")) for file in ("receipt.json", "keys.json"))
    return *files, (folder / "policy.txt").read_text("utf-8")  # type: ignore[return-value]


@pytest.mark.parametrize("name", FORMATS)
def test_old_receipts_still_verify(name: str) -> None:
    """By the command, with request, response and witnesses; one byte more is exit 1."""
    folder = GOLDEN / name
    options = [
        str(folder / "receipt.json"),
        "--keys",
        str(folder / "keys.json"),
        "--policy",
        str(folder / "policy.txt"),
    ]
    content = ["--request", str(folder / "request"), "--response", str(folder / "response")]
    result = CliRunner().invoke(command, [*options, *content])
    assert result.exit_code == 0, result.output
    assert result.output.count("not proven:") == 1 and result.output.count("proven: ") >= 6
    swapped = ["--request", str(folder / "response")]
    assert CliRunner().invoke(command, [*options, *swapped]).exit_code == 1


def verified(policy: str | None, document: dict[str, Any] | None = None) -> verifier.Proven:
    receipt, keys, _ = load("v1")
    return verifier.verify(document or receipt, keys, policy=policy)


def test_a_quorum_that_is_not_met_is_refused() -> None:
    """Three of three where two cosigned; a witness nobody has; a group of groups."""
    _, _, policy = load("v1")
    assert any("witnesses a, b saw" in line for line in verified(policy).proven)
    with pytest.raises(verifier.VerificationError, match="too few"):
        verified(policy.replace("group two 2", "group two 3"))
    with pytest.raises(verifier.VerificationError, match="too few"):
        verified(policy.replace("quorum two", "quorum c"))
    nested = policy.replace("quorum two", "group outer all two a\nquorum outer")
    assert verified(nested).proven


def test_no_policy_and_an_empty_one_prove_nothing_about_witnesses() -> None:
    """What is not asked for is said not to be proven."""
    for policy in (None, "quorum none\n"):
        assert any("witnesses saw" in line for line in verified(policy).unproven)


@pytest.mark.parametrize(
    "edit",
    [
        ("quorum two", ""),
        ("quorum two", "quorum"),
        ("group two 2", "group two 9"),
        ("group two 2", "group two many"),
        ("group two 2 a b c", "group two 1 two"),
        ("witness a ", "witness a x"),
    ],
)
def test_a_malformed_policy_is_refused(edit: tuple[str, str]) -> None:
    """It never counts as one that is met."""
    _, _, policy = load("v1")
    with pytest.raises(verifier.VerificationError):
        verified(policy.replace(*edit))


def test_one_witness_under_two_names_counts_once() -> None:
    """A quorum of two is two witnesses."""
    _, _, policy = load("v1")
    key = next(line.split()[2] for line in policy.splitlines() if line.startswith("witness a "))
    twice = f"witness a {key}\nwitness again {key}\ngroup two 2 a again\nquorum two\n"
    with pytest.raises(verifier.VerificationError, match="two names"):
        verified(twice)


def test_a_cosignature_for_another_checkpoint_is_refused() -> None:
    """It is bound to size and root."""
    receipt, _, policy = load("v1")
    moved = copy.deepcopy(receipt)
    lines = moved["checkpoint"].split("\n")
    index = next(i for i, line in enumerate(lines) if "witness.test/a" in line)
    mark, name, value = lines[index].split(" ")
    lines[index] = " ".join((mark, name, value[:12] + ("A" if value[12] != "A" else "B") + value[13:]))
    moved["checkpoint"] = "\n".join(lines)
    with pytest.raises(verifier.VerificationError, match="too few"):
        verified(policy, moved)


def test_a_receipt_signed_after_its_key_was_revoked_is_refused() -> None:
    """And a checkpoint whose log key was revoked, at any time: it has no time of its own."""
    receipt, keys, _ = load("v1")
    for use, match in (("receipt", "revoked"), ("log", "log key")):
        changed = copy.deepcopy(keys)
        for key in changed["keys"]:
            if key["use"] == use:
                key["revoked"] = 1
        with pytest.raises(verifier.VerificationError, match=match):
            verifier.verify(receipt, changed)
