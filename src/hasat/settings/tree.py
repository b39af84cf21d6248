"""The tree of settings. A dotted key such as ``serve.port`` is a path in it."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

from pydantic import Field, PrivateAttr, SecretStr, ValidationError, create_model
from pydantic.fields import FieldInfo

from hasat.errors import SettingsError
from hasat.messages import msg
from hasat.settings import types
from hasat.settings.aliases import legacy_names
from hasat.settings.dsn import password_in
from hasat.settings.platform_sections import (
    Archives,
    Authentication,
    Database,
    Demo,
    History,
    JobOverride,
    Jobs,
    Log,
    Mcp,
    Nats,
    Receipts,
    Replica,
    Serve,
    Smtp,
    Telegram,
    Webhooks,
)
from hasat.settings.plugins import Plugins, load_plugins
from hasat.settings.types import Section
from hasat.settings.values import DEFAULT, Findings, Given, Origin, default_home, did_you_mean

_LONG = 12

S = TypeVar("S", bound=Section)


class Settings(Section):
    """The settings of the platform; `settings_model` adds the sections of the sources."""

    home: types.Folder = Field(
        default_factory=default_home, description="Where Hasat keeps its data."
    )
    config: types.Folder | None = Field(default=None, description="The folder of the YAML files.")
    sources: tuple[types.Name, ...] = Field(
        default=(), description="The sources that are active; by default all that are installed."
    )
    database: Database = Database()
    serve: Serve = Serve()
    authentication: Authentication = Authentication()
    jobs: Jobs = Jobs()
    log: Log = Log()
    archives: Archives = Archives()
    history: History = History()
    receipts: Receipts = Receipts()
    webhooks: Webhooks = Webhooks()
    smtp: Smtp = Smtp()
    telegram: Telegram = Telegram()
    nats: Nats = Nats()
    replica: Replica = Replica()
    mcp: Mcp = Mcp()
    demo: Demo = Demo()

    _origins: Mapping[str, Origin] = PrivateAttr(default_factory=dict)
    _files: tuple[str, ...] = PrivateAttr(default=())
    _remarks: tuple[str, ...] = PrivateAttr(default=())

    @property
    def origins(self) -> Mapping[str, Origin]:
        """The origin of each value by dotted key."""
        return self._origins

    @property
    def files(self) -> tuple[str, ...]:
        """The configuration files that were read."""
        return self._files

    @property
    def remarks(self) -> tuple[str, ...]:
        """Settings without an effect; `hasat doctor` reports them."""
        return self._remarks

    def section(self, kind: type[S]) -> S:
        """Return the section that a source declares as `kind`."""
        for name, field in type(self).model_fields.items():
            if field.annotation is kind:
                found = getattr(self, name)
                assert isinstance(found, kind)
                return found
        raise SettingsError(
            msg(
                "There is no section {kind} in the settings: no installed source declares it.",
                kind=kind.__name__,
            ),
            remedy=msg("Install the source's package; `hasat doctor` lists broken sources."),
        )

    def origin(self, key: str) -> Origin:
        """Return the origin of one value."""
        return self._origins.get(key, DEFAULT)

    def secrets(self) -> frozenset[str]:
        """Return every secret value, for masking."""
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
    """Return a secret and the query values of an address."""
    if isinstance(value, SecretStr):
        value = value.get_secret_value()
        yield value
    if isinstance(value, str) and "://" in value:
        for pair in value.partition("?")[2].partition("#")[0].split("&"):
            name, _, given = pair.partition("=")
            # Masking a very short value would hide parts of unrelated lines.
            yield pair
            if len(given or name) >= _LONG:
                yield given or name


SCHEDULE = "jobs.schedule"

# Shorter names for common settings.
_SHORT = {
    "serve.host": ("HASAT_HOST",),
    "serve.port": ("HASAT_PORT",),
    "serve.allowed_hosts": ("HASAT_ALLOWED_HOSTS",),
    "database.binaries": ("HASAT_POSTGRES_BIN",),
    "smtp.sender": ("HASAT_SMTP_FROM",),
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
        """Its environment variables, in order of precedence."""
        own = "HASAT_" + self.key.replace(".", "_").upper()
        return (own, *_SHORT.get(self.key, ()), *legacy_names().environment.get(self.key, ()))


@dataclass(frozen=True)
class Tree:
    """The settings of this installation, with the sections of its sources."""

    model: type[Settings]
    leaves: Mapping[str, Leaf]
    sections: Mapping[str, type[Section]]


def settings_model() -> type[Settings]:
    """Return the settings with the sections of the installed sources."""
    return _tree(load_plugins()).model


def leaves() -> Mapping[str, Leaf]:
    """Return every setting by its dotted key, in the order of the tree."""
    return _tree(load_plugins()).leaves


def sections() -> Mapping[str, type[Section]]:
    """Return every section by its dotted key."""
    return _tree(load_plugins()).sections


@cache
def _tree(plugins: Plugins) -> Tree:
    fields: dict[str, Any] = {}
    for name, section in plugins.sections():
        if name in fields or hasattr(Settings, name) or name in Settings.model_fields:
            raise _collision(msg("settings section"), name)
        if name == "hasat" or any(file.name == f"{name}.yaml" for file in legacy_names().files):
            raise _collision(msg("settings file"), f"{name}.yaml")
        try:
            fields[name] = (section, section())
        except ValidationError as error:
            raise SettingsError(
                msg(
                    "The settings of the source {name} have no default: {keys}.",
                    name=name,
                    keys=", ".join(str(one["loc"][0]) for one in error.errors() if one["loc"]),
                ),
                remedy=msg("Uninstall the source, or report the problem to its author."),
            ) from error
    model = create_model("Settings", __base__=Settings, __module__=__name__, **fields)
    leaves = {leaf.key: leaf for leaf in _leaves_of(model, "")}
    owners: dict[str, str] = {}
    for leaf in leaves.values():
        for variable in leaf.names:
            if owners.setdefault(variable, leaf.key) != leaf.key:
                raise _collision(msg("variable"), variable)
    return Tree(model, leaves, _sections_of(model))


def _collision(kind: str, name: str) -> SettingsError:
    return SettingsError(
        msg("More than one {kind} is named {names}; names must be unique.", kind=kind, names=name),
        remedy=msg("Uninstall one of the packages, or report the problem to its author."),
    )


def _sections_of(model: type[Section]) -> Mapping[str, type[Section]]:
    found: dict[str, type[Section]] = {}

    def walk(branch_model: type[Section], prefix: str) -> None:
        for name, field in branch_model.model_fields.items():
            branch = field.annotation
            if isinstance(branch, type) and issubclass(branch, Section):
                found[prefix + name] = branch
                walk(branch, f"{prefix}{name}.")

    walk(model, "")
    return found


def leaf_of(key: str) -> Leaf | None:
    """Return the setting of a dotted key; parts of a job's entry belong to the schedule."""
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
    """Return a type without `Annotated` and None."""
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


