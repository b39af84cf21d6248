"""The source `tkgm`, as the platform sees it."""

from importlib.resources import files

from hasat.sources.registry import Source
from hasat.sources.tkgm.datasets import PARCELS, SOURCE
from hasat.sources.tkgm.job import SCAN, lacks

TKGM = Source(
    SOURCE,
    "Cadastral parcels of the Turkish land registry",
    datasets=(PARCELS,),
    jobs=(SCAN,),
    lacks=lacks,
    migrations=files("hasat.sources.tkgm") / "migrations",
)
