"""DSSE envelopes (secure-systems-lab/dsse, protocol v1): what exactly is signed."""

from __future__ import annotations

import base64

from gateway.receipts.signer import SigningKey

PAYLOAD_TYPE = "application/vnd.in-toto+json"
_TYPE = PAYLOAD_TYPE.encode()


def pre_authentication_encoding(payload: bytes) -> bytes:
    """`DSSEv1 LEN(type) type LEN(payload) payload`."""
    return b"DSSEv1 %d %b %d %b" % (len(_TYPE), _TYPE, len(payload), payload)


def seal(payload: bytes, key: SigningKey) -> bytes:
    """The signature over a payload; the envelope is put together when it is read."""
    return key.sign(pre_authentication_encoding(payload))


def envelope(payload: bytes, kid: str, signature: bytes) -> dict[str, object]:
    """The envelope as JSON object."""
    return {
        "payload": base64.b64encode(payload).decode(),
        "payloadType": PAYLOAD_TYPE,
        "signatures": [{"keyid": kid, "sig": base64.b64encode(signature).decode()}],
    }
