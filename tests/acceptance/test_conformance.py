"""The built-in sources keep the promises that every source keeps."""

from hasat.sources.football.source import FOOTBALL
from hasat.sources.gib.source import GIB
from hasat.sources.tkgm.source import TKGM
from hasat.testing import conformance


class TestGib(conformance(GIB)):  # type: ignore[misc]
    pass


class TestTkgm(conformance(TKGM)):  # type: ignore[misc]
    overrides = {"min_interval_ms": 0, "cooldown_seconds": 1}  # noqa: RUF012


class TestFootball(conformance(FOOTBALL)):  # type: ignore[misc]
    half_list_params = {"only_league_id": 39}  # noqa: RUF012
