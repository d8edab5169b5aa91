"""Fixtures of every test that needs a running gateway."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from scene import Engines, GatewayProcess


@pytest.fixture
def engines() -> Iterator[Engines]:
    """Engines of the test's own."""
    instance = Engines()
    yield instance
    instance.close()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[dict[str, Any]], GatewayProcess]]:
    """Starts gateways of the test's own."""
    started: list[GatewayProcess] = []

    def run(settings: dict[str, Any]) -> GatewayProcess:
        folder = tmp_path / f"gateway-{len(started)}"
        folder.mkdir()
        started.append(GatewayProcess(folder, settings))
        return started[-1].start()

    yield run
    for process in started:
        process.stop()
