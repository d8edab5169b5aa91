"""Who really answered: from the response, from where each provider says it, with the grade that place deserves."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from gateway.config.secrets import Secret
from gateway.config.snapshot import Deployment, Price, Provider, Timeouts
from gateway.errors import ContextLengthExceeded
from gateway.exchange import Grade
from gateway.protocols.views import read_answer
from gateway.providers.evidence import effective, matches, served_is_accepted
from gateway.providers.rejection import failure_of, retry_after, scrub

SAMPLES = Path(__file__).resolve().parents[2] / "data" / "vllm"


def deployment(kind: str = "openai", model: str = "gpt-4o", accept: tuple[str, ...] | None = None) -> Deployment:
    provider = Provider(
        "prov", kind, "https://api.example.test/v1", (Secret("sk-provider-secret-123456"),), "us", None, None
    )  # type: ignore[arg-type]
    price = Price(Decimal(1), Decimal(1))
    return Deployment("d", provider, model, "us", accept, 1000, 100, price, Timeouts(), 0, frozenset({"chat"}), model)


def answer(**extra: Any) -> bytes:
    import orjson

    choice = {"index": 0, "message": {"role": "assistant", "content": "x"}, "finish_reason": "stop"}
    return orjson.dumps({"id": "chatcmpl-1", "created": 1, "choices": [choice], **extra})


def test_the_model_is_what_the_body_says() -> None:
    """Asserted by the provider, and never the requested name."""
    who = effective(deployment(), [("x-request-id", "req-9")], read_answer("chat", answer(model="gpt-4o-2024-08-06")))
    assert (who.model.value, who.model.grade, who.model.source) == ("gpt-4o-2024-08-06", Grade.asserted, "body.model")
    assert who.upstream_request_id == "req-9" and who.provider.grade is Grade.observed


def test_a_silent_upstream_leaves_the_model_unknown() -> None:
    """Nothing is filled in from the request."""
    who = effective(deployment(), [], read_answer("chat", answer()))
    assert who.model.value is None and who.grade is Grade.none
    assert served_is_accepted(deployment(), None) is None


def test_azure_tells_the_served_model_in_a_header() -> None:
    """The body only repeats the alias there."""
    headers = [("x-ms-served-model", "gpt-4o-2024-11-20"), ("x-ms-region", "swedencentral"), ("apim-request-id", "a")]
    who = effective(deployment("azure"), headers, read_answer("chat", answer(model="my-alias")))
    assert who.model.value == "gpt-4o-2024-11-20" and who.model.source == "header:x-ms-served-model"
    assert (who.region.value, who.region.grade) == ("swedencentral", Grade.asserted)


def test_an_aggregator_names_who_it_chose() -> None:
    """The last attempt of its metadata."""
    metadata = {"attempts": [{"provider": "First"}, {"provider": "Second"}], "region": "eu"}
    who = effective(deployment("openrouter"), [], read_answer("chat", answer(model="m", openrouter_metadata=metadata)))
    assert (who.provider.value, who.provider.grade) == ("prov/Second", Grade.asserted)
    assert who.region.value == "eu"


@pytest.mark.parametrize(
    ("accept", "served", "good"),
    [
        (None, "gpt-4o", True),
        (None, "gpt-4o-2024-08-06", True),
        (None, "gpt-4o-20240806", True),
        (None, "gpt-4o-mini", False),
        (None, "gpt-4o-2024-08-06-preview", False),
        (None, "GPT-4o", False),
        (("gpt-4o-2024-08-06",), "gpt-4o", False),
        (("vendor/*",), "vendor/x", True),
        (("vendor/*",), "vendorz/x", False),
        (("vendor/*",), "vendor/x/y", False),
        (("*",), "anything", True),
    ],
)
def test_accepted_models(accept: tuple[str, ...] | None, served: str, good: bool) -> None:
    """The model and its dated snapshots, or what the operator listed."""
    assert served_is_accepted(deployment(accept=accept), served) is good


def test_patterns_match_whole_segments_only() -> None:
    """No prefix, no deeper path, no empty segment."""
    assert (
        matches("a/*", "a/b")
        and not matches("a/*", "ab/c")
        and not matches("a/*", "a/")
        and not matches("a/*", "a/b/c")
    )


@pytest.mark.parametrize("name", ["overlong", "overlong_tokens", "overlong_stream"])
def test_recorded_overflows_of_a_real_engine_are_recognised(name: str) -> None:
    """vLLM 0.32's own refusals become context_length_exceeded and are final."""
    body = (SAMPLES / f"{name}.body").read_bytes()
    failure = failure_of(deployment("vllm").provider, 400, [], body)
    assert failure.kind == "refused" and isinstance(failure.answer, ContextLengthExceeded)


def test_a_recorded_answer_of_a_real_engine_is_read() -> None:
    """Id, model, usage and finish reason of vLLM 0.32."""
    view = read_answer("chat", (SAMPLES / "chat.body").read_bytes())
    assert view.id and view.id.startswith("chatcmpl-") and view.model == "tiny-1"
    assert view.usage is not None and view.finish_reasons[0] in ("stop", "length")


def test_messages_of_upstreams_hold_neither_our_credential_nor_their_address() -> None:
    """Whole, in part, or as a URL."""
    text = "bad key sk-provider-secret-123456 (…secret-123…) at https://api.example.test/v1/x host api.example.test"
    shown = scrub(deployment().provider, text)
    assert "secret-1" not in shown and "example.test" not in shown


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [([("retry-after", "7")], 7), ([("retry-after-ms", "1500")], 1.5), ([("retry-after", "soon")], None), ([], None)],
)
def test_retry_after_is_read_in_every_spelling(headers: list[tuple[str, str]], seconds: float | None) -> None:
    """Seconds, milliseconds, and nothing for nonsense."""
    assert retry_after(headers) == seconds
