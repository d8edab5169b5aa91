#!/usr/bin/env python3
"""Verifies one receipt offline, with the standard library and `cryptography` only: this file can be copied out and run.

    python verifier.py RECEIPT.json --keys KEYS.json [--request FILE] [--response FILE]

It proves what the gateway recorded, when, unmodified, and in a log that tells everybody the same story. It does not
prove that a model ran. Formats: DSSE v1, RFC 8785, RFC 9162 section 2.1, C2SP signed-note, tlog-checkpoint.
"""

from __future__ import annotations

import argparse
import base64
import binascii
import hashlib
import hmac
import json
import sys
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

PREDICATE_TYPES = ("urn:assay:receipt:v1",)
DOMAIN = b"assay/commitment/v1\x00"
MAX_PROOF = 64


class VerificationError(Exception):
    """The one way in which a receipt fails to verify; the message says what is wrong."""


@dataclass
class Proven:
    """What was shown, and what was not."""

    statement: dict[str, Any]
    proven: list[str] = field(default_factory=list)
    unproven: list[str] = field(default_factory=list)


def verify(
    document: Any, keys: Any, *, request: bytes | None = None, response: bytes | None = None, require_log: bool = True
) -> Proven:
    """Checks signature, log position and, where content is given, commitments. Raises `VerificationError`."""
    if not isinstance(document, dict) or not isinstance(document.get("envelope"), dict):
        raise VerificationError("the file is not a receipt")
    public = _keys(keys)
    payload, statement, signed_by = _signature(document["envelope"], public)
    result = Proven(statement)
    predicate = _predicate(statement)
    result.proven.append(f"the gateway signed this statement with the key {signed_by}")
    _log(document, payload, public, predicate, result, require_log)
    for name, content in (("request", request), ("response", response)):
        if content is not None:
            _open(document, predicate, name, content)
            result.proven.append(f"the {name} given is, byte for byte, the {name} that was recorded")
        else:
            result.unproven.append(f"the content of the {name} (give it with --{name})")
    result.unproven.append(
        "that a model ran, or which weights: a receipt proves what was recorded, and how it was known"
    )
    return result


def _keys(document: Any) -> dict[str, tuple[str, Ed25519PublicKey, int, int]]:
    if not isinstance(document, dict) or not isinstance(document.get("keys"), list):
        raise VerificationError("the keys are not a JWK set")
    found: dict[str, tuple[str, Ed25519PublicKey, int, int]] = {}
    for key in document["keys"]:
        try:
            if key["kty"] != "OKP" or key["crv"] != "Ed25519":
                continue
            raw = base64.urlsafe_b64decode(key["x"] + "=" * (-len(key["x"]) % 4))
            revoked = key.get("revoked")
            end = min(int(key["exp"]), int(revoked)) if revoked is not None else int(key["exp"])
            found[str(key["kid"])] = (str(key["use"]), Ed25519PublicKey.from_public_bytes(raw), int(key["nbf"]), end)
        except (KeyError, TypeError, ValueError, AttributeError):
            raise VerificationError("a key of the JWK set is malformed") from None
    return found


