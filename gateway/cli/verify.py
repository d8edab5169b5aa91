"""`assay verify`."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from gateway.cli import fail
from gateway.receipts.verifier import main


@click.command("verify")
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--keys", type=click.Path(path_type=Path, exists=True, dir_okay=False), help="The published keys.json.")
@click.option("--request", type=click.Path(path_type=Path, exists=True, dir_okay=False), help="Opens the request.")
@click.option("--response", type=click.Path(path_type=Path, exists=True, dir_okay=False), help="Opens the response.")
@click.option(
    "--policy", type=click.Path(path_type=Path, exists=True, dir_okay=False), help="Witnesses that must agree."
)
def command(file: Path, keys: Path | None, request: Path | None, response: Path | None, policy: Path | None) -> None:
    """Verifies one receipt offline: signature, place in the log, and, where content is given, commitments.

    Example: assay verify receipt.json --keys keys.json --request request.json
    """
    if keys is None:
        keys = file.with_name("keys.json")
        if not keys.exists():
            fail("give the published keys with --keys (GET /.well-known/assay/keys.json)", 2)
    arguments = [str(file), "--keys", str(keys)]
    for name, path in (("--request", request), ("--response", response), ("--policy", policy)):
        if path is not None:
            arguments += [name, str(path)]
    sys.exit(main(arguments))
