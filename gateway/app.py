"""The composition root: builds everything from a settings snapshot, and lets it go in the reverse order."""

from __future__ import annotations

import asyncio
import logging
import signal
import time
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from fastapi import FastAPI

from gateway import __version__, catalogue
from gateway.admission.limits import LocalLimiter, period_name, period_start
from gateway.capacity import CapacityGate
from gateway.config.loader import Loaded, load, on_kubernetes
from gateway.config.root_secret import open_root
from gateway.config.settings import Settings
from gateway.config.snapshot import Limits, Snapshot
from gateway.dispatch import Dispatcher
from gateway.exchange import Exchange, Reason
from gateway.http.admin import AdminServices, admin_routes
from gateway.http.inference import InferenceApp
from gateway.http.public import PublicServices, install_errors, public_routes, receipt_routes
from gateway.http.receipt_search import receipt_search_routes
from gateway.http.reply import Cors
from gateway.identity.keys import Authenticator
from gateway.integrity.checks import SeenIds
from gateway.integrity.leak_index import LeakIndex
from gateway.integrity.verdict import Rules
from gateway.keyring import KeyService
from gateway.leaks import LeakScan
from gateway.pipeline import Pipeline, Stages
from gateway.policy.engine import PolicyEngine
from gateway.policy.source import load as load_policies
from gateway.providers.preflight import Preflight
from gateway.providers.tokenize import ExactCounter
from gateway.providers.transport import Transport
from gateway.recording import Recording
from gateway.routing.health import Health
from gateway.storage.database import Database, DatabaseUnusable
from gateway.storage.keys import AuditRepository, KeyRepository, TenantRepository
from gateway.storage.quarantines import QuarantineRepository
from gateway.telemetry.metrics import Metrics
from gateway.tenancy import TenantService, merged

LOG = logging.getLogger("assay.app")
RESTART_ONLY = ("database", "redis", "keys_dir")
_SALT_EPOCH_S = 86_400


@dataclass(slots=True)
class Current:
    """What a reload swaps, as one value."""

    settings: Settings
    snapshot: Snapshot
    policy: PolicyEngine
    rules: Rules
    self_hosted: frozenset[str]


def current_from(loaded: Loaded) -> Current:
    """Everything that follows from a configuration; raises when its policies cannot be loaded."""
    assert loaded.settings is not None and loaded.snapshot is not None
    settings, snapshot = loaded.settings, loaded.snapshot
    extra = [loaded.path.parent / entry for entry in settings.policies]
    integrity = settings.integrity
    return Current(
        settings,
        snapshot,
        PolicyEngine(load_policies(extra, default_policies=settings.default_policies)),
        Rules(integrity.on_substitution, integrity.on_unknown_model, integrity.on_violation),
        frozenset(d.id for d in snapshot.deployments.values() if d.provider.self_hosted),
    )