def _decode(text: Any, what: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (TypeError, ValueError, binascii.Error):
        raise VerificationError(f"{what} is not base64") from None


def _signature(
    envelope: dict[str, Any], keys: dict[str, tuple[str, Ed25519PublicKey, int, int]]
) -> tuple[bytes, dict[str, Any], str]:
    kind = envelope.get("payloadType")
    if kind != "application/vnd.in-toto+json":
        raise VerificationError("the envelope does not hold an in-toto statement")
    payload = _decode(envelope.get("payload"), "the payload")
    message = b"DSSEv1 %d %b %d %b" % (len(kind), kind.encode(), len(payload), payload)
    signatures = envelope.get("signatures")
    if not isinstance(signatures, list) or not signatures:
        raise VerificationError("the envelope has no signature")
    for signature in signatures:
        if not isinstance(signature, dict):
            raise VerificationError("a signature is malformed")
        known = keys.get(str(signature.get("keyid")))
        if known is None or known[0] != "receipt":
            continue
        try:
            known[1].verify(_decode(signature.get("sig"), "the signature"), message)
        except InvalidSignature:
            raise VerificationError("the signature does not fit the statement") from None
        statement = _statement(payload)
        _valid_then(statement, known, str(signature["keyid"]))
        return payload, statement, str(signature["keyid"])
    raise VerificationError("no signature is by a published receipt key")


def _statement(payload: bytes) -> dict[str, Any]:
    try:
        statement = json.loads(payload)
    except (ValueError, RecursionError):
        raise VerificationError("the statement is not JSON") from None
    if not isinstance(statement, dict):
        raise VerificationError("the statement is not an object")
    again = json.dumps(statement, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    if again.encode("utf-8", "surrogatepass") != payload:
        raise VerificationError("the statement is not in canonical form")
    return statement


def _valid_then(statement: dict[str, Any], key: tuple[str, Ed25519PublicKey, int, int], kid: str) -> None:
    try:
        signed = datetime.fromisoformat(str(_predicate(statement)["time"]).replace("Z", "+00:00")).timestamp()
    except (KeyError, ValueError):
        raise VerificationError("the statement has no time") from None
    if not key[2] - 300 <= signed <= key[3]:
        raise VerificationError(f"the key {kid} was not valid when the statement was made")


def _predicate(statement: dict[str, Any]) -> dict[str, Any]:
    predicate = statement.get("predicate")
    if statement.get("_type") != "https://in-toto.io/Statement/v1" or not isinstance(predicate, dict):
        raise VerificationError("the payload is not an in-toto statement")
    if statement.get("predicateType") not in PREDICATE_TYPES:
        raise VerificationError("the statement is not about a receipt this verifier knows")
    subject = statement.get("subject")
    commitments = json.dumps(predicate.get("commitments"), sort_keys=True, separators=(",", ":")).encode()
    wanted = [{"name": predicate.get("id"), "digest": {"sha256": hashlib.sha256(commitments).hexdigest()}}]
    if subject != wanted:
        raise VerificationError("the statement's subject is not its commitments")
    return predicate


def _log(
    document: dict[str, Any],
    payload: bytes,
    keys: dict[str, tuple[str, Ed25519PublicKey, int, int]],
    predicate: dict[str, Any],
    result: Proven,
    required: bool,
) -> None:
    proof, checkpoint = document.get("proof"), document.get("checkpoint")
    if proof is None or checkpoint is None:
        if required:
            raise VerificationError("the receipt has no proof of its place in the log yet; fetch it again in a moment")
        result.unproven.append("the receipt's place in the log (it has no proof yet)")
        return
    try:
        index, size = proof["index"], proof["size"]
        hashes = [_decode(item, "a hash of the proof") for item in proof["hashes"]]
        if type(index) is not int or type(size) is not int or len(hashes) > MAX_PROOF:
            raise ValueError
        origin, tree_size, root = _checkpoint(checkpoint, keys)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError):
        raise VerificationError("the proof or the checkpoint is malformed") from None
    if tree_size != size:
        raise VerificationError("the proof is for another tree size than the checkpoint's")
    leaf = hashlib.sha256(b"\x00" + hashlib.sha256(payload).digest()).digest()
    if _root(index, size, leaf, hashes) != root:
        raise VerificationError("the proof does not lead from this statement to the checkpoint's root")
    result.proven.append(
        f"the statement is entry {index} of the log {origin}, whose first {size} entries are signed for"
    )
    result.unproven.append("that witnesses saw the same log (no cosignature policy was given)")


def _checkpoint(text: str, keys: dict[str, tuple[str, Ed25519PublicKey, int, int]]) -> tuple[str, int, bytes]:
    body, _, tail = text.partition("\n\n")
    lines = body.split("\n")
    origin, size, root = lines[0], int(lines[1]), base64.b64decode(lines[2], validate=True)
    for line in tail.splitlines():
        mark, name, value = line.split(" ")
        signature = base64.b64decode(value, validate=True)
        for use, key, _, _ in keys.values():
            raw = key.public_bytes_raw()
            named = hashlib.sha256(name.encode() + b"\n\x01" + raw).digest()[:4]
            if mark == "\u2014" and use == "log" and name == origin and hmac.compare_digest(named, signature[:4]):
                try:
                    key.verify(signature[4:], (body + "\n").encode())
                    return origin, size, root
                except InvalidSignature:
                    raise VerificationError("the checkpoint's signature does not fit") from None
    raise VerificationError("the checkpoint is not signed by a published log key")


def _root(index: int, size: int, leaf: bytes, hashes: list[bytes]) -> bytes:
    """RFC 9162, 2.1.3.2."""
    if not 0 <= index < size:
        raise VerificationError("the index is not in the tree")
    node, last, result = index, size - 1, leaf
    for sibling in hashes:
        if last == 0:
            raise VerificationError("the proof is too long")
        if node & 1 or node == last:
            result = hashlib.sha256(b"\x01" + sibling + result).digest()
            while node and not node & 1:
                node, last = node >> 1, last >> 1
        else:
            result = hashlib.sha256(b"\x01" + result + sibling).digest()
        node, last = node >> 1, last >> 1
    if last:
        raise VerificationError("the proof is too short")
    return result


def _open(document: dict[str, Any], predicate: dict[str, Any], name: str, content: bytes) -> None:
    openings = document.get("openings")
    key = openings.get(name) if isinstance(openings, dict) else None
    if key is None:
        raise VerificationError(f"the receipt has no key that opens the {name} (it was erased, or not asked for)")
    commitment = (predicate.get("commitments") or {}).get(name)
    digest = hmac.new(_decode(key, "a commitment's key"), DOMAIN + content, hashlib.sha256).hexdigest()
    if not isinstance(commitment, str) or not hmac.compare_digest(digest, commitment):
        raise VerificationError(f"the {name} given is not the {name} that was recorded")


def main(arguments: list[str] | None = None) -> int:
    """The command line; 0 only when everything asked is proven, 1 when it is not, 2 for wrong use."""
    parser = argparse.ArgumentParser(description="Verify one receipt offline.")
    parser.add_argument("receipt", type=Path)
    parser.add_argument("--keys", type=Path, required=True)
    parser.add_argument("--request", type=Path)
    parser.add_argument("--response", type=Path)
    options = parser.parse_args(arguments)
    try:
        document, keys = (json.loads(path.read_bytes()) for path in (options.receipt, options.keys))
        request, response = (
            path.read_bytes() if path is not None else None for path in (options.request, options.response)
        )
    except OSError as error:
        print(f"{error.filename}: {error.strerror}", file=sys.stderr)
        return 2
    except (ValueError, RecursionError):
        print("not verified: the receipt or the keys are not JSON", file=sys.stderr)
        return 1
    try:
        result = verify(document, keys, request=request, response=response)
    except VerificationError as error:
        print(f"not verified: {error}", file=sys.stderr)
        return 1
    for line in result.proven:
        print(f"proven: {line}")
    for line in result.unproven:
        print(f"not proven: {line}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
