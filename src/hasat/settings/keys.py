"""The leaves of the tree, and the names under which the environment knows them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import SecretStr
from pydantic.fields import FieldInfo

from hasat.settings.platform_tree import JobOverride
from hasat.settings.section import Section
from hasat.settings.seeds import ENVIRONMENT
from hasat.settings.tree import Settings

SCHEDULE = "jobs.schedule"

# Shorter names for what people set most.
_SHORT = {
    "serve.host": ("HASAT_HOST",),
    "serve.port": ("HASAT_PORT",),
    "serve.allowed_hosts": ("HASAT_ALLOWED_HOSTS",),
    "database.binaries": ("HASAT_POSTGRES_BIN",),
}


@dataclass(frozen=True)
class Leaf:
    """One setting."""

    key: str
    field: FieldInfo
    shape: Literal["text", "list", "structure"]
    secret: bool
    path: bool

    @property
    def names(self) -> tuple[str, ...]:
        """Its environment variables; the first that is set counts."""
        own = "HASAT_" + self.key.replace(".", "_").upper()
        return (own, *_SHORT.get(self.key, ()), *ENVIRONMENT.get(self.key, ()))


@cache
def leaves() -> Mapping[str, Leaf]:
    """Every setting by its dotted key, in the order of the tree."""
    return {leaf.key: leaf for leaf in _leaves_of(Settings, "")}


@cache
def sections() -> Mapping[str, type[Section]]:
    """Every branch by its dotted key."""
    found: dict[str, type[Section]] = {}

    def walk(model: type[Section], prefix: str) -> None:
        for name, field in model.model_fields.items():
            branch = field.annotation
            if isinstance(branch, type) and issubclass(branch, Section):
                found[prefix + name] = branch
                walk(branch, f"{prefix}{name}.")

    walk(Settings, "")
    return found


def leaf_of(key: str) -> Leaf | None:
    """The setting that a dotted key means; parts of a job's entry belong to the schedule."""
    if key.startswith(f"{SCHEDULE}."):
        job, _, name = key.removeprefix(f"{SCHEDULE}.").rpartition(".")
        field = JobOverride.model_fields.get(name)
        return _leaf(key, field) if job and field else None
    return leaves().get(key)


def _leaves_of(model: type[Section], prefix: str) -> Iterator[Leaf]:
    for name, field in model.model_fields.items():
        branch = field.annotation
        if isinstance(branch, type) and issubclass(branch, Section):
            yield from _leaves_of(branch, f"{prefix}{name}.")
        else:
            yield _leaf(prefix + name, field)


def _leaf(key: str, field: FieldInfo) -> Leaf:
    kind = plain_type(field.annotation)
    shape: Literal["text", "list", "structure"] = "text"
    if get_origin(kind) is tuple:
        item = plain_type(get_args(kind)[0])
        is_model = isinstance(item, type) and issubclass(item, Section)
        shape = "structure" if is_model else "list"
    elif get_origin(kind) is not None and get_origin(kind) is not Literal:
        shape = "structure"
    return Leaf(key, field, shape, _holds_secret(kind), kind is Path)


def plain_type(annotation: Any) -> Any:
    """A type without `Annotated` and without None."""
    while get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    if get_origin(annotation) in (Union, UnionType):
        kinds = [kind for kind in get_args(annotation) if kind is not NoneType]
        return plain_type(kinds[0])
    return annotation


def _holds_secret(annotation: Any) -> bool:
    kind = plain_type(annotation)
    if isinstance(kind, type) and issubclass(kind, Section):
        return any(_holds_secret(field.annotation) for field in kind.model_fields.values())
    return kind is SecretStr or any(_holds_secret(part) for part in get_args(kind) if part)
