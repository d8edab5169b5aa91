"""`assay witness`."""

from __future__ import annotations

import socket
from pathlib import Path

import click

from gateway.cli import fail
from gateway.config.root_secret import KeysUnavailable
from gateway.http.witness import serve_witness
from gateway.receipts.cosignature import ED25519, VerifierKey, parse_vkey
from gateway.receipts.witness import open_witness


@click.group("witness")
def command() -> None:
    """Watches somebody's receipt log, so that it cannot tell two stories.

    Example: assay witness serve --name tenant.example/witness --log LOG_VKEY
    """


@command.command("serve")
@click.option("--dir", "folder", type=click.Path(path_type=Path, file_okay=False), default=Path("assay-witness"))
@click.option("--name", required=True, help="A schema-less URL that names this witness.")
@click.option("--log", "logs", multiple=True, required=True, help="Verifier key of a log (`assay signing list`).")
@click.option("--host", default="127.0.0.1", show_default=True)
@click.option("--port", type=click.IntRange(0, 65535), default=8099, show_default=True)
def serve(folder: Path, name: str, logs: tuple[str, ...], host: str, port: int) -> None:
    """Cosigns checkpoints of the given logs, each only if it continues the last one. Prints its verifier key.

    Example: assay witness serve --name tenant.example/witness --log assay.example/log+1a2b3c4d+AQ...
    """
    keys: list[VerifierKey] = []
    for text in logs:
        try:
            keys.append(parse_vkey(text))
        except ValueError as error:
            fail(f"--log: {error}", 2)
    if any(key.kind != ED25519 for key in keys):
        fail("--log takes a log's key, not a witness's", 2)
    if any(character in name for character in " +\n\t") or not name:
        fail("--name holds neither spaces nor plus signs", 2)
    try:
        witness = open_witness(folder, name, keys)
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        with socket.socket(family, socket.SOCK_STREAM) as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((host, port))
            click.echo(f"witness {witness.key}\nlistening on {host}:{listener.getsockname()[1]}")
            serve_witness(witness, listener)
    except KeysUnavailable as error:
        fail(str(error))
    except OSError as error:
        fail(f"cannot listen on {host}:{port}: {error.strerror}")
