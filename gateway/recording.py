"""Everything that records, put together: signing keys, the receipt store, its log, the journal and the witnesses."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from pathlib import Path

from gateway.config.settings import ReceiptSettings, Settings
from gateway.receipts.checkpoint import sign_checkpoint
from gateway.receipts.journal import Journal, recover
from gateway.receipts.sealer import ReceiptSealer
from gateway.receipts.signer import KeyFolder, KeyRing
from gateway.receipts.statement import Pseudonyms
from gateway.receipts.witness_client import WitnessClient
from gateway.storage.log_store import Alarm, TransparencyLog
from gateway.storage.receipts_store import Receipts
from gateway.storage.sql import Source, Sql


class Recording:
    """One per process. Nothing is answered that it cannot record."""

    def __init__(
        self,
        settings: Settings,
        sqlite: Path | None,
        folder: Path,
        *,
        may_create: bool,
        alarm: Alarm | None = None,
    ) -> None:
        self._settings: ReceiptSettings = settings.receipts
        self._folder = folder / "assay-journal"
        self._keys = KeyFolder(folder / settings.keys_dir, may_create=may_create)
        self.store = Receipts(Source(settings.database, sqlite), self._after_commit)
        self.log = TransparencyLog(
            self.store,
            self._sign,
            self._settings.checkpoint_interval_s,
            manifest=lambda: self.keys.manifest(),
            alarm=alarm,
            quorum=self._settings.witness_quorum,
        )
        self.journal: Journal | None = None
        if self._settings.durability == "background":
            self.journal = Journal(self._folder, int(self._settings.journal_mb * 1024 * 1024), self.store.submit)
        self._witnesses: asyncio.Task[None] | None = None
        self._unclean = 0

    @property
    def keys(self) -> KeyRing:
        """The signing keys as they are now."""
        return self._keys.ring()

    def sealer(self, pseudonym_key: Callable[[str], bytes], self_hosted: Callable[[], frozenset[str]]) -> ReceiptSealer:
        """What makes receipts of exchanges."""
        return ReceiptSealer(
            lambda: self.keys, Pseudonyms(pseudonym_key), self.store, self_hosted, journal=self.journal
        )

    def _after_commit(self, connection: Sql) -> None:
        self.log.integrate(connection)

    def _sign(self, size: int, root: bytes) -> str:
        return sign_checkpoint(self._settings.log_origin, size, root, *self.keys.log_signers(time.time()))

    async def start(self) -> None:
        """Replays journals of processes that died, then takes receipts."""
        self._unclean = await recover(self._folder, self.store.replay)
        self.store.start()
        if self.journal is not None:
            self.journal.start()
        if self._settings.witnesses:
            client = WitnessClient.of(self._settings, self.log, self.log.alarm)
            self._witnesses = asyncio.get_running_loop().create_task(client.run(), name="witnesses")

    async def stop(self) -> None:
        """Lets the database have everything that was taken."""
        if self._witnesses is not None:
            self._witnesses.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._witnesses
        if self.journal is not None:
            await self.journal.stop()
        await self.store.stop()

    def gauges(self) -> dict[str, float]:
        """What `/metrics` shows of it."""
        return {
            "assay_receipt_lag_seconds": self.log.behind_s,
            "assay_receipt_log_alarms": float(self.log.alarms),
            "assay_receipt_write_failures": float(self.store.failures),
            "assay_receipt_queue": float(self.store.queued),
            "assay_receipt_unclean_stops": float(self._unclean),
            "assay_receipt_journal_waits": float(self.journal.waits if self.journal else 0),
            "assay_receipt_journal_pending": float(self.journal.pending if self.journal else 0),
        }