def parse_value(leaf: Leaf, given: Given, found: Findings) -> dict[str, Given]:
    """Parse a text into the form of its setting; the schedule becomes one value per part."""
    if isinstance(given.value, str) and leaf.shape != "text":
        try:
            given = replace(given, value=_parse_structure(given.value, leaf.shape))
        except (ValueError, RecursionError):
            found.problems.append(
                msg("{key}: the value of {where} is not JSON.", key=leaf.key, where=given.where())
            )
            return {}
    if leaf.key != SCHEDULE:
        return {leaf.key: given}
    return _schedule(given, found)


def _schedule(given: Given, found: Findings) -> dict[str, Given]:
    parts: dict[str, Given] = {}
    if not isinstance(given.value, dict):
        found.problems.append(
            msg(
                "{schedule}: {where} must be a mapping of jobs.",
                schedule=SCHEDULE,
                where=given.where(),
            )
        )
        return parts
    for job, entry in given.value.items():
        if not isinstance(entry, dict):
            found.problems.append(
                msg(
                    "{schedule}.{job}: {where} must contain keys and values.",
                    schedule=SCHEDULE,
                    job=job,
                    where=given.where(),
                )
            )
            continue
        for name, part in entry.items():
            key = f"{SCHEDULE}.{job}.{name}"
            if leaf_of(key) is None:
                meant = "." if found.is_full else did_you_mean(name, JobOverride.model_fields)
                found.problems.append(
                    msg(
                        "{where}: there is no {key!r}{meant}",
                        where=given.where(),
                        key=key,
                        meant=meant,
                    )
                )
            elif part is not None:
                parts[key] = replace(given, value=part)
    return parts


def _parse_structure(text: str, shape: str) -> Any:
    """Parse JSON; a list may also be separated by commas."""
    if shape == "list" and not text.startswith("["):
        return [part.strip() for part in text.split(",") if part.strip()]
    return json.loads(text)


def nested(values: dict[str, Any]) -> dict[str, Any]:
    """Turn dotted keys into nested mappings."""
    tree: dict[str, Any] = {}
    for key, value in values.items():
        path = key.split(".")
        if key.startswith(f"{SCHEDULE}."):
            job, _, name = key.removeprefix(f"{SCHEDULE}.").rpartition(".")
            path = [*SCHEDULE.split("."), job, name]
        level = tree
        for branch in path[:-1]:
            level = level.setdefault(branch, {})
        level[path[-1]] = value
    return tree
