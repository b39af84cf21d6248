"""What a source is, and which ones this installation has."""

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

# By name: a source imports this module, not the other way round.
_BUILT_IN = (
    ("hasat.sources.gib.source", "GIB"),
    ("hasat.sources.tkgm.source", "TKGM"),
    ("hasat.sources.football.source", "FOOTBALL"),
)


@dataclass(frozen=True)
class Traffic:
    """Requests that one route of this process answered."""

    route: str
    requests: int
    failures: int
    seconds: float


@dataclass(frozen=True)
class Workshop:
    """What tools work with."""

    store: Store
    settings: Settings
    catalogue: Catalogue


@dataclass(frozen=True)
class Tool:
    """Something an assistant may call: name, text, arguments and answer are those of `run`."""

    run: "Callable[..., Awaitable[BaseModel]]"
    access: "Access" = "read"
    audit: str | None = None
    """The code of the action in the audit record; needed by whatever may operate."""

    def __post_init__(self) -> None:
        if (self.access == "operate") != (self.audit is not None):
            raise ValueError("A tool that operates needs an audit code, and no other has one.")


StatusHook = Callable[[Store, Settings], Awaitable[Mapping[str, Any]]]
MetricsHook = Callable[[Store, Sequence[Traffic]], Awaitable[Iterable["Metric"]]]


@dataclass(frozen=True)
class Source:
    """An upstream: what it mirrors, when it works, and the doors it adds."""

    name: str
    title: str
    datasets: tuple[Dataset, ...] = ()
    jobs: tuple[Job, ...] = ()
    routers: Callable[[], "tuple[APIRouter, ...]"] = field(default=tuple, hash=False)
    """Made when the server starts: whoever does not serve need not load them."""
    tools: Callable[[Workshop], tuple[Tool, ...]] = field(default=lambda _: (), hash=False)
    """What assistants may ask it, besides what they may ask of every dataset."""
    migrations: Traversable | None = field(default=None, hash=False)
    status: StatusHook | None = field(default=None, hash=False)
    """What the source says of itself in /api/v1/status; `checks` in it are its part of /health,
    `remarks` its part of `hasat doctor`."""
    lacks: Callable[[Settings], str | None] | None = field(default=None, hash=False)
    """What must be set before its jobs can run, as a sentence; None when nothing is missing."""
    metrics: MetricsHook | None = field(default=None, hash=False)
    """What the source adds to /metrics, from the database and the traffic of this process."""
    simulator: "Callable[[], Simulator] | None" = field(default=None, hash=False)
    """The local stand-in for its upstream; loaded on demand."""


def all_datasets() -> Sequence[Dataset]:
    """Every dataset of this installation, in the order of the sources."""
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
    """Every source of this installation: the built-in ones, then those of other packages."""
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
                remedy=msg("Uninstall that package, or tell its author."),
            )
        found.append(source)
    names = [source.name for source in found]
    if doubled := {name for name in names if names.count(name) > 1}:
        raise SettingsError(
            msg("Two sources share the name {doubled}.", doubled=", ".join(sorted(doubled)))
        )
    return tuple(found)
