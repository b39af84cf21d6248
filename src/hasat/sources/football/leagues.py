"""Which leagues are followed: by their id, or by a name that the API's own list has once."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from hasat.settings.source_tree import League
from hasat.store import Store
from hasat.store.queries import load_query
from hasat.text import fold

_SHOWN = 8


@dataclass(frozen=True)
class FollowedLeague:
    """A league in the season that is followed."""

    id: int
    season: int


@dataclass(frozen=True)
class ResolvedLeagues:
    """The leagues that are followed, and a sentence about each that could not be found."""

    leagues: tuple[FollowedLeague, ...]
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class ListedLeague:
    """A league as the API lists it."""

    id: int
    name: str
    country: str
    seasons: Sequence[int]

    def __str__(self) -> str:
        return f"{self.name} ({self.country}, id {self.id})"


async def resolve(
    store: Store, tracked: Sequence[League], only: int | None = None
) -> ResolvedLeagues:
    """The ids of the tracked leagues, from what is known of /leagues; `only` leaves one of them."""
    listed: list[ListedLeague] = []
    if any(league.id is None for league in tracked):
        async with store.connection() as conn:
            cursor = await conn.execute(load_query("hasat.sources.football", "league_names"))
            listed = [ListedLeague(*row) for row in await cursor.fetchall()]
    found: dict[FollowedLeague, None] = {}
    warnings = []
    for league in tracked:
        chosen = (
            FollowedLeague(league.id, league.season) if league.id else find_league(league, listed)
        )
        if isinstance(chosen, str):
            warnings.append(chosen)
        elif only in (None, chosen.id):
            found[chosen] = None
    return ResolvedLeagues(tuple(found), tuple(warnings))


async def current_season(store: Store, league: int) -> int | None:
    """Return the season of a league that the API calls current, if it lists one."""
    async with store.connection() as conn:
        cursor = await conn.execute(
            load_query("hasat.sources.football", "current_seasons"), {"leagues": [league]}
        )
        row = await cursor.fetchone()
    return None if row is None else int(row[2])


def find_league(league: League, listed: Iterable[ListedLeague]) -> FollowedLeague | str:
    """The one league of this name, or a sentence that says why there is not one.

    Case and marks do not matter; where several have the name, the country and the season decide.
    """
    listed = list(listed)
    if not listed:
        return f"{league.name!r} waits for the API's list of leagues."
    wanted = fold(league.name)
    named = [one for one in listed if fold(one.name) == wanted]
    for narrower in (
        [one for one in named if league.country and fold(one.country) == fold(league.country)],
        [one for one in named if league.season in one.seasons],
    ):
        if len(named) > 1 and narrower:
            named = narrower
    if league.country and named and fold(named[0].country) != fold(league.country):
        there = _some(named)
        return f"No league of {league.country} is called {league.name!r}; there is {there}."
    if len(named) == 1:
        return FollowedLeague(named[0].id, league.season)
    if named:
        return (
            f"{league.name!r} is the name of {len(named)} leagues: {_some(named)}. "
            "Add the country or the id in tracked_leagues."
        )
    by_name = {fold(one.name): one for one in listed}
    close = [by_name[name] for name in get_close_matches(wanted, list(by_name), n=3)]
    hint = f"Did you mean {_some(close)}?" if close else "Set its id in tracked_leagues."
    return f"No league is called {league.name!r}. {hint}"


def _some(leagues: Sequence[ListedLeague]) -> str:
    ordered = sorted(leagues, key=lambda one: (one.country, one.id))
    more = f" and {len(ordered) - _SHOWN} more" if len(ordered) > _SHOWN else ""
    return ", ".join(map(str, ordered[:_SHOWN])) + more
