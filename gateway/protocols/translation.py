"""What turns a client's dialect into an upstream's and back: the base, and the translation that changes nothing."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

from gateway.exchange import AnswerView, Dialect, InferenceRequest
from gateway.protocols import repairs
from gateway.protocols.chat_stream import ChatRelay
from gateway.protocols.messages_stream import MessagesRelay
from gateway.protocols.responses_stream import ResponsesRelay
from gateway.protocols.stream import Relay


class Answer(NamedTuple):
    """A whole answer for the client, and the repairs that were needed (names for the receipt)."""

    body: bytes
    repairs: tuple[str, ...] = ()


class Translation(ABC):
    """Pure translations between what a client speaks and what a deployment speaks."""

    def __init__(self, client: Dialect, native: Dialect) -> None:
        self.client: Dialect = client
        self.native: Dialect = native

    @property
    def identity(self) -> bool:
        return self.client == self.native

    @abstractmethod
    def request(self, request: InferenceRequest, model: str, max_output_tokens: int | None) -> bytes | None:
        """The body for the upstream; None: the caller's own. Raises `InvalidRequest` for what cannot be bridged."""

    @abstractmethod
    def answer(self, body: bytes, view: AnswerView, request: InferenceRequest) -> Answer:
        """The client's body for a whole answer of the upstream. Raises `NotAnAnswer`."""

    @abstractmethod
    def stream(self, request: InferenceRequest) -> Relay:
        """A relay for one attempt's stream."""


class Native(Translation):
    """Client and upstream speak the same: bytes pass unchanged but for the contract's repairs."""

    def __init__(self, dialect: Dialect) -> None:
        super().__init__(dialect, dialect)

    def request(self, request: InferenceRequest, model: str, max_output_tokens: int | None) -> bytes | None:
        return None

    def answer(self, body: bytes, view: AnswerView, request: InferenceRequest) -> Answer:
        if self.client in ("responses", "messages"):
            return Answer(body)
        fields: dict[str, object] = view.body  # type: ignore[assignment]
        if self.client == "embeddings":
            name, edits = (
                repairs.EMBEDDING_ENCODING,
                repairs.embedding_encodings(fields, request.fields.get("encoding_format")),
            )
        else:
            name, edits = repairs.EMPTY_FINISH, repairs.empty_finishes(fields)
        return Answer(repairs.apply(body, edits), (name,)) if edits else Answer(body)

    def stream(self, request: InferenceRequest) -> Relay:
        return native_relay(self.client, request)


def native_relay(dialect: Dialect, request: InferenceRequest, *, include_usage: bool | None = None) -> Relay:
    """The relay of a dialect's own streams."""
    if dialect == "responses":
        return ResponsesRelay()
    if dialect == "messages":
        return MessagesRelay()
    usage = request.include_usage if include_usage is None else include_usage
    return ChatRelay(choices=request.choices, include_usage=usage)
