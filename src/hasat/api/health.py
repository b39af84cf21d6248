"""Liveness, readiness and /health."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar
from collections.abc import Mapping, Sequence
from typing import Annotated, Any
from fastapi import Depends, Request
from hasat.settings import Settings
from hasat.sources.registry import Source
from hasat.store import Store
import time
from functools import partial
from typing import Annotated, Literal, get_args
import psycopg
from fastapi import APIRouter, Depends, Request
from pydantic import BaseModel, Field
from starlette.responses import Response
from hasat.api.problems import hide_database_details
from hasat.deliver.sink_state import describe_degraded, load_sink_states
from hasat.errors import DatabaseError, HasatError
from hasat.feed.archive import Storage
from hasat.feed.archive.catalog import failures
from hasat.http.routes import Exchange, SettingsDep, StoreDep, declare_responses, exchange_of
from hasat.jobs.recovery import find_blockages
from hasat.messages import msg
from hasat.store import MigrationSet, Store
from hasat.store.migrate import known_migrations
from hasat.store.store import connect

T = TypeVar("T")


class SingleFlight(Generic[T]):
    """Runs one coroutine at a time; a call during its execution gets its result."""

    def __init__(self) -> None:
        self._task: asyncio.Task[T] | None = None

    async def __call__(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(work())
        # Shielded: the others need the result when one caller disconnects.
        return await asyncio.shield(self._task)


async def _sources(request: Request) -> Sequence[Source]:
    sources: Sequence[Source] = request.app.state.sources
    return sources


SourcesDep = Annotated[Sequence[Source], Depends(_sources)]


async def source_report(source: Source, store: Store, settings: Settings) -> Mapping[str, Any]:
    """The source's own report; `checks` in it are its part of /health."""
    return {} if source.status is None else await source.status(store, settings)

_PATIENCE_SECONDS = 3.0
_KEPT_SECONDS = 1.0

router = APIRouter(tags=["operation"])

Grade = Literal["Healthy", "Degraded", "Unhealthy"]
_GRADES: tuple[Grade, ...] = get_args(Grade)


class Readiness:
    """Whether the database can be worked with; asked once a second at most, whoever asks."""

    def __init__(self, store: Store, sources: Sequence[Source]) -> None:
        sets = [MigrationSet(s.name, s.migrations) for s in sources if s.migrations is not None]
        self._needed = {(step.set_name, step.name) for step in known_migrations(sets)}
        self._store = store
        self._asking = asyncio.Lock()
        self._asked_at = float("-inf")
        self._found: DatabaseError | None = None

    async def check(self) -> None:
        """Raise a DatabaseError with the reason unless the database can be worked with."""
        async with self._asking:
            if time.monotonic() - self._asked_at > _KEPT_SECONDS:
                self._found = await self._ask()
                self._asked_at = time.monotonic()
        if self._found is not None:
            raise self._found

    async def _ask(self) -> DatabaseError | None:
        try:
            # Through the pool: that is what brings an embedded server back.
            async with asyncio.timeout(_PATIENCE_SECONDS), self._store.connection() as conn:
                cursor = await conn.execute("SELECT set_name, name FROM public.hasat_migration")
                missing = self._needed - {(row[0], row[1]) for row in await cursor.fetchall()}
        except DatabaseError as error:
            return error
        except TimeoutError:
            return await self._why_no_answer()
        except psycopg.errors.UndefinedTable:
            missing = self._needed
        except psycopg.Error as error:
            return DatabaseError(msg("The database cannot be used: {error}.", error=error))
        if not missing:
            return None
        return DatabaseError(
            msg(
                "The database lacks {count} migrations, the first is {missing}.",
                count=len(missing),
                missing="/".join(min(missing)),
            ),
            remedy=msg("Apply them with `hasat db migrate`."),
        )

    async def _why_no_answer(self) -> DatabaseError:
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS), await connect(self._store.url):
                pass
        except DatabaseError as error:
            return error
        except TimeoutError:
            pass
        return DatabaseError(
            msg(
                "The database did not answer within {patience_seconds:.0f} seconds.",
                patience_seconds=_PATIENCE_SECONDS,
            ),
            remedy=msg("See whether it is overloaded, or cut off from here."),
        )


