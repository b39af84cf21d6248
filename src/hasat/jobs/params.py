"""What may be said to a job: the params that it has, each of its type and within its range."""

import json
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any

from pydantic import TypeAdapter, ValidationError

from hasat.errors import UsageError
from hasat.jobs.model import LOCATION, Job
from hasat.messages import msg
from hasat.settings.kinds import check_http_url
from hasat.settings.reference import describe_type

_MAX_SHOWN = 100


def unknown_params(job: Job, given: Iterable[str]) -> list[str]:
    """Names that a job does not have; none where it takes anything."""
    if job.options is None:
        return []
    return [name for name in given if name not in job.params and name not in job.options]


def param_types(job: Job) -> dict[str, Any]:
    """The type of every parameter of a job, a number's with its range."""
    return {name: type(usual) for name, usual in job.params.items()} | dict(job.options or {})


def check_params(job: Job, given: Mapping[str, Any]) -> None:
    """Raise UsageError where something is said that the job would not understand."""
    if unknown := unknown_params(job, given):
        known = sorted({*job.params, *(job.options or {})})
        has = f"It has {', '.join(known)}." if known else "It has none."
        raise UsageError(
            msg("{job} has no parameter {unknown!r}.", job=job.name, unknown=unknown[0]),
            remedy=did_you_mean(unknown[0], known, otherwise=has),
        )
    check_values(job, given)
    _check_storable(job, given)


def check_values(job: Job, given: Mapping[str, Any]) -> None:
    """Raise UsageError for a value of another type or outside its range; null is always allowed."""
    types = param_types(job)
    for name, value in given.items():
        kind = types.get(name, object)
        if value is None or kind is object:
            continue
        try:
            TypeAdapter(kind).validate_python(value, strict=True)
        except ValidationError as error:
            raise UsageError(
                msg("{name} of {job} is {value}.", name=name, job=job.name, value=_shown(value)),
                remedy=msg("Give {kind}.", kind=describe_type(kind)),
            ) from error


def check_locations(job: Job, given: Mapping[str, Any]) -> None:
    """Raise UsageError for a file that a queued run shall read, whether there is one or not.

    The process that executes the run has other rights than the caller. What the operator has
    configured for the job is allowed.
    """
    for name, kind in param_types(job).items():
        value = given.get(name)
        if value is None or value == job.params.get(name):
            continue
        if LOCATION in getattr(kind, "__metadata__", ()):
            try:
                check_http_url(value)
            except ValueError as error:
                raise UsageError(
                    msg(
                        "{name} of {job} must be an http(s) address in a queued run.",
                        name=name,
                        job=job.name,
                    ),
                    remedy=msg(
                        "Files are read only by a run on the command line, such as `hasat jobs "
                        "run {job} --param {name}=FILE`.",
                        job=job.name,
                        name=name,
                    ),
                ) from error


def _check_storable(job: Job, given: Mapping[str, Any]) -> None:
    """Raise UsageError for what JSON in PostgreSQL cannot hold, wherever in the values it is."""
    try:
        text = json.dumps(dict(given), allow_nan=False, ensure_ascii=False)
        text.encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(
            msg("The parameters of {job} cannot be stored.", job=job.name),
            remedy=msg(
                "Give JSON without NaN, infinite numbers and half characters, not too deep."
            ),
        ) from error
    if "\0" in _all_text(given):
        raise UsageError(
            msg("The parameters of {job} contain the character U+0000.", job=job.name),
            remedy=msg("Leave it out."),
        )


def _all_text(value: Any) -> str:
    match value:
        case str():
            return value
        case Mapping():
            return "".join(_all_text(one) for pair in value.items() for one in pair)
        case list() | tuple():
            return "".join(map(_all_text, value))
    return ""


def did_you_mean(name: str, known: Iterable[str], *, otherwise: str) -> str:
    """The nearest of the known names as advice, or other advice where none is near."""
    close = get_close_matches(name, list(known), n=1)
    return f"Did you mean {close[0]!r}?" if close else otherwise


def _shown(value: Any) -> str:
    try:
        text = repr(value)
    except ValueError:
        return "a number of thousands of digits"
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}..."
