"""One gateway process for each database, while limits, budgets and quarantine live in the process.

A second one would enforce each limit once more, so it refuses to start. The lock ends with the process.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from gateway.storage.database import DatabaseUnusable


class SingleProcess:
    """An exclusive lock on a file beside the database (or in the keys folder, for a database elsewhere)."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._descriptor: int | None = None

    def acquire(self) -> None:
        """Takes the lock or raises."""
        self._file.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self._file, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            raise DatabaseUnusable(
                "another gateway process already serves this database; limits would hold for each of them alone"
            ) from None
        self._descriptor = descriptor

    def release(self) -> None:
        """Gives the lock back."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
