"""The contract of a source, and the sources of this installation."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from importlib.resources.abc import Traversable
from typing import TYPE_CHECKING, Any

from hasat.errors import SettingsError, UsageError
from hasat.feed.dataset import Dataset
from hasat.jobs import Catalogue, Job
from hasat.messages import msg
from hasat.settings import Settings
from hasat.store import Store

if TYPE_CHECKING:
    from fastapi import APIRouter
    from prometheus_client.core import Metric
    from pydantic import BaseModel

    from hasat.http.routes import Access
    from hasat.sim import Simulator

GROUP = "hasat.sources"

# Named as text, because the sources import this module.
_BUILT_IN = (
    ("hasat.sources.gib.source", "GIB"),
    ("hasat.sources.tkgm.source", "TKGM"),
    ("hasat.sources.football.source", "FOOTBALL"),
)


@dataclass(frozen=True)
class Traffic:
    """The requests that one route of this process has served."""

    route: str
    requests: int
    failures: int
    seconds: float


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


StatusHook = Callable[[Store, Settings], Awaitable[Mapping[str, Any]]]
MetricsHook = Callable[[Store, Sequence[Traffic]], Awaitable[Iterable["Metric"]]]


@dataclass(frozen=True)
class Source:
    """A plug-in that mirrors one upstream: its datasets, jobs and additions to the platform."""

    name: str
    title: str
    datasets: tuple[Dataset, ...] = ()
    jobs: tuple[Job, ...] = ()
    routers: Callable[[], "tuple[APIRouter, ...]"] = field(default=tuple, hash=False)
    """Called when the server starts, so that other processes do not load the routes."""
    tools: Callable[[ToolContext], tuple[Tool, ...]] = field(default=lambda _: (), hash=False)
    """The source's own MCP tools, in addition to those that every dataset has."""
    migrations: Traversable | None = field(default=None, hash=False)
    status: StatusHook | None = field(default=None, hash=False)
    """The source's part of /api/v1/status; `checks` also go to /health, `remarks` to
    `hasat doctor`."""
    lacks: Callable[[Settings], str | None] | None = field(default=None, hash=False)
    """The setting that its jobs still need, as a sentence; None when nothing is missing."""
    metrics: MetricsHook | None = field(default=None, hash=False)
    """The source's part of /metrics, from the database and the traffic of this process."""
    simulator: "Callable[[], Simulator] | None" = field(default=None, hash=False)
    """The simulator of its upstream, loaded on demand."""


def all_datasets() -> Sequence[Dataset]:
    """Return every dataset of this installation, in the order of the sources."""
    return [dataset for source in all_sources() for dataset in source.datasets]


def all_simulators() -> "Mapping[str, Simulator]":
    """Return every simulator of this installation by name."""
    found = [source.simulator() for source in all_sources() if source.simulator]
    return {simulator.name: simulator for simulator in found}


def simulator_named(name: str) -> "Simulator":
    """Return one simulator by the name of its upstream."""
    simulators = all_simulators()
    if name not in simulators:
        raise UsageError(
            msg("There is no simulator named {name!r}.", name=name),
            remedy=msg("Choose one of: {names}.", names=", ".join(sorted(simulators))),
        )
    return simulators[name]


@cache
def all_sources() -> Sequence[Source]:
    """Return every source of this installation: built-in ones first, then installed plug-ins."""
    found = [getattr(import_module(module), name) for module, name in _BUILT_IN]
    for entry in entry_points(group=GROUP):
        source = entry.load()
        if not isinstance(source, Source):
            raise SettingsError(
                msg(
                    "The entry point {name!r} ({value}) is not a Source.",
                    name=entry.name,
                    value=entry.value,
                ),
                remedy=msg("Uninstall that package, or report the problem to its author."),
            )
        found.append(source)
    names = [source.name for source in found]
    if duplicates := {name for name in names if names.count(name) > 1}:
        raise SettingsError(
            msg(
                "More than one source is named {names}; names must be unique.",
                names=", ".join(sorted(duplicates)),
            )
        )
    return tuple(found)
