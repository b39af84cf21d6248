"""The tree of settings. A dotted key such as ``serve.port`` is a path in it."""

from collections.abc import Iterator, Mapping

from pydantic import Field, PrivateAttr, SecretStr

from hasat.settings import kinds
from hasat.settings.dsn import password_in
from hasat.settings.given import DEFAULT, Origin
from hasat.settings.places import default_home
from hasat.settings.platform_tree import (
    Authentication,
    Database,
    Demo,
    Jobs,
    Log,
    Mcp,
    Replica,
    Serve,
)
from hasat.settings.section import Section
from hasat.settings.source_tree import Archives, Football, Gib, Nats, Tkgm, Webhooks

_LONG = 12


class Settings(Section):
    """Everything that can be set."""

    home: kinds.Folder = Field(
        default_factory=default_home, description="Where Hasat keeps its data."
    )
    config: kinds.Folder | None = Field(default=None, description="The folder of the YAML files.")
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
