"""`assay serve`."""

from __future__ import annotations

import click

from gateway.cli import fail
from gateway.config.loader import ConfigError, default_path
from gateway.config.root_secret import KeysUnavailable
from gateway.policy.source import PolicyProblem
from gateway.serving import serve
from gateway.storage.database import DatabaseUnusable


@click.command("serve")
@click.option("--config", "config", metavar="FILE", help="The configuration; else ./assay.yaml, else $ASSAY_CONFIG.")
@click.option("--host", help="Listens here instead of server.host.")
@click.option("--port", type=click.IntRange(0, 65535), help="Listens here instead of server.port.")
@click.option("--workers", type=click.IntRange(1, 256), help="Processes; more than one needs Redis.")
@click.option("--migrate", is_flag=True, help="Brings a PostgreSQL schema up to date first.")
def command(config: str | None, host: str | None, port: int | None, workers: int | None, migrate: bool) -> None:
    """Runs the gateway until it is told to stop.

    Example: assay serve --config assay.yaml --port 8080
    """
    try:
        serve(default_path(config), host=host, port=port, workers=workers, migrate=migrate)
    except ConfigError as error:
        for problem in error.problems:
            click.echo(str(problem), err=True)
        if not error.problems:
            fail("more than one worker is not supported by this release: run one worker", 2)
        fail(f"{len(error.problems)} problem(s) in the configuration")
    except PolicyProblem as error:
        for line in error.problems:
            click.echo(line, err=True)
        fail("the policies cannot be loaded")
    except (KeysUnavailable, DatabaseUnusable) as error:
        fail(str(error))
