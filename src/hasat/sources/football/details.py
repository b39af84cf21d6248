"""Events, line-ups, statistics and players of matches: twenty matches a request."""

from collections.abc import Sequence
from datetime import timedelta

from hasat.sources.football.asking import Api
from hasat.sources.football.seasons import Season, followed_seasons
from hasat.sources.football.states import FINISHED
from hasat.store.statements import statement

AT_ONCE = 20
_ROOM = "hasat.sources.football"
_RECENT = timedelta(days=9)
_NINETY_DAYS = timedelta(days=90)
_ALWAYS = timedelta(days=36_500)


async def recent(api: Api) -> None:
    """Matches that ended lately: at once, a day later and a week later, as figures settle."""
    await _complete(api, _RECENT, api.settings.details.finalize_batch)


async def last_ninety_days(api: Api) -> None:
    await _complete(api, _NINETY_DAYS, api.settings.details.backfill_batch)


async def whole_seasons(api: Api) -> None:
    await _complete(api, _ALWAYS, api.settings.details.season_backfill_batch)


async def _complete(api: Api, since: timedelta, batch: int) -> None:
    seasons = [one for one in await followed_seasons(api, with_last=True) if one.has_details]
    due = await _due(api, seasons, since, filled(batch))
    await ask_by_ids(api, due)


async def ask_by_ids(api: Api, fixtures: Sequence[int]) -> None:
    """Ask for matches with all their details, twenty at a time."""
    for place in range(0, len(fixtures), AT_ONCE):
        await api.progress(place, len(fixtures), "matches")
        some = fixtures[place : place + AT_ONCE]
        await api.load(await api.ask("fixtures", ids="-".join(map(str, some))))


def filled(batch: int) -> int:
    """A request for fewer than twenty costs the same."""
    return -(-batch // AT_ONCE) * AT_ONCE


async def _due(api: Api, seasons: Sequence[Season], since: timedelta, limit: int) -> list[int]:
    async with api.store.connection() as conn:
        cursor = await conn.execute(
            statement(_ROOM, "details_due"),
            {
                "leagues": [season.league_id for season in seasons],
                "seasons": [season.year for season in seasons],
                "finished": list(FINISHED),
                "now": api.now,
                "since": api.now - since,
                "limit": limit,
            },
        )
        return [fixture for (fixture,) in await cursor.fetchall()]
