"""The extras of the package: optional libraries, what they add, and whether they are installed."""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec

from hasat.errors import HasatError
from hasat.messages import Message, msg, template


@dataclass(frozen=True)
class Extra:
    """A group of optional libraries that `pip install 'hasat[name]'` adds."""

    name: str
    modules: tuple[str, ...]
    """The top-level modules of its libraries."""
    adds: str
    """What it adds, as a template."""

    @property
    def command(self) -> str:
        """The command that installs it."""
        return f"pip install 'hasat[{self.name}]'"


EXTRAS: Mapping[str, Extra] = {
    extra.name: extra
    for extra in (
        Extra(
            "gis",
            ("shapely", "pyogrio", "pyproj", "PIL"),
            template("geometry: scans of areas, maps and files of GIS programs"),
        ),
        Extra("nats", ("nats", "nkeys"), template("changes over NATS JetStream")),
        Extra("mcp", ("mcp",), template("MCP tools")),
        Extra("s3", ("obstore",), template("archives in an S3-compatible store")),
        Extra(
            "otel",
            ("opentelemetry.sdk", "opentelemetry.exporter"),
            template("traces and metrics with OpenTelemetry"),
        ),
    )
}


class MissingExtraError(HasatError):
    """An optional library that the operation needs is not installed."""

    status = 501
    code = "missing-extra"
    title = template("Extra not installed")


def is_installed(name: str) -> bool:
    """Return whether every library of an extra is installed, without importing it."""
    return all(_is_found(module) for module in EXTRAS[name].modules)


def require_extra(name: str, what: str) -> None:
    """Raise MissingExtraError if an extra that something needs is not installed."""
    if not is_installed(name):
        raise missing_extra(name, what)


def missing_extra(name: str, what: str) -> MissingExtraError:
    """Return the error that names an extra, what needs it and how to install it."""
    return MissingExtraError(explain_missing(name, what), remedy=explain_install(name))


def explain_missing(name: str, what: str) -> Message:
    """Return the sentence that something needs an extra."""
    return msg("{what} needs the extra {extra}, which is not installed.", what=what, extra=name)


def explain_install(name: str) -> Message:
    """Return the sentence that says how to install an extra and what it adds."""
    return msg(
        "Install it with: {command} (it adds {adds}).",
        command=EXTRAS[name].command,
        adds=msg(EXTRAS[name].adds),
    )


def extra_of(module: str) -> str | None:
    """Return the extra that has a module; None if it is part of none."""
    for extra in EXTRAS.values():
        if any(f"{module}.".startswith(f"{one}.") for one in extra.modules):
            return extra.name
    return None


def _is_found(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False
