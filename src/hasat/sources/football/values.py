"""Values inside a record that typed columns cannot hold.

The record is mirrored as it was published, the column is null, and the value is reported: a league
with one impossible date is still a league.
"""

import re
from collections.abc import Iterator
from datetime import date
from typing import Any

from hasat.sources.football.covers import MOST_DIGITS

# The whole numbers in bodies that columns are computed from.
_NUMBERS = {
    "teams": ("venue.id",),
    "fixtures": (
        "fixture.timestamp",
        "fixture.status.elapsed",
        "league.id",
        "league.season",
        "teams.home.id",
        "teams.away.id",
        "goals.home",
        "goals.away",
    ),
    "fixture_events": ("time.elapsed", "time.extra", "team.id", "player.id"),
    "fixture_players": ("player.id",),
    "standings": ("rank", "points"),
    "injuries": ("fixture.timestamp", "league.id", "league.season", "team.id", "player.id"),
    "top_scorers": ("player.id",),
}
# As core.moment has it: the years that every calendar here has.
EARLIEST, LATEST = -62135510400, 253370764800
_DAY = re.compile(r"(19|20|21)[0-9]{2}-[0-9]{2}-[0-9]{2}")


def unreadable_values(dataset: str, body: Any) -> Iterator[str]:
    """Describe each value that is there and that its column cannot hold."""
    for path in _NUMBERS.get(dataset, ()):
        value = _value(body, path)
        if value is not None and not _is_whole(value, is_moment=path.endswith("timestamp")):
            yield _described(path, value, "is not a number that can be stored")
    if dataset == "leagues":
        yield from _of_seasons(body.get("seasons"))


def _of_seasons(seasons: Any) -> Iterator[str]:
    if seasons is not None and not isinstance(seasons, list):
        yield _described("seasons", seasons, "is not a list")
        return
    for number, season in enumerate(seasons or ()):
        path = f"seasons[{number}]"
        year = _value(season, "year")
        if not _is_whole(year) or not 1800 <= year <= 2200:
            yield _described(f"{path}.year", year, "is not a year")
        for name in ("start", "end"):
            day = _value(season, name)
            if day is not None and not _is_day(day):
                yield _described(f"{path}.{name}", day, "is not a day")


def _value(body: Any, path: str) -> Any:
    for step in path.split("."):
        body = body.get(step) if isinstance(body, dict) else None
    return body


def _is_whole(value: Any, *, is_moment: bool = False) -> bool:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    return EARLIEST <= value <= LATEST if is_moment else abs(value) < 10**MOST_DIGITS


def _is_day(value: Any) -> bool:
    if not isinstance(value, str) or _DAY.fullmatch(value) is None:
        return False
    try:
        date.fromisoformat(value)
    except ValueError:
        return False
    return True


def _described(path: str, value: Any, what: str) -> str:
    return f"{path} {what}: {value!r}"[:200]
