"""The leak index: does an answer hold another tenant's recent text?

Fingerprints of prompts and answers, partitioned by deployment and epoch. A leak is only plausible from what ran on the
same deployment within the residency window, so nothing else is looked at. Hits that the tenant's own texts explain, and
hits that three or more tenants share, do not count; what counts must come from one source and be private by its form.
Each epoch has a key of its own that is destroyed with it, so that an old index cannot be searched by guesses. Nothing
here can be asked for a text; a finding names requests and numbers, never words.
"""

from __future__ import annotations

import secrets
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from gateway.integrity.fingerprints import Fingerprints, Hashes, mix

EPOCH_S = 300.0
RESIDENCY_S = 3600.0
PUBLIC_TENANTS = 3
#: (identifiers, passages) of one source that are enough together. Shared words alone are never: public text does that.
ENOUGH = ((3, 0), (2, 2), (1, 3))
_SEAL_ABOVE = 50_000


@dataclass(frozen=True, slots=True)
class Finding:
    """Text of another tenant in an answer: how much, and from which request of which tenant."""

    source_receipt: str
    source_tenant: str
    shingles: int
    identifiers: int


class _Table:
    """Hash → request slot: a dict while it grows, sorted arrays (12 bytes an entry) when it is sealed."""

    __slots__ = ("_hashes", "_open", "_slots")

    def __init__(self) -> None:
        self._open: dict[int, int] = {}
        self._hashes = np.empty(0, dtype=np.uint64)
        self._slots = np.empty(0, dtype=np.uint32)

    def add(self, hashes: list[int], slot: int) -> None:
        self._open.update(dict.fromkeys(hashes, slot))
        if len(self._open) > _SEAL_ABOVE:
            self.seal()

    def seal(self) -> None:
        if not self._open:
            return
        hashes = np.concatenate([self._hashes, np.fromiter(self._open.keys(), np.uint64, len(self._open))])
        slots = np.concatenate([self._slots, np.fromiter(self._open.values(), np.uint32, len(self._open))])
        order = np.argsort(hashes, kind="stable")
        self._hashes, self._slots, self._open = hashes[order], slots[order], {}

    def find(self, hashes: Hashes, listed: list[int]) -> list[tuple[int, int]]:
        """(position in the query, slot) of each hit."""
        opened = self._open
        hits = []
        if opened:
            common = opened.keys() & set(listed)
            if common:
                hits = [(position, opened[value]) for position, value in enumerate(listed) if value in common]
        if len(self._hashes):
            places = np.searchsorted(self._hashes, hashes)
            places[places == len(self._hashes)] = 0
            for position in np.flatnonzero(self._hashes[places] == hashes).tolist():
                hits.append((position, int(self._slots[places[position]])))
        return hits

    @property
    def nbytes(self) -> int:
        """Bytes of the sealed part."""
        return int(self._hashes.nbytes + self._slots.nbytes)

    def __len__(self) -> int:
        return len(self._open) + len(self._hashes)


@dataclass(slots=True)
class _Epoch:
    began: float
    key: int
    deployments: dict[str, tuple[_Table, _Table]] = field(default_factory=dict)  # shingles, identifiers
    tenants: dict[str, _Table] = field(default_factory=dict)  # everything a tenant itself sent or got

    def tables(self, deployment: str) -> tuple[_Table, _Table]:
        tables = self.deployments.get(deployment)
        if tables is None:
            tables = self.deployments[deployment] = (_Table(), _Table())
        return tables

    def own(self, tenant: str) -> _Table:
        table = self.tenants.get(tenant)
        if table is None:
            table = self.tenants[tenant] = _Table()
        return table


class LeakIndex:
    """One per process."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._epochs: list[_Epoch] = []
        self._sources: dict[int, tuple[str, str]] = {}
        self._next_slot = 0

    def _current(self) -> _Epoch:
        now = self._clock()
        if not self._epochs or now - self._epochs[-1].began >= EPOCH_S:
            if self._epochs:
                for shingles, identifiers in self._epochs[-1].deployments.values():
                    shingles.seal()
                    identifiers.seal()
                for table in self._epochs[-1].tenants.values():
                    table.seal()
            self._epochs.append(_Epoch(now, secrets.randbits(64)))
            while now - self._epochs[0].began > RESIDENCY_S + EPOCH_S:
                self._epochs.pop(0)
        return self._epochs[-1]

    def own(self, tenant: str, prints: Fingerprints) -> None:
        """A tenant's own text: it explains itself from now on."""
        epoch = self._current()
        table = epoch.own(tenant)
        for values in (prints.shingles, prints.identifiers):
            if len(values):
                table.add(mix(values, epoch.key).tolist(), 0)

    def add(self, deployment: str, tenant: str, receipt: str, prints: list[Fingerprints]) -> None:
        """Text that ran on a deployment: it may be found in others' answers from there."""
        epoch = self._current()
        shingles, identifiers = epoch.tables(deployment)
        slot = self._next_slot
        self._next_slot = (self._next_slot + 1) & 0xFFFFFFFF
        self._sources[slot] = (receipt, tenant)
        if len(self._sources) > 2_000_000:
            self._sources.pop(next(iter(self._sources)))
        for item in prints:
            if len(item.shingles):
                shingles.add(mix(item.shingles, epoch.key).tolist(), slot)
            if len(item.identifiers):
                identifiers.add(mix(item.identifiers, epoch.key).tolist(), slot)

    def scan(self, deployment: str, tenant: str, prints: Fingerprints) -> Finding | None:
        """The strongest single source of another tenant's private text in an answer, if it is strong enough."""
        if not len(prints.identifiers):
            return None
        self._current()
        shingles: Counter[int] = Counter()
        identifiers: Counter[int] = Counter()
        for epoch in self._epochs:
            tables = epoch.deployments.get(deployment)
            if tables is None:
                continue
            self._count(epoch, tables[0], prints.shingles, tenant, shingles)
            self._count(epoch, tables[1], prints.identifiers, tenant, identifiers)
        for slot in sorted(identifiers, key=lambda s: -identifiers[s]):
            if any(identifiers[slot] >= least and shingles[slot] >= passages for least, passages in ENOUGH):
                receipt, source = self._sources.get(slot, ("", ""))
                return Finding(receipt, source, shingles[slot], identifiers[slot])
        return None

    def _count(self, epoch: _Epoch, table: _Table, values: Hashes, tenant: str, counts: Counter[int]) -> None:
        if not len(values) or not len(table):
            return
        keyed = mix(values, epoch.key)
        listed: list[int] = keyed.tolist()
        for position, slot in table.find(keyed, listed):
            source = self._sources.get(slot)
            if source is None or source[1] == tenant:
                continue
            if self._explained(int(values[position]), tenant) or self._public(int(values[position])):
                continue
            counts[slot] += 1

    def _holders(self, value: int) -> set[str]:
        """Tenants whose own texts hold this fingerprint."""
        one = np.array([value], dtype=np.uint64)
        holders = set()
        for epoch in self._epochs:
            keyed = mix(one, epoch.key)
            listed = keyed.tolist()
            holders |= {name for name, table in epoch.tenants.items() if table.find(keyed, listed)}
        return holders

    def _explained(self, value: int, tenant: str) -> bool:
        return tenant in self._holders(value)

    def _public(self, value: int) -> bool:
        return len(self._holders(value)) >= PUBLIC_TENANTS
