"""Liveness, readiness and /health."""

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Annotated, Any, Generic, Literal, TypeVar, get_args

import psycopg
from fastapi import APIRouter, Depends, Request
from pydantic import BaseModel, Field, TypeAdapter
from starlette.responses import Response

from hasat.api.problems import hide_database_details
from hasat.deliver.jetstream_state import describe_degraded, load_stream_states
from hasat.errors import DatabaseError, HasatError
from hasat.feed.archive import Storage
from hasat.feed.archive.catalog import failures
from hasat.feed.holds import list_holds
from hasat.http.routes import Exchange, SettingsDep, StoreDep, declare_responses, exchange_of
from hasat.jobs.recovery import find_blockages
from hasat.messages import msg
from hasat.settings import Settings
from hasat.source import Source, StatusHook
from hasat.source.installed import is_active, missing_configuration
from hasat.source.parts import explain
from hasat.store import Store
from hasat.store.migrate import known_migrations
from hasat.store.store import connect

T = TypeVar("T")


class SingleFlight(Generic[T]):
    """Runs one coroutine at a time; concurrent callers share its result.

    Probes have no rate limit, so a flood of them must be cheap.
    """

    def __init__(self) -> None:
        self._task: asyncio.Task[T] | None = None

    async def __call__(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(work())
        # Shielded: other callers need the result when one disconnects.
        return await asyncio.shield(self._task)


async def _sources(request: Request) -> Sequence[Source]:
    sources: Sequence[Source] = request.app.state.sources
    return sources


SourcesDep = Annotated[Sequence[Source], Depends(_sources)]


async def source_report(source: Source, store: Store, settings: Settings) -> Mapping[str, Any]:
    """Return the status report of a source; its `checks` are part of /health.

    A source that is not configured has no checks and no remarks, so that it degrades nothing.
    """
    lacking = missing_configuration(source, settings)
    if source.status is None or not is_active(source, settings):
        report: Mapping[str, Any] = {}
    else:
        report = await _evaluate(source, source.status, store, settings)
    if lacking is None:
        return report
    shown = {name: part for name, part in report.items() if name not in ("checks", "remarks")}
    return {**shown, "notConfigured": lacking}


async def _evaluate(
    source: Source, status: StatusHook, store: Store, settings: Settings
) -> Mapping[str, Any]:
    """Return the report of a source; one that says so if its function fails."""
    try:
        report = await status(store, settings)
        TypeAdapter(dict[str, Check]).validate_python(report.get("checks", {}))
        TypeAdapter(list[str]).validate_python(report.get("remarks", []))
    except (HasatError, psycopg.Error, TimeoutError):
        raise
    except Exception as error:  # noqa: BLE001 - a package may fail in any way
        why = msg(
            "The status of the source {name} fails: {reason}",
            name=source.name,
            reason=explain(error),
        )
        return {
            "checks": {source.name: {"status": "Degraded", "description": why}},
            "remarks": [why],
        }
    return report


_TIMEOUT_SECONDS = 3.0
_CACHE_SECONDS = 1.0

router = APIRouter(tags=["operation"])

Grade = Literal["Healthy", "Degraded", "Unhealthy"]
_GRADES: tuple[Grade, ...] = get_args(Grade)


class Readiness:
    """Whether the database is usable; checked at most once a second."""

    def __init__(self, store: Store, sources: Sequence[Source]) -> None:
        sets = [source.migration_set for source in sources]
        self._needed = {(step.set_name, step.name) for step in known_migrations(sets)}
        self._store = store
        self._lock = asyncio.Lock()
        self._checked_at = float("-inf")
        self._error: DatabaseError | None = None

    async def check(self) -> None:
        """Raise a DatabaseError with the reason unless the database is usable."""
        async with self._lock:
            if time.monotonic() - self._checked_at > _CACHE_SECONDS:
                self._error = await self._check_database()
                self._checked_at = time.monotonic()
        if self._error is not None:
            raise self._error

    async def _check_database(self) -> DatabaseError | None:
        try:
            # Through the pool, which restarts an embedded server.
            async with asyncio.timeout(_TIMEOUT_SECONDS), self._store.connection() as conn:
                cursor = await conn.execute("SELECT set_name, name FROM public.hasat_migration")
                missing = self._needed - {(row[0], row[1]) for row in await cursor.fetchall()}
        except DatabaseError as error:
            return error
        except TimeoutError:
            return await self._timeout_reason()
        except psycopg.errors.UndefinedTable:
            missing = self._needed
        except psycopg.Error as error:
            return DatabaseError(msg("The database is not usable: {error}.", error=error))
        if not missing:
            return None
        return DatabaseError(
            msg(
                "The database lacks {count} migrations; the first is {missing}.",
                count=len(missing),
                missing="/".join(min(missing)),
            ),
            remedy=msg("Apply them with `hasat db migrate`."),
        )

    async def _timeout_reason(self) -> DatabaseError:
        try:
            async with asyncio.timeout(_TIMEOUT_SECONDS), await connect(self._store.url):
                pass
        except DatabaseError as error:
            return error
        except TimeoutError:
            pass
        return DatabaseError(
            msg(
                "The database did not respond within {seconds:.0f} seconds.",
                seconds=_TIMEOUT_SECONDS,
            ),
            remedy=msg("Check its load and the network connection."),
        )


class StorageProbe:
    """Whether the archive storage responds; one probe at a time: a dead disk never ends it."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._probe: asyncio.Task[None] | None = None

    async def check(self) -> "Check":
        if self._probe is None or self._probe.done():
            self._probe = asyncio.create_task(self._storage.probe(), name="archive storage probe")
        done, _ = await asyncio.wait({self._probe}, timeout=_TIMEOUT_SECONDS)
        if not done:
            reason = f"{self._storage.label} did not respond within {_TIMEOUT_SECONDS:.0f} seconds."
            return Check(status="Degraded", description=reason)
        if error := self._probe.exception():
            return Check(status="Degraded", description=str(error))
        return Check(status="Healthy")


async def _readiness(request: Request) -> Readiness:
    readiness: Readiness = request.app.state.readiness
    return readiness


ReadinessDep = Annotated[Readiness, Depends(_readiness)]


class Alive(BaseModel):
    status: Literal["alive"] = "alive"


class Ready(BaseModel):
    status: Literal["ready"] = "ready"


class Check(BaseModel):
    """The result of one check."""

    status: Grade
    description: str | None = None


class Health(BaseModel):
    status: Grade
    checks: Mapping[str, Check] = Field(description="Results by check.")


@router.get("/healthz", summary="Liveness", responses=declare_responses({"status": "alive"}))
async def alive() -> Alive:
    """Responds as long as the process runs; does not use the database."""
    return Alive()


@router.get(
    "/readyz",
    summary="Readiness",
    responses=declare_responses({"status": "ready"}, DatabaseError),
)
async def ready(readiness: ReadinessDep) -> Ready:
    """Responds with 200 if the database responds and has all migrations of this version."""
    await readiness.check()
    return Ready()


@router.get(
    "/health",
    summary="Health, in the form of the original .NET service",
    responses={
        **declare_responses({"status": "Healthy", "checks": {"postgresql": {"status": "Healthy"}}}),
        503: {"model": Health, "description": "Unhealthy: the same form with the reason."},
    },
)
async def health(
    request: Request,
    response: Response,
    readiness: ReadinessDep,
    store: StoreDep,
    settings: SettingsDep,
    sources: SourcesDep,
) -> Health:
    """`Unhealthy` (503) if the database is not usable, `Degraded` if another check fails."""
    checks = {"postgresql": Check(status="Healthy")}
    try:
        await readiness.check()
    except DatabaseError as error:
        shown = hide_database_details(error, exchange_of(request.scope))
        checks["postgresql"] = Check(status="Unhealthy", description=shown.message)
    else:
        shared: SingleFlight[Mapping[str, Check]] = request.app.state.health_checks
        checks |= await shared(partial(_database_checks, sources, store, settings))
        caller = exchange_of(request.scope).caller
        may_operate = caller is not None and "operate" in caller.scopes
        if streams := await _nats_streams(store, settings, with_error=may_operate):
            checks["nats"] = streams
    if store.reads is not store:
        checks["standby"] = await _standby(store.reads, exchange_of(request.scope))
    if any(source.datasets for source in sources):
        storage: StorageProbe = request.app.state.storage
        checks["archive_storage"] = await storage.check()
    worst = max((check.status for check in checks.values()), key=_GRADES.index)
    response.status_code = 503 if worst == "Unhealthy" else 200
    return Health(status=worst, checks=checks)


async def _database_checks(
    sources: Sequence[Source], store: Store, settings: Settings
) -> Mapping[str, Check]:
    checks: dict[str, Check] = {}
    for source in sources:
        checks |= await _checks_of(source, store, settings)
    if waiting := await _holds(store):
        checks["holds"] = waiting
    if lagging := await _lagging_archives(store):
        checks["archives"] = lagging
    if blocked := await _blocked_jobs(store):
        checks["jobs"] = blocked
    return checks


async def _holds(store: Store) -> Check | None:
    """Return the datasets whose newest run waits for a decision; None if there are none."""
    found = await list_holds(store, state="waiting")
    if not found:
        return None
    holds = "; ".join(f"{', '.join(one.datasets)} ({one.id})" for one in found)
    return Check(status="Degraded", description=msg("Needs approval: {holds}.", holds=holds))


async def _standby(reads: Store, exchange: Exchange) -> Check:
    """Check the standby; the primary serves its reads while it does not respond."""
    assert reads.liveness is not None
    try:
        await reads.liveness.responds()
        reads.liveness.check()
    except DatabaseError as error:
        reason = hide_database_details(error, exchange).message
        return Check(status="Degraded", description=f"The primary serves all reads. {reason}")
    return Check(status="Healthy")


async def _lagging_archives(store: Store) -> Check | None:
    """Return the datasets that cannot be archived; None if there are none."""
    async with store.connection() as conn:
        failed = await failures(conn)
    if not failed:
        return None
    reasons = " ".join(f"{name} cannot be archived: {error}" for name, error in failed.items())
    return Check(status="Degraded", description=reasons)


async def _blocked_jobs(store: Store) -> Check | None:
    """Return what blocks jobs; None if nothing does."""
    async with store.connection() as conn:
        found = await find_blockages(conn)
    return Check(status="Degraded", description=str(found)) if found else None


async def _nats_streams(store: Store, settings: Settings, *, with_error: bool) -> Check | None:
    """Return whether NATS has every change; None if nothing is published there."""
    states = await load_stream_states(store, settings)
    if not states:
        return None
    degraded = describe_degraded(states, with_error=with_error)
    return Check(status="Degraded" if degraded else "Healthy", description=degraded)


async def _checks_of(source: Source, store: Store, settings: Settings) -> Mapping[str, Check]:
    """Return the checks of a source; an error in them is a failed check."""
    if missing_configuration(source, settings):
        return {}
    try:
        async with asyncio.timeout(_TIMEOUT_SECONDS):
            report = await source_report(source, store, settings)
    except (HasatError, psycopg.Error, TimeoutError) as error:
        return {source.name: Check(status="Degraded", description=str(error) or "no response")}
    return {name: Check.model_validate(check) for name, check in report.get("checks", {}).items()}
