"""Content codings of answers (RFC 9110, 8.4), bounded: what unpacks beyond the limit is given up at once."""

from __future__ import annotations

import zlib

from gateway.errors import UpstreamFailure, UpstreamProtocolError

_STEP = 256 * 1024


def protocol_failure(message: str) -> UpstreamFailure:
    """An answer that is not what it says it is."""
    return UpstreamFailure("protocol", UpstreamProtocolError(message))


class Identity:
    """No coding: counts bytes against the limit and passes them on."""

    __slots__ = ("_left",)

    def __init__(self, limit: int) -> None:
        self._left = limit

    def feed(self, data: bytes) -> bytes:
        self._left -= len(data)
        if self._left < 0:
            raise protocol_failure("the upstream's answer is too large")
        return data

    def finish(self) -> bytes:
        return b""


class Inflate:
    """gzip or deflate, decoded as it comes so that compressed streams still flow; memory stays within the limit."""

    __slots__ = ("_decoder", "_first", "_left", "_raw_deflate")

    def __init__(self, coding: str, limit: int) -> None:
        self._decoder = zlib.decompressobj(wbits=31 if coding == "gzip" else 15)
        self._raw_deflate = coding == "deflate"
        self._first = True
        self._left = limit

    def feed(self, data: bytes) -> bytes:
        parts: list[bytes] = []
        pending = False
        while data or pending:
            try:
                part = self._decoder.decompress(data, _STEP)
            except zlib.error:
                if self._first and self._raw_deflate:
                    # Some servers send raw deflate under this name (RFC 9110, 8.4.1.2, note).
                    self._decoder = zlib.decompressobj(wbits=-15)
                    self._first = False
                    continue
                raise protocol_failure("the upstream's answer is not in the coding it names") from None
            self._first = False
            self._left -= len(part)
            if self._left < 0:
                raise protocol_failure("the upstream's answer is too large when it is unpacked")
            parts.append(part)
            data = self._decoder.unconsumed_tail
            # A full step may leave output inside although all input is taken.
            pending = len(part) == _STEP
            if self._decoder.eof:
                if self._decoder.unused_data:
                    raise protocol_failure("bytes follow the end of the upstream's compressed answer")
                break
        return b"".join(parts)

    def finish(self) -> bytes:
        if not self._decoder.eof:
            raise protocol_failure("the upstream's compressed answer ended too soon")
        return b""


def decoder(coding: str | None, limit: int) -> Identity | Inflate:
    """The decoder for a Content-Encoding value; an unknown one is a protocol failure of the upstream."""
    name = (coding or "identity").strip().lower()
    if name in ("", "identity"):
        return Identity(limit)
    if name in ("gzip", "x-gzip"):
        return Inflate("gzip", limit)
    if name == "deflate":
        return Inflate("deflate", limit)
    raise protocol_failure("the upstream used a content coding that was not offered")
