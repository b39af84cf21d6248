"""The source `tkgm`, as the platform sees it."""

from importlib.resources import files

from hasat.sources.registry import Source, Tool, Workshop
from hasat.sources.tkgm.datasets import PARCELS, SOURCE


def _tools(shop: Workshop) -> tuple[Tool, ...]:
    from hasat.sources.tkgm.tools import TkgmTools

    return TkgmTools(shop).all()


TKGM = Source(
    SOURCE,
    "Cadastral parcels of the Turkish land registry",
    datasets=(PARCELS,),
    tools=_tools,
    migrations=files("hasat.sources.tkgm") / "migrations",
)
