"""The contract: everything that a source declares."""

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from importlib.resources.abc import Traversable
from typing import TYPE_CHECKING, Any, Literal, Protocol

from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from hasat.budget import Upstream
from hasat.extras import EXTRAS
from hasat.feed.dataset import Dataset
from hasat.feed.rebuild import Rebuild
from hasat.feed.tables import TableDeclaration
from hasat.jobs import Catalogue, Job
from hasat.settings import Section, Settings
from hasat.settings.events import EventKind
from hasat.store import Store
from hasat.store.migrate import Declaration, MigrationSet, Step

if TYPE_CHECKING:
    import typer
    from fastapi import APIRouter
    from prometheus_client.core import Metric
    from pydantic import BaseModel

    from hasat.demo import DemoPart
    from hasat.http.routes import Access
    from hasat.pages import SourcePages
    from hasat.sim import Simulator


_NAME = re.compile(r"[a-z][a-z0-9_]{0,40}")
"""Names are parts of variables, file names, commands and addresses."""


def lazy(reference: str) -> Callable[..., Any]:
    """Return a function that imports an object, such as `package.module:name`, when it is called.

    It returns the object; if it is called with arguments, it calls the object with them.
    """
    module, _, name = reference.partition(":")

    def load(*arguments: Any, **named: Any) -> Any:
        found = getattr(import_module(module), name)
        return found(*arguments, **named) if arguments or named else found

    return load


@dataclass
class Traffic:
    """The requests that one route of this server has served with one method and status."""

    route: str
    method: str = "GET"
    status: int = 200
    requests: int = 0
    seconds: float = 0.0
    buckets: dict[str, float] = field(default_factory=dict)
    """How many took at most a number of seconds, by that number as text."""


@dataclass(frozen=True)
class Served:
    """What this server has done so far, for metrics in another form."""

    traffic: Sequence[Traffic] = ()
    authentications: Mapping[tuple[str, str, str], int] = field(default_factory=dict)
    """Requests by name of the caller, status (success, failure or disabled) and reason."""
    uptime_seconds: float = 0.0


@dataclass(frozen=True)
class ToolContext:
    """The dependencies that a source builds its tools from."""

    store: Store
    settings: Settings
    catalogue: Catalogue


@dataclass(frozen=True)
class Tool:
    """A tool for MCP clients; its name, description and schemas are those of `run`."""

    run: "Callable[..., Awaitable[BaseModel]]"
    access: "Access" = "read"
    audit: str | None = None
    """The code of the action in the audit record; required for a tool that operates."""

    def __post_init__(self) -> None:
        if (self.access == "operate") != (self.audit is not None):
            raise ValueError(
                "A tool needs an audit code if it operates, and must not have one otherwise."
            )


class Strategy(Protocol):
    """A complete job for one dataset, such as `WholeList` or `PerKey`."""

    def job(self, dataset: Dataset) -> Job:
        """Return the job that updates the dataset."""
        ...

    def upstream_for(self, dataset: Dataset, settings: Settings) -> Upstream:
        """Return the upstream that the job sends requests to."""
        ...

    @property
    def rebuild(self) -> Rebuild:
        """Return how to recompute the dataset from stored responses."""
        ...


@dataclass(frozen=True)
class _Declarations:
    """The tables of a source's datasets, then its own declaration."""

    tables: TableDeclaration
    own: Declaration

    async def __call__(self, connection: AsyncConnection[TupleRow]) -> Sequence[Step]:
        return [*await self.tables(connection), *await self.own(connection)]

    def __str__(self) -> str:
        return str(self.tables)


StatusHook = Callable[[Store, Settings], Awaitable[Mapping[str, Any]]]
MetricsHook = Callable[[Store, Served], Awaitable[Iterable["Metric"]]]


