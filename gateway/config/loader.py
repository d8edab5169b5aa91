"""From `assay.yaml` to a snapshot: every problem is found in one pass and said with file, line, key and a near name."""

from __future__ import annotations

import difflib
import hashlib
import os
import types
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pydantic import BaseModel, ValidationError

from gateway.config.build import build_snapshot
from gateway.config.document import Document, Path_, Problem, dotted, read
from gateway.config.settings import Settings
from gateway.config.snapshot import Snapshot

MIN_ADMIN_TOKEN = 24
MIN_KEY_SECRET = 16
_WELL_KNOWN = ("changeme", "change-me", "secret", "password", "default", "example", "admin", "sk-1234", "test")
RESERVED_TENANTS = ("assay-canary-a", "assay-canary-b")


@dataclass(slots=True)
class Loaded:
    """The outcome of reading a configuration: settings and snapshot when there is no problem."""

    path: Path
    settings: Settings | None = None
    snapshot: Snapshot | None = None
    problems: list[Problem] = field(default_factory=list)
    warnings: list[Problem] = field(default_factory=list)


class ConfigError(Exception):
    """A configuration that cannot be used; `problems` says everything that is wrong with it."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = problems


def load(path: Path, environment: Mapping[str, str] | None = None, *, version: int = 1) -> Loaded:
    """Reads, validates and resolves a configuration. Never raises for what the file says."""
    document = read(path, os.environ if environment is None else environment)
    loaded = Loaded(path, problems=document.problems)
    if document.value is None or (document.problems and not isinstance(document.value, dict)):
        return loaded
    if not isinstance(document.value, dict):
        document.problem((), "must be a mapping of keys, such as `providers:` and `tenants:`")
        return loaded
    try:
        settings = Settings.model_validate(document.value)
    except ValidationError as error:
        _explain(document, error)
        _references(document, _raw_names(document.value))
        return loaded
    _references(document, _raw_names(document.value))
    _semantics(document, settings, loaded)
    if not loaded.problems:
        loaded.settings = settings
        loaded.snapshot = build_snapshot(settings, path.parent, version)
    return loaded


def load_or_raise(path: Path, environment: Mapping[str, str] | None = None) -> Loaded:
    """`load`, raising `ConfigError` when anything is wrong."""
    loaded = load(path, environment)
    if loaded.problems:
        raise ConfigError(loaded.problems)
    return loaded


def default_path(given: str | None, environment: Mapping[str, str] | None = None) -> Path:
    """`--config`, else `./assay.yaml`, else `$ASSAY_CONFIG`."""
    environment = os.environ if environment is None else environment
    if given:
        return Path(given)
    here = Path("assay.yaml")
    if not here.exists() and environment.get("ASSAY_CONFIG"):
        return Path(environment["ASSAY_CONFIG"])
    return here


def on_kubernetes(environment: Mapping[str, str] | None = None) -> bool:
    """True inside a Kubernetes pod, where keys must be mounted and are never created."""
    return bool((os.environ if environment is None else environment).get("KUBERNETES_SERVICE_HOST"))


def _explain(document: Document, error: ValidationError) -> None:
    """pydantic's errors as problems: unknown keys with the nearest known one, the rest in one sentence."""
    seen: set[Path_] = set()
    for item in error.errors(include_url=False, include_input=False, include_context=False):
        path = _document_path(document, item["loc"])
        if item["type"] == "extra_forbidden":
            known = _known_keys(path[:-1])
            near = difflib.get_close_matches(str(path[-1]), known, 1, 0.5)
            hint = f"; did you mean `{near[0]}`?" if near else f"; known keys: {', '.join(sorted(known))}"
            document.problem(path, "is not a known key" + hint)
            continue
        if path in seen:
            continue
        seen.add(path)
        message = item["msg"].removeprefix("Value error, ")
        if item["type"] == "missing":
            message = "is required"
        elif item["type"] == "literal_error":
            near = difflib.get_close_matches(str(_value_at(document.value, path)), message.split("'")[1::2], 1, 0.5)
            message = message.replace("Input should be", "must be") + (f"; did you mean `{near[0]}`?" if near else "")
        elif item["type"] == "string_pattern_mismatch":
            message = "is not a valid name"
        document.problem(path, message.replace("Input should be", "must be"))