class StorageProbe:
    """Whether archives can be read; one look at a time, for a look at a dead disk never ends."""

    def __init__(self, place: Storage) -> None:
        self._place = place
        self._looking: asyncio.Task[None] | None = None

    async def check(self) -> "Check":
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._place.probe(), name="archive storage probe")
        done, _ = await asyncio.wait({self._looking}, timeout=_PATIENCE_SECONDS)
        if not done:
            told = f"{self._place.label} did not answer within {_PATIENCE_SECONDS:.0f} seconds."
            return Check(status="Degraded", description=told)
        if error := self._looking.exception():
            return Check(status="Degraded", description=str(error))
        return Check(status="Healthy")


async def _readiness(request: Request) -> Readiness:
    readiness: Readiness = request.app.state.readiness
    return readiness


TheReadiness = Annotated[Readiness, Depends(_readiness)]


class Alive(BaseModel):
    status: Literal["alive"] = "alive"


class Ready(BaseModel):
    status: Literal["ready"] = "ready"


class Check(BaseModel):
    """One thing looked at, and what was found."""

    status: Grade
    description: str | None = None


class Health(BaseModel):
    status: Grade
    checks: Mapping[str, Check] = Field(description="What was looked at.")


@router.get(
    "/healthz", summary="Is the process alive?", responses=declare_responses({"status": "alive"})
)
async def alive() -> Alive:
    """Answers as long as the process does; the database is not asked."""
    return Alive()


@router.get(
    "/readyz",
    summary="Can it work?",
    responses=declare_responses({"status": "ready"}, DatabaseError),
)
async def ready(readiness: TheReadiness) -> Ready:
    """Answers 200 if the database answers and has the shape this version needs."""
    await readiness.check()
    return Ready()


@router.get(
    "/health",
    summary="Health, in the form of the original GIB service",
    responses={
        **declare_responses({"status": "Healthy", "checks": {"postgresql": {"status": "Healthy"}}}),
        503: {"model": Health, "description": "Unhealthy: the same form with the reason."},
    },
)
async def health(
    request: Request,
    response: Response,
    readiness: TheReadiness,
    store: StoreDep,
    settings: SettingsDep,
    sources: SourcesDep,
) -> Health:
    """`Unhealthy` (503) if it cannot work, `Degraded` if a source is not as it should be."""
    checks = {"postgresql": Check(status="Healthy")}
    try:
        await readiness.check()
    except DatabaseError as error:
        told = hide_database_details(error, exchange_of(request.scope))
        checks["postgresql"] = Check(status="Unhealthy", description=told.message)
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
    if lagging := await _lagging_archives(store):
        checks["archives"] = lagging
    if blocked := await _blocked_jobs(store):
        checks["jobs"] = blocked
    return checks


async def _standby(reads: Store, exchange: Exchange) -> Check:
    """Whether the standby responds; the primary serves its reads while it does not."""
    assert reads.liveness is not None
    try:
        await reads.liveness.responds()
        reads.liveness.check()
    except DatabaseError as error:
        reason = hide_database_details(error, exchange).message
        return Check(status="Degraded", description=f"The primary serves all reads. {reason}")
    return Check(status="Healthy")


async def _lagging_archives(store: Store) -> Check | None:
    """The datasets that cannot be archived; None if there are none."""
    async with store.connection() as conn:
        failed = await failures(conn)
    if not failed:
        return None
    told = " ".join(f"{name} cannot be archived: {error}" for name, error in failed.items())
    return Check(status="Degraded", description=told)


async def _blocked_jobs(store: Store) -> Check | None:
    """What keeps jobs from working; None if nothing does."""
    async with store.connection() as conn:
        found = await find_blockages(conn)
    return Check(status="Degraded", description=str(found)) if found else None


async def _nats_streams(store: Store, settings: Settings, *, with_error: bool) -> Check | None:
    """Return whether NATS has every change; None if nothing is published there."""
    states = await load_sink_states(store, settings)
    if not states:
        return None
    degraded = describe_degraded(states, with_error=with_error)
    return Check(status="Degraded" if degraded else "Healthy", description=degraded)


async def _checks_of(source: Source, store: Store, settings: Settings) -> Mapping[str, Check]:
    """What the source found; that it could not look is a finding too."""
    try:
        async with asyncio.timeout(_PATIENCE_SECONDS):
            report = await source_report(source, store, settings)
    except (HasatError, psycopg.Error, TimeoutError) as error:
        return {source.name: Check(status="Degraded", description=str(error) or "no answer")}
    return {name: Check.model_validate(check) for name, check in report.get("checks", {}).items()}
