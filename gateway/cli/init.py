"""`assay init`."""

from __future__ import annotations

import secrets
from pathlib import Path

import click

from gateway.cli import fail
from gateway.config.root_secret import create_private, open_root
from gateway.identity.keys import new_secret
from gateway.receipts.signer import open_keys

_TEMPLATE = """\
# Assay: see docs/configure.md for every key. `assay check` validates this file, `assay explain` shows what it decides.
server:
  host: 127.0.0.1
  port: 8080
database: sqlite:///assay.db
keys_dir: ./assay-keys
admin:
  token: file:assay-keys/admin.token      # made by `assay init`; at least 24 characters

# Who runs inference. Only what stands here can ever be connected to.
providers:
  openai:
    kind: openai
    api_key: ${OPENAI_API_KEY:-set-me-before-the-first-request}
    region: us
    zero_retention: false
    trains_on_data: false
  local:
    kind: vllm
    base_url: http://127.0.0.1:8000/v1
    region: eu
    zero_retention: true
    trains_on_data: false

# One servable unit each: provider + the provider's model + window + price (USD per million tokens).
deployments:
  - id: gpt-4o-openai
    provider: openai
    model: gpt-4o-2024-08-06
    context_window: 128000
    max_output_tokens: 16384
    price: {input: 2.50, cached_input: 1.25, output: 10.00}
  - id: llama-local
    provider: local
    model: meta-llama/Llama-3.1-8B-Instruct
    context_window: 131072

# What clients write in "model". The order is preference; `deny` never falls back.
models:
  gpt-4o:
    deployments: [gpt-4o-openai]
    fallback: deny
  llama:
    deployments: [llama-local]
    fallback: deny

# Who may call what. An absent list allows nothing of its kind.
tenants:
  - id: first
    allow:
      providers: [openai, local]
      regions: [us, eu]
      models: [gpt-4o, llama]
    keys:
      - {id: first-key, secret: "file:assay-keys/first.key"}
"""


@click.command("init")
@click.argument("directory", default=".", type=click.Path(path_type=Path, file_okay=False))
def command(directory: Path) -> None:
    """Writes a commented assay.yaml and keys, asks nothing, and prints the first API key once.

    Example: assay init my-gateway
    """
    config = directory / "assay.yaml"
    if config.exists():
        fail(f"{config} exists already; nothing was changed", 2)
    keys = directory / "assay-keys"
    directory.mkdir(parents=True, exist_ok=True)
    open_root(keys, may_create=True)
    open_keys(keys, may_create=True)
    secret = new_secret()
    create_private(keys / "admin.token", secrets.token_urlsafe(32).encode())
    create_private(keys / "first.key", secret.encode())
    config.write_text(_TEMPLATE, "utf-8")
    click.echo(f"wrote {config} and {keys}")
    click.echo(f"the first API key, shown once: {secret}")
    click.echo(f"next: assay serve --config {config}")