def _document_path(document: Document, location: Iterable[Any]) -> Path_:
    """pydantic locations also name union branches; keeps the parts that are places in the document."""
    path: list[str | int] = []
    value: Any = document.value
    parts = list(location)
    for index, part in enumerate(parts):
        if isinstance(value, Mapping) and (part in value or index == len(parts) - 1):
            path.append(part)
            value = value.get(part)
        elif isinstance(value, list) and isinstance(part, int):
            path.append(part)
            value = value[part] if part < len(value) else None
    return tuple(path)


def _value_at(value: Any, path: Path_) -> Any:
    for part in path:
        try:
            value = value[part]
        except (KeyError, IndexError, TypeError):
            return None
    return value


def _known_keys(path: Path_) -> list[str]:
    """The keys that the block at a path may have, from the models themselves."""
    model: Any = Settings
    for part in path:
        if isinstance(model, type) and issubclass(model, BaseModel):
            model = model.model_fields[str(part)].annotation if str(part) in model.model_fields else None
        else:
            model = next((a for a in reversed(typing.get_args(model)) if a is not Ellipsis), None)
        while typing.get_origin(model) in (typing.Union, types.UnionType, typing.Annotated):
            options = [a for a in typing.get_args(model) if a is not types.NoneType]
            model = options[0] if options else None
    return list(model.model_fields) if isinstance(model, type) and issubclass(model, BaseModel) else []


def _raw_names(value: Mapping[str, Any]) -> dict[str, list[str]]:
    """Names defined by the file, read leniently, so that references are checked even when other parts are wrong."""
    providers = value.get("providers")
    deployments = value.get("deployments")
    models = value.get("models")
    return {
        "provider": [str(n) for n in providers] if isinstance(providers, dict) else [],
        "deployment": [str(d.get("id")) for d in deployments if isinstance(d, dict)]
        if isinstance(deployments, list)
        else [],
        "model": [str(n) for n in models] if isinstance(models, dict) else [],
    }


