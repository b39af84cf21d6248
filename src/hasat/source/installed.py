"""The sources of this installation, found by their entry points."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, NoReturn

from hasat.errors import SettingsError, UsageError
from hasat.extras import (
    explain_install,
    explain_missing,
    is_installed,
    missing_extra,
    require_extra,
)
from hasat.feed.dataset import Dataset
from hasat.feed.rebuild import Rebuild
from hasat.messages import add_translations, join, msg
from hasat.settings import Settings
from hasat.settings.events import PLATFORM_KINDS
from hasat.settings.plugins import BrokenSource, Plugins, load_plugins
from hasat.source.contract import Source
from hasat.source.parts import explain, load_part, settings_problem

if TYPE_CHECKING:
    from hasat.sim import Simulator

RESERVED_NAMES = frozenset(
    {
        *("archive", "audit", "config", "db", "demo", "doctor", "holds", "jobs", "keys", "mcp"),
        *("quota", "rebuild", "receipt", "replica", "serve", "sim", "source", "up"),
        *("watchlists", "webhooks", "worker"),
        "platform",
    }
)
"""The commands of the platform, and the name of its migrations, which a source cannot have."""


def all_datasets() -> Sequence[Dataset]:
    """Return every dataset of this installation, in the order of the sources."""
    return [dataset for source in all_sources() for dataset in source.datasets]


def all_rebuilds() -> Mapping[str, tuple[Dataset, Rebuild]]:
    """Return every dataset that can be rebuilt, and how, by name."""
    return {name: found for source in all_sources() for name, found in source.rebuilds.items()}


def all_simulators() -> "Mapping[str, Simulator]":
    """Return every simulator of this installation by name."""
    found = [load_part(source, source.simulator) for source in all_sources()]
    return {simulator.name: simulator for simulator in found if simulator is not None}


def simulator_named(name: str) -> "Simulator":
    """Return one simulator by the name of its upstream."""
    simulators = all_simulators()
    if name not in simulators:
        raise UsageError(
            msg("There is no simulator named {name!r}.", name=name),
            remedy=msg("Choose one of: {names}.", names=", ".join(sorted(simulators))),
        )
    return simulators[name]


@dataclass(frozen=True)
class Installed:
    """The sources of this installation, and those that cannot be used."""

    sources: tuple[Source, ...]
    broken: tuple[BrokenSource, ...]


def all_sources() -> Sequence[Source]:
    """Return every source of this installation."""
    return installed_sources().sources


def active_sources(settings: Settings) -> Sequence[Source]:
    """Return the sources that the setting `sources` names; every one if it names none."""
    return [source for source in all_sources() if is_active(source, settings)]


def is_active(source: Source, settings: Settings) -> bool:
    """Return whether the operator wants the source; it may still lack a setting."""
    return not settings.sources or source.name in settings.sources


def missing_configuration(source: Source, settings: Settings) -> str | None:
    """Return why a source is not configured, as a sentence; None if it is.

    The jobs of such a source are disabled, and its checks do not run.
    """
    if not is_active(source, settings):
        return msg("{name} is not one of the active sources (HASAT_SOURCES).", name=source.name)
    if source.extra is not None and not is_installed(source.extra):
        return join((explain_missing(source.extra, source.name), explain_install(source.extra)))
    return _lacking(source, settings)


def missing_extras(settings: Settings) -> Mapping[str, str]:
    """Return the extras that the settings need but that are not installed, by what needs them.

    A source that lacks a setting besides needs none yet.
    """
    needed = {**_platform_extras(settings)} | {
        source.name: source.extra
        for source in active_sources(settings)
        if source.extra is not None
        and (source.name in settings.sources or not _lacking(source, settings))
    }
    return {what: extra for what, extra in needed.items() if not is_installed(extra)}


def _lacking(source: Source, settings: Settings) -> str | None:
    """Return the setting that a source lacks, or why it cannot say."""
    if problem := settings_problem(source, settings):
        return problem
    return source.lacks(settings) if source.lacks is not None else None


def check_platform_extras(settings: Settings) -> None:
    """Raise MissingExtraError if a setting of the platform needs an extra that is not installed."""
    for what, extra in _platform_extras(settings).items():
        require_extra(extra, what)


def _platform_extras(settings: Settings) -> Mapping[str, str]:
    needed = {}
    if settings.nats.url is not None:
        needed["nats.url"] = "nats"
    if settings.archives.provider != "FileSystem":
        needed["archives.provider"] = "s3"
    return needed


def installed_sources() -> Installed:
    """Return the sources of the entry points; one that cannot be loaded does not stop others."""
    return _installed(load_plugins())


@cache
def _installed(plugins: Plugins) -> Installed:
    sources: list[Source] = []
    broken: list[BrokenSource] = []
    for found in plugins.sources:
        try:
            sources.append(_usable(found))
        except Exception as error:  # noqa: BLE001 - a package may fail in any way
            broken.append(BrokenSource(found.name, explain(error)))
    check_collisions(sources)
    for source in sources:
        if source.translations is not None:
            add_translations(source.name, source.translations)
    usable = tuple(_without_missing_extra(source) for source in sources)
    return Installed(usable, (*plugins.broken, *broken))


def _usable(found: object) -> Source:
    """Return a source; raise if it is none, or if its declarations cannot be evaluated."""
    if not isinstance(found, Source):
        raise TypeError(msg("{value} is not a Source.", value=repr(found)))
    # Each of these is evaluated by every command.
    _ = found.all_jobs, found.rebuilds, found.migration_set
    return found


def _without_missing_extra(source: Source) -> Source:
    """Return the source without the parts that need an extra which is not installed.

    Its datasets, migrations and settings stay, so that the database does not depend on the machine.
    """
    extra = source.extra
    if extra is None or is_installed(extra):
        return source

    def fail() -> NoReturn:
        raise missing_extra(extra, source.name)

    return replace(
        source,
        routers=tuple,
        tools=lambda _: (),
        commands=fail if source.commands is not None else None,
        pages=None,
        metrics=None,
        status=None,
        rebuild={},
        simulator=None,
        demo=None,
    )


_COLLISION_REMEDY = msg("Uninstall one of the packages, or report the problem to its author.")


def check_collisions(sources: Sequence[Source]) -> None:
    """Raise SettingsError if a name is reserved, or names two sources, datasets or jobs."""
    if reserved := sorted(source.name for source in sources if source.name in RESERVED_NAMES):
        raise SettingsError(
            msg(
                "A source is named {names}, a name that Hasat uses itself.",
                names=", ".join(reserved),
            ),
            remedy=_COLLISION_REMEDY,
        )
    named = {
        msg("source"): [source.name for source in sources],
        msg("dataset"): [dataset.name for source in sources for dataset in source.datasets],
        msg("event"): [*(kind.name for kind in PLATFORM_KINDS), *_events(sources)],
        msg("job"): [job.name for source in sources for job in source.all_jobs],
    }
    for kind, names in named.items():
        if duplicates := sorted({name for name in names if names.count(name) > 1}):
            raise SettingsError(
                msg(
                    "More than one {kind} is named {names}; names must be unique.",
                    kind=kind,
                    names=", ".join(duplicates),
                ),
                remedy=_COLLISION_REMEDY,
            )


def _events(sources: Sequence[Source]) -> Sequence[str]:
    return [kind.name for source in sources for kind in source.events]
