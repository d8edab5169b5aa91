"""The configuration of a command: found, read, and complained about in one way."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import click

from gateway.cli import fail
from gateway.config.loader import default_path, load
from gateway.config.settings import Settings
from gateway.config.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Configuration:
    """A valid configuration and where its relative paths begin."""

    folder: Path
    settings: Settings
    snapshot: Snapshot

    @property
    def policies(self) -> list[Path]:
        """The operator's own policy files and folders."""
        return [self.folder / entry for entry in self.settings.policies]


def valid_configuration(config: str | None) -> Configuration:
    """The configuration, or every problem of it on standard error and the end of the command."""
    loaded = load(default_path(config))
    for problem in loaded.problems:
        click.echo(str(problem), err=True)
    if loaded.settings is None or loaded.snapshot is None:
        fail("the configuration is not valid; see `assay check`")
    return Configuration(loaded.path.parent, loaded.settings, loaded.snapshot)
