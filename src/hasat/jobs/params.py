"""What may be said to a job: the params that it has, in the kind that each is of."""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any

from hasat.errors import UsageError
from hasat.jobs.model import Job

_KINDS = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}


def unknown_params(job: Job, given: Iterable[str]) -> list[str]:
    """Names that a job does not have; none where it takes anything."""
    if job.options is None:
        return []
    return [name for name in given if name not in job.params and name not in job.options]


def check_params(job: Job, given: Mapping[str, Any]) -> None:
    """Raise UsageError where something is said that the job would not understand."""
    if unknown := unknown_params(job, given):
        known = sorted({*job.params, *(job.options or {})})
        has = f"It has {', '.join(known)}." if known else "It has none."
        raise UsageError(
            f"{job.name} has no parameter {unknown[0]!r}.",
            remedy=did_you_mean(unknown[0], known, otherwise=has),
        )
    check_kinds(job, given)


def check_kinds(job: Job, given: Mapping[str, Any]) -> None:
    """Raise UsageError where a value is not of the kind that the job takes; null is of any."""
    kinds = {name: type(usual) for name, usual in job.params.items()} | dict(job.options or {})
    for name, value in given.items():
        kind = kinds.get(name)
        if kind in _KINDS and value is not None and not _is_a(kind, value):
            raise UsageError(f"{name} of {job.name} is {value!r}.", remedy=f"Give {_KINDS[kind]}.")


def did_you_mean(name: str, known: Iterable[str], *, otherwise: str) -> str:
    """The nearest of the known names as advice, or other advice where none is near."""
    close = get_close_matches(name, list(known), n=1)
    return f"Did you mean {close[0]!r}?" if close else otherwise


def _is_a(kind: type, value: Any) -> bool:
    if kind is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    return isinstance(value, kind) and (kind is bool or not isinstance(value, bool))
