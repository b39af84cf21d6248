"""Events, line-ups, statistics and players of matches: twenty matches a request."""

from collections.abc import Sequence
from datetime import timedelta
from typing import NamedTuple

from hasat.messages import msg
from hasat.sources.football.asking import Api
from hasat.sources.football.seasons import (
    Season,
    ensure_matches,
    followed_seasons,
    note_refused,
    refused_lately,
)
from hasat.sources.football.states import FINISHED
from hasat.store.queries import load_query

AT_ONCE = 20
BLOCK_OF = {
    "fixtures/events": "events",
    "fixtures/lineups": "lineups",
    "fixtures/statistics": "statistics_fixtures",
    "fixtures/players": "statistics_players",
}
"""Where each kind of details is told of one match, and its flag among what a season covers."""
_PACKAGE = "hasat.sources.football"
_BY_IDS = "fixtures?ids"
_EACH = "fixtures/..."
# Shorter than for a season: everything that is played waits meanwhile.
_REFUSED_RESTS = timedelta(hours=1)
_RECENT = timedelta(days=9)
_NINETY_DAYS = timedelta(days=90)
_ALWAYS = timedelta(days=36_500)


class _Due(NamedTuple):
    fixture: int
    league: int
    season: int


async def recent(api: Api) -> None:
    """Matches that ended lately: at once, a day later and a week later, as figures settle."""
    await _complete(api, _RECENT, api.settings.details.finalize_batch)


async def last_ninety_days(api: Api) -> None:
    await _complete(api, _NINETY_DAYS, api.settings.details.backfill_batch)


async def whole_seasons(api: Api) -> None:
    """Begins at the other end than the ninety days, so that both at once ask for no match twice."""
    await _complete(api, _ALWAYS, api.settings.details.season_backfill_batch, oldest_first=True)


async def _complete(api: Api, since: timedelta, batch: int, *, oldest_first: bool = False) -> None:
    seasons = [
        one
        for one in await followed_seasons(api, with_last=True)
        if api.is_named or one.has_details
    ]
    await ensure_matches(api, seasons)
    if api.settings.details.fetch_mode == "by_ids":
        due = await _due(api, seasons, since, filled(batch), oldest_first)
        await ask_by_ids(api, [one.fixture for one in due])
    else:
        due = await _due(api, seasons, since, batch, oldest_first)
        await _ask_each(api, seasons, due)


async def ask_by_ids(api: Api, fixtures: Sequence[int]) -> None:
    """Ask for matches with all their details, twenty at a time; no more once that is refused."""
    if not fixtures:
        return
    if await refused_lately(api, _BY_IDS, _REFUSED_RESTS):
        api.idle("The API refused matches by their ids less than an hour ago.")
        return
    for place in range(0, len(fixtures), AT_ONCE):
        await api.progress(place, len(fixtures), msg("matches"))
        some = fixtures[place : place + AT_ONCE]
        await api.load(await api.ask("fixtures", ids="-".join(map(str, some))))
        if api.refusal is not None:
            await note_refused(api, _BY_IDS, 0, 0)
            return


async def _ask_each(api: Api, seasons: Sequence[Season], due: Sequence[_Due]) -> None:
    """The original's way: match by match, each kind of details that its season covers."""
    if not due:
        return
    if await refused_lately(api, _EACH, _REFUSED_RESTS):
        api.idle("The API refused details less than an hour ago.")
        return
    covering = {season.pair: season for season in seasons}
    for number, (fixture, *pair) in enumerate(due):
        await api.progress(number, len(due), msg("matches"))
        season = covering[pair[0], pair[1]]
        for endpoint, flag in BLOCK_OF.items():
            if season.has("fixtures", flag):
                answer = await api.ask(endpoint, fixture=fixture)
                if answer is None:
                    # What is missing is asked for again with the rest.
                    break
                await api.load(answer)
        else:
            await _note_detailed(api, fixture)
        if api.refusal is not None:
            await note_refused(api, _EACH, 0, 0)
            return


def filled(batch: int) -> int:
    """A request for fewer than twenty costs the same."""
    return -(-batch // AT_ONCE) * AT_ONCE


async def _due(
    api: Api, seasons: Sequence[Season], since: timedelta, limit: int, oldest_first: bool
) -> list[_Due]:
    async with api.store.connection() as conn:
        cursor = await conn.execute(
            load_query(_PACKAGE, "details_due"),
            {
                "leagues": [season.league_id for season in seasons],
                "seasons": [season.year for season in seasons],
                "finished": list(FINISHED),
                "now": api.now,
                "since": api.now - since,
                "limit": limit,
                "oldest_first": oldest_first,
                "named": api.is_named,
            },
        )
        due = [_Due(*row) for row in await cursor.fetchall()]
    if not due:
        within = "" if since == _ALWAYS else f" of the last {since.days} days"
        api.idle(f"No finished match{within} is known that lacks details.")
    return due


async def _note_detailed(api: Api, fixture: int) -> None:
    async with api.store.connection() as conn:
        await conn.execute(
            load_query(_PACKAGE, "note_told"),
            {"asked": [fixture], "told": [], "detailed": [fixture]},
        )
