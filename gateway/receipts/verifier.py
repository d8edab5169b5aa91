#!/usr/bin/env python3
"""Verifies one receipt offline, with the standard library and `cryptography` only: this file can be copied out and run.

    python verifier.py RECEIPT.json --keys KEYS.json [--request FILE] [--response FILE] [--policy FILE]

It proves what the gateway recorded, when, unmodified, and in a log that tells everybody the same story. It does not
prove that a model ran. Formats: DSSE v1, RFC 8785, RFC 9162 section 2.1, C2SP signed-note, tlog-checkpoint,
tlog-cosignature (Ed25519), tlog-policy (witnesses, groups and the quorum).
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
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

PREDICATE_TYPES = ("urn:assay:receipt:v1",)
DOMAIN = b"assay/commitment/v1\x00"
MAX_PROOF = 64


class VerificationError(Exception):
    """The one way in which a receipt fails to verify; the message says what is wrong."""


@dataclass(frozen=True)
class _Key:
    """A published key. Times are Unix seconds."""

    use: str
    public: Ed25519PublicKey
    begins: int
    ends: int
    revoked: int | None


@dataclass
class Proven:
    """What was shown, and what was not."""

    statement: dict[str, Any]
    proven: list[str] = field(default_factory=list)
    unproven: list[str] = field(default_factory=list)


def verify(
    document: Any,
    keys: Any,
    *,
    request: bytes | None = None,
    response: bytes | None = None,
    require_log: bool = True,
    policy: str | None = None,
) -> Proven:
    """Checks signature, log position and, where they are given, commitments and the witnesses' policy. Raises
    `VerificationError`.
    """
    if not isinstance(document, dict) or not isinstance(document.get("envelope"), dict):
        raise VerificationError("the file is not a receipt")
    public = _keys(keys)
    payload, statement, signed_by = _signature(document["envelope"], public)
    result = Proven(statement)
    predicate = _predicate(statement)
    result.proven.append(f"the gateway signed this statement with the key {signed_by}")
    if public[signed_by].revoked is not None:
        result.unproven.append(
            f"that it was signed before the key {signed_by} was revoked, but by its own time and its witnesses'"
        )
    _log(document, payload, public, predicate, result, require_log or policy is not None)
    _witnessed(document, policy, result)
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


def _keys(document: Any) -> dict[str, _Key]:
    if not isinstance(document, dict) or not isinstance(document.get("keys"), list):
        raise VerificationError("the keys are not a JWK set")
    found: dict[str, _Key] = {}
    for key in document["keys"]:
        try:
            if key["kty"] != "OKP" or key["crv"] != "Ed25519":
                continue
            raw = base64.urlsafe_b64decode(key["x"] + "=" * (-len(key["x"]) % 4))
            revoked = None if key.get("revoked") is None else int(key["revoked"])
            public = Ed25519PublicKey.from_public_bytes(raw)
            found[str(key["kid"])] = _Key(str(key["use"]), public, int(key["nbf"]), int(key["exp"]), revoked)
        except (KeyError, TypeError, ValueError, AttributeError):
            raise VerificationError("a key of the JWK set is malformed") from None
    return found


def _decode(text: Any, what: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (TypeError, ValueError, binascii.Error):
        raise VerificationError(f"{what} is not base64") from None


def _signature(envelope: dict[str, Any], keys: dict[str, _Key]) -> tuple[bytes, dict[str, Any], str]:
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
        if known is None or known.use != "receipt":
            continue
        try:
            known.public.verify(_decode(signature.get("sig"), "the signature"), message)
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


def _valid_then(statement: dict[str, Any], key: _Key, kid: str) -> None:
    try:
        signed = datetime.fromisoformat(str(_predicate(statement)["time"]).replace("Z", "+00:00")).timestamp()
    except (KeyError, ValueError):
        raise VerificationError("the statement has no time") from None
    if not key.begins - 300 <= signed <= key.ends:
        raise VerificationError(f"the key {kid} was not valid when the statement was made")
    if key.revoked is not None and signed > key.revoked:
        raise VerificationError(f"the key {kid} was not valid when the statement was made: it had been revoked")


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
    keys: dict[str, _Key],
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


def _witnessed(document: dict[str, Any], policy: str | None, result: Proven) -> None:
    if policy is None:
        result.unproven.append("that witnesses saw the same log (give a policy with --policy)")
        return
    body, _, tail = str(document["checkpoint"]).partition("\n\n")
    saw: dict[str, int] = {}
    used: set[str] = set()
    for name, vkey in _policy_lines(policy, "witness", 2):
        if vkey in used:
            raise VerificationError("the policy counts one witness under two names")
        used.add(vkey)
        time_s = _cosigned(vkey, (body + "\n").encode(), tail)
        if time_s is not None:
            saw[name] = time_s
    quorum = [words[0] for words in _policy_lines(policy, "quorum", 1)]
    if len(quorum) != 1:
        raise VerificationError("the policy names no quorum")
    if quorum != ["none"] and not _met(quorum[0], saw, _groups(policy), 0):
        raise VerificationError(f"too few witnesses cosigned the checkpoint: {', '.join(sorted(saw)) or 'none'}")
    if quorum == ["none"]:
        result.unproven.append("that witnesses saw the same log (the policy asks for none)")
        return
    first = datetime.fromtimestamp(min(saw.values()), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    result.proven.append(
        f"the witnesses {', '.join(sorted(saw))} saw the log continue to this checkpoint, from {first} on"
    )


def _policy_lines(policy: str, kind: str, count: int) -> list[list[str]]:
    found = []
    for line in policy.splitlines():
        words = line.split()
        if words[:1] == [kind]:
            if len(words) - 1 < count:
                raise VerificationError(f"the policy's line `{line}` is too short")
            found.append(words[1 : 1 + count] if kind != "group" else words[1:])
    return found


def _groups(policy: str) -> dict[str, tuple[int, list[str]]]:
    groups = {}
    for name, threshold, *members in _policy_lines(policy, "group", 3):
        words = {"any": 1, "all": len(members)}
        if threshold not in words and not (threshold.isdigit() and 0 < int(threshold) <= len(members)):
            raise VerificationError(f"the policy's group {name} has no sensible threshold")
        groups[name] = (words[threshold] if threshold in words else int(threshold), members)
    return groups


def _met(name: str, saw: dict[str, int], groups: dict[str, tuple[int, list[str]]], depth: int) -> bool:
    if name not in groups:
        return name in saw
    if depth > 8:
        raise VerificationError("the policy's groups go round in circles")
    threshold, members = groups[name]
    return sum(_met(member, saw, groups, depth + 1) for member in dict.fromkeys(members)) >= threshold


def _cosigned(vkey: str, body: bytes, tail: str) -> int | None:
    """When the witness of this verifier key cosigned, None where it did not."""
    try:
        name, id_, material = vkey.split("+", 2)
        raw = base64.b64decode(material, validate=True)
        named = hashlib.sha256(name.encode() + b"\n" + raw).digest()[:4]
        if raw[:1] != b"\x04" or named.hex() != id_:
            raise ValueError
        key = Ed25519PublicKey.from_public_bytes(raw[1:])
        for line in tail.splitlines():
            mark, signer, value = line.split(" ")
            signature = base64.b64decode(value, validate=True)
            if mark != "\u2014" or signer != name or signature[:4] != named or len(signature) != 76:
                continue
            time_s = int.from_bytes(signature[4:12], "big")
            try:
                key.verify(signature[12:], b"cosignature/v1\ntime %d\n%b" % (time_s, body))
            except InvalidSignature:
                continue
            return time_s
    except (ValueError, binascii.Error):
        raise VerificationError("a witness's key or a signature line is malformed") from None
    return None


def _checkpoint(text: str, keys: dict[str, _Key]) -> tuple[str, int, bytes]:
    body, _, tail = text.partition("\n\n")
    lines = body.split("\n")
    origin, size, root = lines[0], int(lines[1]), base64.b64decode(lines[2], validate=True)
    revoked = False
    for line in tail.splitlines():
        mark, name, value = line.split(" ")
        signature = base64.b64decode(value, validate=True)
        for key in keys.values():
            raw = key.public.public_bytes_raw()
            named = hashlib.sha256(name.encode() + b"\n\x01" + raw).digest()[:4]
            if mark == "\u2014" and key.use == "log" and name == origin and hmac.compare_digest(named, signature[:4]):
                try:
                    key.public.verify(signature[4:], (body + "\n").encode())
                except InvalidSignature:
                    raise VerificationError("the checkpoint's signature does not fit") from None
                # A checkpoint has no time of its own: whoever stole the key can sign any.
                if key.revoked is None:
                    return origin, size, root
                revoked = True
    if revoked:
        raise VerificationError("the log key that signed the checkpoint was revoked; fetch the receipt again")
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
    parser.add_argument("--policy", type=Path, help="witnesses that must have cosigned (C2SP tlog-policy)")
    options = parser.parse_args(arguments)
    try:
        document, keys = (json.loads(path.read_bytes()) for path in (options.receipt, options.keys))
        request, response = (
            path.read_bytes() if path is not None else None for path in (options.request, options.response)
        )
        policy = options.policy.read_text("utf-8") if options.policy is not None else None
    except OSError as error:
        print(f"{error.filename}: {error.strerror}", file=sys.stderr)
        return 2
    except (ValueError, RecursionError):
        print("not verified: the receipt or the keys are not JSON", file=sys.stderr)
        return 1
    try:
        result = verify(document, keys, request=request, response=response, policy=policy)
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
