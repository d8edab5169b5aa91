"""Upstreams over TLS and through a proxy: verified, recorded, and only where they should be."""

from __future__ import annotations

import asyncio
import datetime
import ipaddress
import ssl
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from gateway.config.snapshot import Network, Provider, Timeouts
from gateway.errors import UpstreamFailure
from gateway.providers.transport import Transport, UpstreamRequest

REPLY = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"
REQUEST = UpstreamRequest("/v1/x", (), b"{}", False)


class Authority:
    """A certificate authority of the test's own."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test authority")])
        certificate = self._sign(self.name, self.key.public_key(), ca=True)
        self.file = folder / "ca.pem"
        self.file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))

    def _sign(self, subject: x509.Name, public: ec.EllipticCurvePublicKey, *, ca: bool) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self.name)
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key()), critical=False)
        )
        if not ca:
            names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        return builder.sign(self.key, hashes.SHA256())

    def issue(self, name: str) -> Path:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        file = self.folder / f"{name}.pem"
        file.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
            + self._sign(subject, key.public_key(), ca=False).public_bytes(serialization.Encoding.PEM)
        )
        return file


async def serve(context: ssl.SSLContext | None) -> tuple[asyncio.Server, int]:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                await reader.readuntil(b"{}")
                writer.write(REPLY)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context)
    return server, server.sockets[0].getsockname()[1]


async def call(base_url: str, network: Network) -> tuple[bytes, str | None]:
    provider = Provider("p", "openai-compatible", base_url, (), "eu", True, False, network=network)
    transport = Transport(1 << 20)
    try:
        answer = await transport.open(provider, None, Timeouts(3, 3, 3), REQUEST)
        return await answer.read(), answer.tls_spki
    finally:
        transport.close()


def server_context(authority: Authority, *, clients: bool = False) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.issue("server"))
    if clients:
        context.load_verify_locations(authority.file)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


async def test_a_verified_server_key_is_recorded(tmp_path: Path) -> None:
    """With the provider's CA file; the SPKI hash is 64 hex characters and the same again."""
    authority = Authority(tmp_path)
    server, port = await serve(server_context(authority))
    network = Network(ca_file=str(authority.file))
    first, second = [await call(f"https://localhost:{port}/v1", network) for _ in range(2)]
    assert first[0] == b"{}" and first[1] == second[1] and len(first[1] or "") == 64
    server.close()


@pytest.mark.parametrize("case", ["unknown authority", "wrong name", "plain text"])
async def test_a_server_that_is_not_who_it_should_be_gets_nothing(tmp_path: Path, case: str) -> None:
    """No connection, so no credential and no prompt."""
    authority = Authority(tmp_path)
    server, port = await serve(None if case == "plain text" else server_context(authority))
    other = Authority(tmp_path / "other")
    network = Network(ca_file=str(other.file if case == "unknown authority" else authority.file))
    host = "127.0.0.2" if case == "wrong name" else "localhost"
    if case == "wrong name":
        server.close()
        server = await asyncio.start_server(lambda r, w: None, "127.0.0.2", 0, ssl=server_context(authority))
        port = server.sockets[0].getsockname()[1]
    with pytest.raises(UpstreamFailure) as caught:
        await call(f"https://{host}:{port}/v1", network)
    assert caught.value.kind == "connect" and not caught.value.sent
    server.close()


async def test_a_client_certificate_is_shown_where_it_is_asked_for(tmp_path: Path) -> None:
    """With it the call succeeds, without it the server refuses."""
    authority = Authority(tmp_path)
    server, port = await serve(server_context(authority, clients=True))
    url, certificate = f"https://localhost:{port}/v1", str(authority.issue("client"))
    body, _ = await call(url, Network(ca_file=str(authority.file), client_certificate=certificate))
    assert body == b"{}"
    with pytest.raises(UpstreamFailure):
        await call(url, Network(ca_file=str(authority.file)))
    server.close()


async def test_a_proxy_tunnels_and_sees_only_ciphertext(tmp_path: Path) -> None:
    """CONNECT with the proxy's own credential; what passes through is TLS; a refusing proxy is a connect failure."""
    authority = Authority(tmp_path)
    server, port = await serve(server_context(authority))
    seen: list[bytes] = []
    status = [200]

    async def proxy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 %d X\r\n\r\n" % status[0])
        if status[0] != 200:
            writer.close()
            return
        up_reader, up_writer = await asyncio.open_connection("127.0.0.1", port)

        async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
            while data := await source.read(65536):
                seen.append(data)
                sink.write(data)
            sink.close()

        await asyncio.gather(pump(reader, up_writer), pump(up_reader, writer))

    front = await asyncio.start_server(proxy, "127.0.0.1", 0)
    place = front.sockets[0].getsockname()[1]
    network = Network(ca_file=str(authority.file), proxy=f"http://user:pass@127.0.0.1:{place}")
    body, spki = await call(f"https://localhost:{port}/v1", network)
    assert body == b"{}" and spki
    assert seen[0].startswith(b"CONNECT localhost:%d HTTP/1.1\r\n" % port) and b"Proxy-Authorization: Basic" in seen[0]
    assert not any(b"/v1/x" in piece for piece in seen)
    status[0] = 407
    with pytest.raises(UpstreamFailure) as caught:
        await call(f"https://localhost:{port}/v1", network)
    assert caught.value.kind == "connect"
    front.close()
    server.close()