def _references(document: Document, names: dict[str, list[str]]) -> None:
    """Providers of deployments, deployments of models, and names in allow-lists must exist."""

    def known(kind: str, name: Any, path: Path_) -> None:
        if isinstance(name, str) and name not in names[kind]:
            near = difflib.get_close_matches(name, names[kind], 1, 0.5)
            document.problem(
                path, f"names the unknown {kind} `{name}`" + (f"; did you mean `{near[0]}`?" if near else "")
            )

    value = document.value
    for index, item in enumerate(_list(value.get("deployments"))):
        if isinstance(item, dict):
            known("provider", item.get("provider"), ("deployments", index, "provider"))
    for name, alias in _mapping(value.get("models")).items():
        for index, item in enumerate(_list(_mapping(alias).get("deployments"))):
            known("deployment", item, ("models", name, "deployments", index))
    kinds = {"providers": "provider", "models": "model", "deployments": "deployment"}
    for number, tenant in enumerate(_list(value.get("tenants"))):
        blocks: list[tuple[tuple[str, ...], dict[str, Any]]] = [(("allow",), _mapping(_mapping(tenant).get("allow")))]
        blocks += [(("workloads", n), _mapping(w)) for n, w in _mapping(_mapping(tenant).get("workloads")).items()]
        for where, block in blocks:
            for key, kind in kinds.items():
                for index, item in enumerate(_list(block.get(key))):
                    if isinstance(item, str) and "*" not in item:
                        known(kind, item, ("tenants", number, *where, key, index))


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _semantics(document: Document, settings: Settings, loaded: Loaded) -> None:
    """What single fields cannot tell: weak secrets, duplicates, contradictions, missing statements."""
    _secrets(document, settings)
    _duplicates(document, "deployments", [d.id for d in settings.deployments])
    _duplicates(document, "tenants", [t.id for t in settings.tenants])
    _duplicates(document, "keys", [k.id for t in settings.tenants for k in t.keys])
    if settings.server.workers > 1 and settings.redis is None:
        document.problem(("server", "workers"), "more than one worker needs `redis`, or limits would hold per worker")
    scheme = urlsplit(settings.database).scheme
    if scheme not in ("sqlite", "postgresql", "postgres"):
        document.problem(("database",), "must be sqlite:///PATH or postgresql://USER:PASSWORD@HOST/NAME")
    for name, provider in settings.providers.items():
        _provider(document, name, provider)
    for index, deployment in enumerate(settings.deployments):
        kind = settings.providers[deployment.provider].kind
        if kind in ("azure", "openrouter") and deployment.accept_models is None:
            document.problem(("deployments", index), f"`{kind}` deployments must state accept_models")
    for number, tenant in enumerate(settings.tenants):
        if tenant.id in RESERVED_TENANTS:
            document.problem(("tenants", number, "id"), "is reserved for the gateway's own canaries")
        for index, key in enumerate(tenant.keys):
            path: Path_ = ("tenants", number, "keys", index)
            if key.workload and key.workload not in tenant.workloads and key.workload != "default":
                document.problem((*path, "workload"), f"tenant `{tenant.id}` has no workload `{key.workload}`")
            if key.expires is not None:
                _date(document, (*path, "expires"), key.expires)
        if not tenant.allow.models:
            loaded.warnings.append(
                Problem(
                    document.file,
                    document.line_of(("tenants", number)),
                    dotted(("tenants", number, "allow")),
                    "allows no model, so every request of this tenant is refused",
                )
            )
    for index, entry in enumerate(settings.policies):
        if not (loaded.path.parent / entry).exists():
            document.problem(("policies", index), f"`{entry}` does not exist")


def _provider(document: Document, name: str, provider: Any) -> None:
    path: Path_ = ("providers", name)
    if provider.base_url is None:
        if provider.kind not in ("openai", "anthropic", "openrouter", "litellm"):
            document.problem(path, f"`{provider.kind}` providers must state base_url")
        return
    parts = urlsplit(provider.base_url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        document.problem((*path, "base_url"), "must be an http or https URL with a host")
    elif parts.username or parts.password or parts.query or parts.fragment:
        document.problem((*path, "base_url"), "must hold no credential, query or fragment")


def _date(document: Document, path: Path_, text: str) -> None:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        document.problem(path, "must be a date such as 2026-12-31 or 2026-12-31T00:00:00Z")


def _secrets(document: Document, settings: Settings) -> None:
    token = settings.admin.token.reveal()
    if len(token) < MIN_ADMIN_TOKEN:
        document.problem(("admin", "token"), f"must have at least {MIN_ADMIN_TOKEN} characters")
    elif _weak(token):
        document.problem(("admin", "token"), "is a default or trivial secret")
    seen: dict[str, str] = {}
    for number, tenant in enumerate(settings.tenants):
        for index, key in enumerate(tenant.keys):
            path: Path_ = ("tenants", number, "keys", index, "secret")
            secret = key.secret.reveal()
            if len(secret) < MIN_KEY_SECRET or _weak(secret):
                document.problem(path, f"must be a random secret of at least {MIN_KEY_SECRET} characters")
            digest = hashlib.sha256(secret.encode()).hexdigest()
            if digest in seen:
                document.problem(path, f"is the same secret as that of key `{seen[digest]}`")
            seen[digest] = key.id


def _weak(secret: str) -> bool:
    return len(set(secret)) < 6 or secret.lower() in _WELL_KNOWN


def _duplicates(document: Document, what: str, names: list[str]) -> None:
    for name in sorted({name for name in names if names.count(name) > 1}):
        document.problem((what,), f"the id `{name}` is given more than once")
