"""Load the entry points of the sources, for the settings and for `hasat.source`.

The settings are below the sources and must not import them, but their tree has a section for each.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from hasat.extras import explain_install, explain_missing, extra_of
from hasat.messages import join, msg
from hasat.settings.types import Section

if TYPE_CHECKING:
    from hasat.settings.events import EventKind

GROUP = "hasat.sources"


@runtime_checkable
class Plugin(Protocol):
    """The part of a `Source` that the settings need."""

    @property
    def name(self) -> str: ...

    @property
    def settings(self) -> type[Section] | None: ...

    @property
    def events(self) -> "Sequence[EventKind]": ...


@dataclass(frozen=True)
class BrokenSource:
    """An installed source that cannot be used, with the reason; `hasat doctor` reports it."""

    name: str
    reason: str


@dataclass(frozen=True, eq=False)
class Plugins:
    """The loaded entry points, and those that cannot be loaded."""

    sources: tuple[Plugin, ...]
    broken: tuple[BrokenSource, ...]

    def sections(self) -> Iterator[tuple[str, type[Section]]]:
        """Return the sections of the sources by name."""
        for source in self.sources:
            if source.settings is not None:
                yield source.name, source.settings


@cache
def load_plugins() -> Plugins:
    """Load every source; one that cannot be loaded does not stop the others."""
    sources: list[Plugin] = []
    broken: list[BrokenSource] = []
    for entry in sorted(entry_points(group=GROUP), key=lambda entry: entry.name):
        try:
            source = entry.load()
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a package may fail in any way
            broken.append(BrokenSource(entry.name, _reason(entry.name, error)))
            continue
        if isinstance(source, Plugin) and _is_section(source.settings):
            sources.append(source)
        else:
            broken.append(
                BrokenSource(entry.name, msg("{value} is not a Source.", value=entry.value))
            )
    return Plugins(tuple(sources), tuple(broken))


def _reason(name: str, error: BaseException) -> str:
    if isinstance(error, ModuleNotFoundError) and (extra := extra_of(error.name or "")):
        return join((explain_missing(extra, name), explain_install(extra)))
    return f"{type(error).__name__}: {error}"


def _is_section(settings: object) -> bool:
    return settings is None or (isinstance(settings, type) and issubclass(settings, Section))