@dataclass(frozen=True)
class Source:
    """A plug-in that mirrors one upstream: its datasets, jobs and additions to the platform."""

    name: str
    title: str
    extra: str | None = None
    """The extra of Hasat that its jobs, routes, pages, tools, commands and simulator need; without
    it they are off, and only its datasets and settings are there."""
    settings: type[Section] | None = None
    """Its section of the settings: `HASAT_<NAME>_*`, `<name>.yaml` and `hasat.yaml`."""
    upstreams: Callable[[Settings], tuple[Upstream, ...]] = field(default=lambda _: (), hash=False)
    """The upstreams that its other jobs send requests to, with their limits."""
    datasets: tuple[Dataset, ...] = ()
    strategies: Mapping[str, Strategy] = field(default_factory=dict, hash=False)
    """The strategies of datasets, by the name of the dataset: each brings its job, its upstream and
    its rebuild."""
    jobs: tuple[Job, ...] = ()
    """Its other jobs."""
    manual_params: Callable[[Settings], Mapping[str, Any]] = field(default=lambda _: {}, hash=False)
    """Parameters that settings give to runs of its jobs started with `hasat jobs run`; a job that
    does not have a parameter does not get it."""
    routers: Callable[[], "tuple[APIRouter, ...]"] = field(default=tuple, hash=False)
    """Called when the server starts, so that other processes do not load the routes."""
    invalid_input_status: Literal[400, 422] = 422
    """The status of invalid values in requests for its datasets and on its own paths; 400 is what
    an earlier service of the same interface may have sent."""
    tools: Callable[[ToolContext], tuple[Tool, ...]] = field(default=lambda _: (), hash=False)
    """The source's own MCP tools, in addition to those that every dataset has."""
    migrations: Traversable | None = field(default=None, hash=False)
    declaration: Declaration | None = field(default=None, hash=False)
    """Statements that a migrated database still needs, such as for an extension that some servers
    have."""
    status: StatusHook | None = field(default=None, hash=False)
    """The source's part of /api/v1/status; `checks` also go to /health, `remarks` to
    `hasat doctor`."""
    lacks: Callable[[Settings], str | None] | None = field(default=None, hash=False)
    """The setting that its jobs still need, as a sentence; None when nothing is missing."""
    commands: "Callable[[], typer.Typer] | None" = field(default=None, hash=False)
    """The commands `hasat <name> ...`, loaded when one of them is called."""
    pages: "Callable[[], SourcePages] | None" = field(default=None, hash=False)
    """Its pages of the dashboard, loaded when the server starts."""
    events: tuple[EventKind, ...] = ()
    """The kinds of its own events, for `notify_on` of webhooks; `publish_event` publishes one."""
    actions: Mapping[str, str] = field(default_factory=dict, hash=False)
    """The codes of its own actions in the audit record, with their labels."""
    translations: Traversable | None = field(default=None, hash=False)
    """A folder with `<language>/LC_MESSAGES/<name>.po`, in addition to the platform's texts."""
    metrics: MetricsHook | None = field(default=None, hash=False)
    """The source's part of /metrics, from the database and the requests served."""
    rebuild: Mapping[str, Rebuild] = field(default_factory=dict, hash=False)
    """How to rebuild datasets that have no strategy from stored responses, by the name of the
    dataset."""
    simulator: "Callable[[], Simulator] | None" = field(default=None, hash=False)
    """The simulator of its upstream, loaded on demand."""
    demo: "Callable[[], DemoPart] | None" = field(default=None, hash=False)
    """Its part of `hasat demo`, loaded on demand."""

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ValueError(f"{self.name!r} cannot be the name of a source; use a-z, 0-9 and _.")
        if self.extra is not None and self.extra not in EXTRAS:
            raise ValueError(f"Hasat has no extra named {self.extra!r}.")
        names = [dataset.name for dataset in self.datasets]
        if unknown := sorted({*self.strategies, *self.rebuild} - {*names}):
            raise ValueError(f"{self.name} declares no dataset named {', '.join(unknown)}.")
        if foreign := [one.name for one in self.datasets if one.source != self.name]:
            raise ValueError(f"The source of {', '.join(foreign)} must be {self.name!r}.")

    @property
    def migration_set(self) -> MigrationSet:
        """Return its migrations, then the tables and indexes that its datasets declare."""
        tables = TableDeclaration(self.datasets)
        declared = tables if self.declaration is None else _Declarations(tables, self.declaration)
        return MigrationSet(self.name, self.migrations, declared)

    @property
    def all_jobs(self) -> tuple[Job, ...]:
        """The jobs of its strategies and its other jobs."""
        return (*(one.job(dataset) for dataset, one in self._strategies()), *self.jobs)

    @property
    def rebuilds(self) -> Mapping[str, tuple[Dataset, Rebuild]]:
        """The datasets that can be rebuilt, and how, by the name of the dataset."""
        own = {
            one.name: (one, self.rebuild[one.name])
            for one in self.datasets
            if one.name in self.rebuild
        }
        return {one.name: (one, strategy.rebuild) for one, strategy in self._strategies()} | own

    def all_upstreams(self, settings: Settings) -> tuple[Upstream, ...]:
        """Return every upstream that it sends requests to; several strategies may share one."""
        found = {
            upstream.name: upstream
            for upstream in (
                *(one.upstream_for(dataset, settings) for dataset, one in self._strategies()),
                *self.upstreams(settings),
            )
        }
        return tuple(found.values())

    def _strategies(self) -> Sequence[tuple[Dataset, Strategy]]:
        named = {dataset.name: dataset for dataset in self.datasets}
        return [(named[name], strategy) for name, strategy in self.strategies.items()]
