"""The tree of settings. A dotted key such as ``serve.port`` is a path in it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import Field, PrivateAttr, SecretStr
from pydantic.fields import FieldInfo

from hasat.settings import types
from hasat.settings.dsn import password_in
from hasat.settings.legacy import ENVIRONMENT
from hasat.settings.platform_sections import (
    Authentication,
    Database,
    Demo,
    JobOverride,
    Jobs,
    Log,
    Mcp,
    Replica,
    Serve,
)
from hasat.settings.source_sections import Archives, Football, Gib, Nats, Tkgm, Webhooks
from hasat.settings.types import Section
from hasat.settings.values import DEFAULT, Origin, default_home

_LONG = 12


class Settings(Section):
    """Everything that can be set."""

    home: types.Folder = Field(
        default_factory=default_home, description="Where Hasat keeps its data."
    )
    config: types.Folder | None = Field(default=None, description="The folder of the YAML files.")
    database: Database = Database()
    serve: Serve = Serve()
    authentication: Authentication = Authentication()
    jobs: Jobs = Jobs()
    log: Log = Log()
    gib: Gib = Gib()
    tkgm: Tkgm = Tkgm()
    football: Football = Football()
    archives: Archives = Archives()
    webhooks: Webhooks = Webhooks()
    nats: Nats = Nats()
    replica: Replica = Replica()
    mcp: Mcp = Mcp()
    demo: Demo = Demo()

    _origins: Mapping[str, Origin] = PrivateAttr(default_factory=dict)
    _files: tuple[str, ...] = PrivateAttr(default=())
    _remarks: tuple[str, ...] = PrivateAttr(default=())

    @property
    def origins(self) -> Mapping[str, Origin]:
        """Where each value came from, by dotted key."""
        return self._origins

    @property
    def files(self) -> tuple[str, ...]:
        """The configuration files that were read."""
        return self._files

    @property
    def remarks(self) -> tuple[str, ...]:
        """What has no effect although somebody set it; `hasat doctor` tells."""
        return self._remarks

    def origin(self, key: str) -> Origin:
        """Where one value came from."""
        return self._origins.get(key, DEFAULT)

    def secrets(self) -> frozenset[str]:
        """Every secret value, for whoever must not show them."""
        found = {secret for value in _values_in(self) for secret in _secrets_in(value)}
        for url in (self.database.url, self.database.read_url):
            if url is not None:
                found.update(password_in(url.get_secret_value()))
        return frozenset(found - {""})


def _values_in(value: object) -> Iterator[object]:
    if isinstance(value, Section):
        for name in type(value).model_fields:
            yield from _values_in(getattr(value, name))
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _values_in(item)
    elif isinstance(value, tuple | list):
        for item in value:
            yield from _values_in(item)
    else:
        yield value


def _secrets_in(value: object) -> Iterator[str]:
    """A secret, and what an address has in its query."""
    if isinstance(value, SecretStr):
        value = value.get_secret_value()
        yield value
    if isinstance(value, str) and "://" in value:
        for pair in value.partition("?")[2].partition("#")[0].split("&"):
            name, _, given = pair.partition("=")
            # A short value alone would hide half of every line that happens to have it.
            yield pair
            if len(given or name) >= _LONG:
                yield given or name


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
