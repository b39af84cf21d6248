"""The followed leagues, found by id or by a name in the API's list of leagues."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from hasat.messages import msg
from hasat.sources.football.settings import League
from hasat.store import Store
from hasat.store.queries import load_query
from hasat.text import fold

_MAX_NAMED = 8


@dataclass(frozen=True)
class FollowedLeague:
    """A league in the season that is followed."""

    id: int
    season: int


@dataclass(frozen=True)
class ResolvedLeagues:
    """The followed leagues, and a warning about each that was not found."""

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
    """Resolve the tracked leagues with the mirrored list of leagues; `only` selects one of them."""
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
    """Return the current season of a league, if the API lists one."""
    async with store.connection() as conn:
        cursor = await conn.execute(
            load_query("hasat.sources.football", "current_seasons"), {"leagues": [league]}
        )
        row = await cursor.fetchone()
    return None if row is None else int(row[2])


def find_league(league: League, listed: Iterable[ListedLeague]) -> FollowedLeague | str:
    """Return the league of a name, or a message why there is not exactly one.

    Case and diacritics do not matter; if several have the name, country and season decide.
    """
    listed = list(listed)
    if not listed:
        return msg("{name!r} is unknown until the list of leagues is fetched.", name=league.name)
    wanted = fold(league.name)
    named = [one for one in listed if fold(one.name) == wanted]
    for narrower in (
        [one for one in named if league.country and fold(one.country) == fold(league.country)],
        [one for one in named if league.season in one.seasons],
    ):
        if len(named) > 1 and narrower:
            named = narrower
    if league.country and named and fold(named[0].country) != fold(league.country):
        return msg(
            "No league in {country} is named {name!r}; found {found}.",
            country=league.country,
            name=league.name,
            found=_names(named),
        )
    if len(named) == 1:
        return FollowedLeague(named[0].id, league.season)
    if named:
        return msg(
            "{count} leagues are named {name!r}: {found}. "
            "Add the country or the id in tracked_leagues.",
            count=len(named),
            name=league.name,
            found=_names(named),
        )
    by_name = {fold(one.name): one for one in listed}
    close = [by_name[name] for name in get_close_matches(wanted, list(by_name), n=3)]
    if close:
        return msg(
            "No league is named {name!r}. Did you mean {found}?",
            name=league.name,
            found=_names(close),
        )
    return msg("No league is named {name!r}. Set its id in tracked_leagues.", name=league.name)


def _names(leagues: Sequence[ListedLeague]) -> str:
    ordered = sorted(leagues, key=lambda one: (one.country, one.id))
    more = f" and {len(ordered) - _MAX_NAMED} more" if len(ordered) > _MAX_NAMED else ""
    return ", ".join(map(str, ordered[:_MAX_NAMED])) + more
