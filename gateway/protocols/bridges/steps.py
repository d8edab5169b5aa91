"""One stage of a translated stream: events of one dialect in, events of the next out, both as parsed JSON."""

from __future__ import annotations

from typing import Protocol

from gateway.protocols.bridges.shared import Json


class Step(Protocol):
    """`feed` in order, then `end` once when the upstream ended completely."""

    def feed(self, event: Json) -> list[Json]: ...

    def end(self) -> list[Json]:
        """The events that close the stream; in dialects that have one, the last is the terminal event."""
        ...
