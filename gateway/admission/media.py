"""Images, audio and files of a request, and provider-side state it names: found once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from gateway.errors import NotFound, UnsupportedParameter
from gateway.exchange import Dialect, InferenceRequest

#: Content parts that are not text, in the three dialects that have parts.
_MEDIA_PARTS = {
    *("image_url", "input_image", "image", "image_file", "computer_screenshot"),
    *("input_audio", "audio", "audio_url", "video_url", "video"),
    *("file", "input_file", "document", "container_upload"),
}
#: Embeddings in place of media: an engine would load a serialised tensor from them.
_ENGINE_PARTS = frozenset({"image_embeds", "audio_embeds", "video_embeds", "prompt_embeds"})
_URL_KEYS = ("image_url", "video_url", "audio_url", "file_url", "url")
_FILE_KEYS = ("file_id",)
_STREAMS: dict[Dialect, tuple[str, ...]] = {
    "chat": ("messages",),
    "completions": (),
    "embeddings": ("input",),
    "responses": ("input",),
    "messages": ("messages", "system"),
}


@dataclass(slots=True)
class Media:
    """What was found. `remote` is the first field that names media by anything but a `data:` URL."""

    found: bool = False
    remote: str | None = None
    references: tuple[tuple[str, str], ...] = ()


NOTHING = Media()


def find_media(dialect: Dialect, fields: Mapping[str, Any]) -> Media:
    """Media and references of a request. Raises `UnsupportedParameter` for parts that only an engine's inside takes."""
    stack: list[Any] = []
    for name in _STREAMS[dialect]:
        items = fields.get(name)
        if type(items) is list:
            for item in items:
                # Nearly every message is an object whose content is one text.
                plain = type(item) is dict and len(item) <= 2 and type(item.get("content")) is str
                if not plain and type(item) in (dict, list):
                    stack.append(item)
    references = _state(dialect, fields)
    if not stack:
        return Media(references=tuple(references)) if references else NOTHING
    media = Media()
    _walk(stack, media, references)
    media.references = tuple(references)
    return media


def _walk(stack: list[Any], media: Media, references: list[tuple[str, str]]) -> None:
    while stack:
        value = stack.pop()
        if type(value) is list:
            stack += [item for item in value if type(item) is dict or type(item) is list]
            continue
        kind = value.get("type")
        if type(kind) is not str:
            kind = ""
        if kind in _ENGINE_PARTS:
            raise UnsupportedParameter(f"content of type `{kind}` is not supported", param="messages")
        if kind == "item_reference" and isinstance(value.get("id"), str):
            references.append(("item_reference", value["id"]))
        if kind in _MEDIA_PARTS or any(key in value for key in _URL_KEYS[:3]):
            media.found = True
            _look(value, kind, media, references)
        for key in ("content", "output"):
            inner = value.get(key)
            if type(inner) is list or type(inner) is dict:
                stack.append(inner)


def _look(part: Mapping[str, Any], kind: str, media: Media, references: list[tuple[str, str]]) -> None:
    """Reads the addresses of one media part, however deep its dialect puts them."""
    stack: list[Any] = [part]
    while stack:
        value = stack.pop()
        if type(value) is list:
            stack += value
        if type(value) is not dict:
            continue
        for key, inner in value.items():
            if type(inner) is str:
                if key in _FILE_KEYS:
                    references.append((key, inner))
                    media.remote = media.remote or f"{kind}.{key}"
                elif _is_address(key, inner):
                    media.remote = media.remote or f"{kind}.{key}"
            elif key != "text":
                stack.append(inner)


def _is_address(key: str, value: str) -> bool:
    """Whether an engine could take this as a place to fetch from: a URL, or anything in a member meant for one."""
    if value[:5].lower() == "data:":
        return False
    return key in _URL_KEYS or "://" in value[:64]


def _state(dialect: Dialect, fields: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Provider-side state that the top level names: under a shared provider account it might be another tenant's."""
    references: list[tuple[str, str]] = []
    if dialect == "responses" and isinstance(fields.get("previous_response_id"), str):
        references.append(("previous_response_id", fields["previous_response_id"]))
    container = fields.get("container")
    if dialect == "messages" and container is not None:
        references.append(("container", str(container.get("id") if isinstance(container, dict) else container)))
    tools = fields.get("tools")
    for tool in tools if type(tools) is list else ():
        if type(tool) is not dict:
            continue
        for name in _strings(tool.get("vector_store_ids")):
            references.append(("vector_store_id", name))
        inner = tool.get("container")
        if isinstance(inner, str):
            references.append(("container", inner))
        elif isinstance(inner, dict):
            references += [("file_id", name) for name in _strings(inner.get("file_ids"))]
    return references


def _strings(value: Any) -> list[str]:
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


def refuse_foreign_references(request: InferenceRequest, owns: Callable[[str, str], bool]) -> None:
    """Raises `NotFound` for the first piece of provider-side state that is not this tenant's; the same for unknown."""
    for kind, name in request.references:
        if not owns(kind, name):
            raise NotFound(f"no such {kind.replace('_', ' ')}", param=kind)
