"""Load the parts of sources, so that one that fails stops neither its source nor others."""

from collections.abc import Callable
from typing import TypeVar

import structlog

from hasat.budget import Upstream
from hasat.extras import MissingExtraError
from hasat.messages import msg
from hasat.settings import Settings
from hasat.source.contract import Source

T = TypeVar("T")

log = structlog.get_logger(__name__)


def explain(error: BaseException) -> str:
    """Return an error of a source's code for people."""
    return f"{type(error).__name__}: {error}"


def load_part(source: Source, load: Callable[[], T] | None) -> T | None:
    """Return what a source declares as a function; None if it declares nothing, or it fails.

    `hasat doctor` reports parts that fail.
    """
    if load is None:
        return None
    try:
        return load()
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a package may fail in any way
        log.error("source.part_failed", source=source.name, error=explain(error))
        return None


def broken_parts(source: Source) -> list[str]:
    """Return a sentence for every part of a source that cannot be loaded; see `part_problem`."""
    parts: tuple[tuple[str, Callable[[], object] | None], ...] = (
        (msg("commands"), source.commands),
        (msg("routes"), source.routers),
        (msg("pages"), source.pages),
        (msg("simulator"), source.simulator),
        (msg("demo"), source.demo),
    )
    return [
        problem
        for part, load in parts
        if load is not None and (problem := part_problem(source, part, load))
    ]


def part_problem(source: Source, part: str, load: Callable[[], object]) -> str | None:
    """Return why a part of a source cannot be loaded, as a sentence; None if it can."""
    try:
        load()
    except MissingExtraError:
        return None
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a package may fail in any way
        return msg(
            "The {part} of the source {name} cannot be loaded: {reason}",
            part=part,
            name=source.name,
            reason=explain(error),
        )
    return None


def upstreams_of(source: Source, settings: Settings) -> tuple[Upstream, ...]:
    """Return the upstreams of a source; none where its functions of the settings fail."""
    return load_part(source, lambda: source.all_upstreams(settings)) or ()


def settings_problem(source: Source, settings: Settings) -> str | None:
    """Return why the functions of the settings that a source declares fail, as a sentence."""
    try:
        source.all_upstreams(settings)
        if source.lacks is not None:
            source.lacks(settings)
    except Exception as error:  # noqa: BLE001 - a package may fail in any way
        return msg(
            "The source {name} fails with these settings: {reason}",
            name=source.name,
            reason=explain(error),
        )
    return None