class Gateway:
    """One process of the gateway: built, started, stopped."""

    def __init__(self, loaded: Loaded, *, migrate: bool = False) -> None:
        self.path = loaded.path
        self.current = current_from(loaded)
        self._migrate = migrate
        settings = self.current.settings
        folder = loaded.path.parent
        may_create = not on_kubernetes()
        keys_dir = folder / settings.keys_dir
        self.root = open_root(keys_dir, may_create=may_create)
        self.database = Database(settings.database, folder)
        self.recording = Recording(settings, self.database.sqlite, folder, may_create=may_create)
        self.store, self.log = self.recording.store, self.recording.log
        self.metrics = Metrics()
        self.key_repository = KeyRepository(self.database)
        self.tenants = TenantRepository(self.database)
        self.tenant_service = TenantService(self.tenants, self.key_repository)
        self._stored_tenants: dict[str, dict[str, Any]] = {}
        self.audit = AuditRepository(self.database)
        self.quarantined: dict[str, str] = {}
        self.health = Health(self._serving)
        self.authenticator = Authenticator(
            self.root.derive("api-key-pepper"), self.key_repository, outage_grace_s=settings.receipts.outage_grace_s
        )
        self.key_service = KeyService(
            self.key_repository, lambda: self.current.snapshot, self.authenticator.digest, self.authenticator.forget
        )
        self.transport = Transport(int(settings.server.max_upstream_body_mb * 1024 * 1024))
        self.preflight = Preflight(self.transport, settings.integrity.preflight, lambda: self.current.snapshot)
        self.quarantines = QuarantineRepository(self.database)
        self.limiter = LocalLimiter()
        self.pipeline = Pipeline(self._stages())
        self._tasks: list[asyncio.Task[Any]] = []

    def _stages(self) -> Stages:
        settings = self.current.settings
        sealer = self.recording.sealer(
            lambda tenant: self.root.derive("pseudonym", tenant), lambda: self.current.self_hosted
        )
        return Stages(
            lambda: self.current.snapshot,
            self.authenticator,
            lambda: self.current.policy,
            self.health,
            Dispatcher(self.transport, self.health, self._salt_key, self.root.derive("idempotency")),
            self.limiter,
            sealer,
            CapacityGate(ExactCounter(self.transport)),
            LeakScan(LeakIndex(), settings.integrity.leak_scan),
            SeenIds(),
            lambda: self.current.rules,
            self._observe,
            settings.stream.header_wait_s,
            settings.stream.keep_alive_s,
            int(settings.server.max_body_mb * 1024 * 1024),
        )

    def _salt_key(self) -> bytes:
        return self.root.derive("cache-salt", str(int(time.time()) // _SALT_EPOCH_S))

    def _serving(self, deployment: str) -> Reason | None:
        reason = self.quarantined.get(deployment)
        return Reason("quarantined", reason) if reason is not None else self.preflight.refusal(deployment)

    def _observe(self, exchange: Exchange) -> None:
        self.metrics.observe(exchange, time.monotonic() - exchange.received_mono)

    # life

    async def start(self) -> None:
        """Migrates, opens stores, loads keys; ready when it returns."""
        revision, head = await self.database.state()
        if revision != head:
            if self.database.sqlite is None and not self._migrate:
                raise DatabaseUnusable("the database schema is behind; run `assay db upgrade` or serve with --migrate")
            await self.database.upgrade()
        await self.recording.start()
        await self._follow_tenants()
        await self._load_keys()
        await self._load_spend()
        self.quarantined.update(await self.quarantines.all())
        self._say_what_is_not_there()
        loop = asyncio.get_running_loop()
        self._tasks.append(loop.create_task(self.preflight.run(), name="preflight"))
        loop.add_signal_handler(signal.SIGHUP, self._reload_soon)
        self._tasks.append(loop.create_task(self._watch(), name="config-watch"))

    async def stop(self) -> None:
        """Commits what is queued and closes everything."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()
        self.transport.close()
        await self.recording.stop()
        await self.database.close()

    def _say_what_is_not_there(self) -> None:
        """Nothing that is configured and not part of this release is ignored silently."""
        settings = self.current.settings
        if settings.integrity.canaries.enabled:
            LOG.warning("canaries are not part of this release and do not run")
        if settings.redis is not None:
            LOG.warning("redis is configured, but shared state is not part of this release: one process serves")
        if settings.admin.oidc is not None:
            LOG.warning("single sign-on is not part of this release: only the admin token is accepted")
        if settings.cache.enabled:
            LOG.warning("the response cache is not part of this release: every request is sent")

    async def _load_spend(self) -> None:
        """A restart does not give a budget back: what was spent in the running period is read from the receipts."""
        now = time.time()
        for tenant in self.current.snapshot.tenants.values():
            budgets: list[tuple[str | None, Limits]] = [(None, tenant.limits)]
            budgets += [(key.id, key.limits) for key in tenant.keys if key.limits is not None]
            for key, limits in budgets:
                if limits.budget_usd is not None:
                    since = int(period_start(limits.budget_period, now) * 1000)
                    spent = Decimal(await self.store.spent_nano_usd(tenant.id, key, since)) / 1_000_000_000
                    self.limiter.load_spend(tenant.id, key, period_name(limits.budget_period, now), spent)

    async def _load_keys(self) -> None:
        snapshot = self.current.snapshot
        ids = [key.id for tenant in snapshot.tenants.values() for key in tenant.keys]
        self.authenticator.load_config(snapshot, await self.key_repository.tombstones(ids))

    async def _follow_tenants(self) -> None:
        """Takes over tenants that CLI or admin API made or removed."""
        stored = await self.tenants.all()
        if stored != self._stored_tenants:
            self._stored_tenants = stored
            self.current.snapshot = merged(self.current.snapshot, stored)

    # reload

    def _reload_soon(self) -> None:
        self._tasks.append(asyncio.get_running_loop().create_task(self.reload(), name="config-reload"))

    async def _watch(self) -> None:
        """Loads a changed file within a second or two."""
        seen = _stamp(self.path)
        while True:
            await asyncio.sleep(0.5)
            try:
                await self._follow_tenants()
            except Exception:
                LOG.warning("tenants cannot be read now; those known are served")
            self._tasks = [task for task in self._tasks if not task.done()]
            stamp = _stamp(self.path)
            if stamp is not None and stamp != seen:
                seen = stamp
                await self.reload()

    async def reload(self) -> bool:
        """Swaps in the configuration as it is on disk; a bad one is refused and the old one stays."""
        loaded = load(self.path, version=self.current.snapshot.version + 1)
        problems = [str(problem) for problem in loaded.problems]
        if loaded.settings is not None:
            problems += self._restart_only(loaded.settings)
        if not problems:
            try:
                fresh = current_from(loaded)
            except Exception as error:
                problems = [str(error)]
            else:
                self.current = fresh
                self._stored_tenants = {}
                await self._follow_tenants()
                await self._load_keys()
                LOG.info("configuration reloaded")
                return True
        LOG.error("configuration refused, the old one stays: %s", "; ".join(problems)[:2000])
        return False

    def _restart_only(self, fresh: Settings) -> list[str]:
        old = self.current.settings
        changed = [name for name in RESTART_ONLY if getattr(old, name) != getattr(fresh, name)]
        changed += [
            f"server.{n}" for n in ("host", "port", "workers") if getattr(old.server, n) != getattr(fresh.server, n)
        ]
        return [f"`{name}` changes only by restart" for name in changed]

    # http

    def asgi(self) -> InferenceApp:
        """The whole HTTP surface."""
        cors = Cors(self.current.settings.server.cors_origins)
        return InferenceApp(self.pipeline, cors, self._rest(), int(time.time()))

    def _rest(self) -> Callable[..., Awaitable[None]]:
        @asynccontextmanager
        async def lifespan(_: FastAPI) -> Any:
            await self.start()
            try:
                yield
            finally:
                await self.stop()

        app = FastAPI(
            title="Assay admin API",
            version=__version__,
            openapi_url="/admin/api/openapi.json",
            docs_url=None,
            redoc_url=None,
            lifespan=lifespan,
            redirect_slashes=False,
        )
        app.state.admin_token = lambda: self.current.settings.admin.token
        install_errors(app)
        public = PublicServices(
            self.store,
            self.log,
            lambda: self.recording.keys.jwks(),
            self.authenticator.authenticate,
            self._readiness,
            self._render_metrics,
        )
        app.include_router(public_routes(public))
        app.include_router(receipt_routes(public))
        app.include_router(admin_routes(self._admin_services()))
        app.include_router(receipt_search_routes(self.store, self.log))
        return app

    async def _readiness(self) -> list[str]:
        try:
            async with asyncio.timeout(2):
                await self.database.state()
        except Exception:
            LOG.warning("the database does not answer")
            return ["database"]
        return []

    def _render_metrics(self) -> bytes:
        return self.metrics.render(
            {
                **self.recording.gauges(),
                "assay_quarantined_deployments": float(len(self.quarantined)),
            }
        )

    def _admin_services(self) -> AdminServices:
        return AdminServices(
            self.key_service,
            lambda: catalogue.deployments(self.current.snapshot, self.health, self.quarantined),
            lambda: catalogue.tenants(self.current.snapshot),
            lambda id, block: self.tenant_service.create(self.current.snapshot, id, block),
            lambda id: self.tenant_service.remove(self.current.snapshot, id),
            lambda: catalogue.policies(self.current.policy.source),
            self._quarantine,
            self._release,
            self.audit.page,
            self.audit.add,
        )

    async def _quarantine(self, deployment: str, reason: str) -> bool:
        if deployment not in self.current.snapshot.deployments:
            return False
        await self.quarantines.put(deployment, reason)
        self.quarantined[deployment] = reason
        return True

    async def _release(self, deployment: str) -> bool:
        if deployment not in self.quarantined:
            return False
        await self.quarantines.remove(deployment)
        return self.quarantined.pop(deployment, None) is not None


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size
