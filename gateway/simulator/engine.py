"""A simulated engine whose faults are the real ones: a paged KV pool that nobody wipes, split prefill and decode.

The answerer builds its text from the pages that it reads, so that a broken hand-off leaks other requests' text with
HTTP 200, as in 2026: a prompt larger than the prefill pool is replaced by a one-token placeholder, the hand-off goes
on, and decode reads all the pages it had reserved. Tokens are words; a page holds `PAGE` of them.
"""

from __future__ import annotations

import random
import re
from collections import deque
from dataclasses import dataclass, field

PAGE = 16
_EXACT = re.compile(r"repeat exactly:\s*(.+)", re.IGNORECASE | re.DOTALL)


@dataclass(slots=True)
class Faults:
    """Switches. Rates are probabilities per request; `fail_status` answers every request with that status."""

    placeholder_handoff: bool = False
    substitute_model: str | None = None
    substitute_rate: float = 1.0
    swap_ids_rate: float = 0.0
    truncate_rate: float = 0.0
    fail_status: int | None = None
    fail_rate: float = 1.0
    latency_s: float = 0.0
    event_gap_s: float = 0.0
    cut_after_events: int | None = None


@dataclass(slots=True)
class Served:
    """The ground truth of one request."""

    request_id: str
    prompt: str
    answer: str
    leaked: bool
    model: str


@dataclass(slots=True)
class Answer:
    """What the engine answers, before it is put on the wire."""

    text: str
    prompt_tokens: int
    model: str
    response_id: str


@dataclass
class Engine:
    """One engine with its pool. `context_window` is what it advertises; `pool_tokens` is what it can hold."""

    name: str
    model: str
    context_window: int = 8192
    pool_tokens: int = 8192
    seed: int = 0
    faults: Faults = field(default_factory=Faults)
    history: list[Served] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._dice = random.Random(self.seed)  # noqa: S311 - a simulation
        pages = max(self.pool_tokens // PAGE, 1) * 2
        self._pages: list[list[str]] = [[] for _ in range(pages)]
        self._free: deque[int] = deque(range(pages))
        self._last_id = "none"

    def count(self, text: str) -> int:
        """Tokens of a prompt: its words, and four for the template."""
        return len(text.split()) + 4

    def too_long(self, text: str) -> bool:
        """Whether the prompt is beyond the advertised window."""
        return self.count(text) >= self.context_window

    def answer(self, request_id: str, prompt: str, max_words: int = 64) -> Answer:
        """Prefill, hand-off, decode."""
        faults = self.faults
        words = prompt.split()
        if faults.truncate_rate and self._dice.random() < faults.truncate_rate:
            words = words[: max(len(words) // 8, 1)]
        placeholder = faults.placeholder_handoff and len(words) > self.pool_tokens
        reserved = self._reserve(min(len(words), self.pool_tokens))
        if placeholder:
            # The prompt is replaced by one token on one page; decode is told that everything was transferred.
            self._pages[reserved[0]] = ["<placeholder>"]
        else:
            for position, page in enumerate(reserved):
                self._pages[page] = words[position * PAGE : (position + 1) * PAGE]
        read = [word for page in reserved for word in self._pages[page]]
        text = self._write(read[1:] if placeholder else read, max_words)
        self._free.extend(reserved)
        model = self.model
        if faults.substitute_model and self._dice.random() < faults.substitute_rate:
            model = faults.substitute_model
        response_id = request_id
        if faults.swap_ids_rate and self._dice.random() < faults.swap_ids_rate:
            response_id = self._last_id
        self._last_id = request_id
        leaked = placeholder and bool(read[1:])
        self.history.append(Served(request_id, prompt, text, leaked, model))
        return Answer(text, 1 if placeholder else len(words) + 4, model, f"chatcmpl-{response_id}")

    def _reserve(self, tokens: int) -> list[int]:
        """Pages for this many tokens, the longest freed first; their old content is still in them."""
        wanted = min(max((tokens + PAGE - 1) // PAGE, 1), len(self._free))
        return [self._free.popleft() for _ in range(wanted)]

    def _write(self, read: list[str], max_words: int) -> str:
        """An answer by rule: what is asked to be repeated is repeated, anything else is told from the text itself."""
        text = " ".join(read)
        asked = _EXACT.search(text)
        if asked:
            return " ".join(asked.group(1).split()[:max_words])
        if not read:
            return "There is nothing to tell."
        start = self._dice.randrange(max(len(read) - max_words, 1))
        return "In short: " + " ".join(read[start : start + max_words])

    def fails(self) -> int | None:
        """The status to fail with, if this request fails."""
        status = self.faults.fail_status
        return status if status is not None and self._dice.random() < self.faults.fail_rate else None
