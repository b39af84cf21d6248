"""The source `tkgm`, as the platform sees it."""

from importlib.resources import files
from typing import TYPE_CHECKING

from hasat.sources.registry import Source
from hasat.sources.tkgm.datasets import PARCELS, SOURCE

if TYPE_CHECKING:
    from fastapi import APIRouter


def _routers() -> "tuple[APIRouter, ...]":
    from hasat.sources.tkgm.routes import router

    return (router,)


TKGM = Source(
    SOURCE,
    "Cadastral parcels of the Turkish land registry",
    datasets=(PARCELS,),
    routers=_routers,
    migrations=files("hasat.sources.tkgm") / "migrations",
)
