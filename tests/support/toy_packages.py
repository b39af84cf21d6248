"""Packages with sources, installed for one test as pip would install them."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from hasat.settings.plugins import load_plugins

TOY = '''
from typing import ClassVar

from pydantic import Field

from hasat.budget import Upstream
from hasat.settings import LegacyNames, Section, types
from hasat.source import Source


class Retries(Section):
    """Retries of the toy shop."""

    count: int = Field(default=3, ge=1, le=9, description="How often a request is retried.")


class ToySettings(Section):
    """The toy shop."""

    legacy: ClassVar[LegacyNames] = LegacyNames(
        environment={"toys.api_key": ("TOY_SHOP_KEY",)},
        retired={"TOY_SHOP_CACHE": "there is no cache."},
    )

    api_key: types.Secret | None = Field(default=None, description="The key of the shop.")
    url: types.HttpUrl = Field(default="https://toys.example", description="The shop.")
    daily: int = Field(default=100, ge=1, le=1000, description="Requests a day.")
    retries: Retries = Retries()


def upstreams(settings):
    return (Upstream("toys", day_limit=settings.section(ToySettings).daily),)


def lacks(settings):
    return None if settings.section(ToySettings).api_key else "The toy shop needs a key."


async def status(store, settings):
    return {"checks": {"toys": {"status": "Degraded", "description": "No toys."}}}


TOYS = Source(
    "toys", "Toys", settings=ToySettings, upstreams=upstreams, lacks=lacks, status=status
)
'''


@contextmanager
def installed(
    folder: Path, monkeypatch: pytest.MonkeyPatch, modules: Mapping[str, str], **entries: str
) -> Iterator[None]:
    """Install modules in a folder on the path, with entry points of the group `hasat.sources`."""
    for name, text in modules.items():
        (folder / f"{name}.py").write_text(text, "utf-8")
    package = folder / "toys-1.0.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: toys\nVersion: 1.0\n", "utf-8")
    points = "".join(f"{name} = {value}\n" for name, value in entries.items())
    (package / "entry_points.txt").write_text(f"[hasat.sources]\n{points}", "utf-8")
    with monkeypatch.context() as patch:
        patch.syspath_prepend(str(folder))
        load_plugins.cache_clear()
        yield
    load_plugins.cache_clear()
