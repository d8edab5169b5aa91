"""`assay check`."""

from __future__ import annotations

import json
import sys

import click

from gateway.config.loader import default_path, load
from gateway.policy.source import PolicyProblem
from gateway.policy.source import load as load_policies


@click.command("check")
@click.option("--config", "config", metavar="FILE", help="The configuration; else ./assay.yaml, else $ASSAY_CONFIG.")
@click.option("--json", "as_json", is_flag=True, help="Prints problems as JSON.")
def command(config: str | None, as_json: bool) -> None:
    """Validates configuration, policies and the presence of secrets; starts nothing.

    Example: assay check --config assay.yaml
    """
    loaded = load(default_path(config))
    problems = [
        {"file": p.file, "line": p.line, "key": p.key, "message": p.message, "text": str(p)} for p in loaded.problems
    ]
    if loaded.settings is not None:
        try:
            extra = [loaded.path.parent / entry for entry in loaded.settings.policies]
            load_policies(extra, default_policies=loaded.settings.default_policies)
        except PolicyProblem as error:
            problems += [
                {"file": line.split(":")[0], "line": None, "key": "", "message": line, "text": line}
                for line in error.problems
            ]
    if as_json:
        click.echo(json.dumps([{k: v for k, v in p.items() if k != "text"} for p in problems], indent=2))
    else:
        for problem in problems:
            click.echo(problem["text"], err=True)
        for warning in loaded.warnings:
            click.echo(f"warning: {warning}", err=True)
        if not problems:
            click.echo(f"{loaded.path}: ok")
    sys.exit(1 if problems else 0)
