"""TLS towards upstreams: verified, with the server's public key recorded (SPKI SHA-256, as in RFC 7469)."""

from __future__ import annotations

import hashlib
import ssl
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from gateway.config.snapshot import Network


def client_context(network: Network) -> ssl.SSLContext:
    """A verifying context with the provider's CA file and client certificate; TLS 1.2 and later, HTTP/1.1 by ALPN."""
    context = ssl.create_default_context(cafile=network.ca_file)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    if network.client_certificate:
        context.load_cert_chain(network.client_certificate, network.client_key)
    return context


def spki_sha256(ssl_object: Any) -> str | None:
    """Hex SHA-256 of the peer certificate's SubjectPublicKeyInfo; None when there is no certificate."""
    certificate = ssl_object.getpeercert(True)
    if not certificate:
        return None
    key = x509.load_der_x509_certificate(certificate).public_key()
    return hashlib.sha256(key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).hexdigest()
