"""`assay`: one file per command group, loaded when it is asked for."""

from __future__ import annotations

import importlib
import sys
from typing import NoReturn

import click

from gateway import __version__

_COMMANDS = {
    "serve": ("gateway.cli.serve", "Runs the gateway."),
    "check": ("gateway.cli.check", "Validates a configuration and says everything that is wrong with it."),
    "init": ("gateway.cli.init", "Writes a commented configuration and keys."),
    "explain": ("gateway.cli.explain", "Shows the plan that would be made, without sending anything."),
    "keys": ("gateway.cli.keys", "Makes, lists, rotates and revokes API keys."),
    "tenants": ("gateway.cli.tenants", "Lists and shows tenants."),
    "receipts": ("gateway.cli.receipts", "Shows, exports and erases receipts."),
    "usage": ("gateway.cli.usage", "Shows tokens and cost by tenant and model."),
    "verify": ("gateway.cli.verify", "Verifies one receipt offline."),
    "log": ("gateway.cli.log", "Audits, prunes and exports the receipt log."),
    "signing": ("gateway.cli.signing", "Lists, rotates and revokes the keys that sign."),
    "witness": ("gateway.cli.witness", "Watches a receipt log and cosigns its checkpoints."),
    "db": ("gateway.cli.db", "Migrates the database."),
    "incident": ("gateway.cli.incident", "Finds exactly which requests were affected."),
    "demo": ("gateway.cli.demo", "Shows the whole story on this machine."),
}


class _Lazy(click.Group):
    """Finds a command's module only when it runs."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        entry = _COMMANDS.get(name)
        if entry is None:
            return None
        command: click.Command = importlib.import_module(entry[0]).command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in _COMMANDS.items()])


@click.command(cls=_Lazy, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="assay")
def assay() -> None:
    """Assay: a secure multi-provider inference gateway."""


def fail(message: str, code: int = 1) -> NoReturn:
    """One line on standard error that says what is wrong and what to do; exit 1, or 2 for wrong use."""
    click.echo(f"assay: {message}", err=True)
    sys.exit(code)


def main() -> None:
    """The `assay` command."""
    assay.main(prog_name="assay")
