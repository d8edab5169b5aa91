"""`assay explain`."""

from __future__ import annotations

import json
from dataclasses import asdict

import click

from gateway.cli import fail
from gateway.cli.configuration import valid_configuration
from gateway.explain import explain
from gateway.policy.engine import PolicyEngine
from gateway.policy.source import PolicyProblem
from gateway.policy.source import load as load_policies


@click.command("explain")
@click.option("--config", "config", metavar="FILE", help="The configuration; else ./assay.yaml, else $ASSAY_CONFIG.")
@click.option("--tenant", required=True)
@click.option("--model", required=True)
@click.option("--workload")
@click.option("--prompt-tokens", type=click.IntRange(0))
@click.option("--region")
@click.option("--json", "as_json", is_flag=True)
def command(
    config: str | None,
    tenant: str,
    model: str,
    workload: str | None,
    prompt_tokens: int | None,
    region: str | None,
    as_json: bool,
) -> None:
    """Shows every deployment behind a model, permitted or not, with policy ids and reasons. Sends nothing.

    Example: assay explain --config assay.yaml --tenant acme --model gpt-4o
    """
    loaded = valid_configuration(config)
    rules = loaded.snapshot.tenants.get(tenant)
    if rules is None:
        fail(f"there is no tenant `{tenant}`", 2)
    elif workload and workload not in rules.workloads:
        fail(f"tenant `{tenant}` has no workload `{workload}`", 2)
    try:
        engine = PolicyEngine(load_policies(loaded.policies, default_policies=loaded.settings.default_policies))
    except PolicyProblem as error:
        fail("; ".join(error.problems))
    found = explain(
        loaded.snapshot,
        engine,
        tenant=tenant,
        model=model,
        workload=workload,
        prompt_tokens=prompt_tokens,
        region=region,
    )
    if as_json:
        click.echo(json.dumps(asdict(found), indent=2))
        return
    if not found.visible:
        click.echo(f"404: the model `{model}` does not exist for tenant `{tenant}`")
        return
    click.echo(f"policy {found.policy_version}; plan: {' → '.join(found.order) or 'nobody'}")
    for candidate in found.candidates:
        click.echo(f"  {'permit' if candidate.permitted else 'deny  '}  {candidate.deployment}")
        for reason in candidate.reasons:
            click.echo(f"          {reason.id}: {reason.text}")
