"""Jobs for matches and their details: days, whole seasons, and twenty matches a request."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import date, timedelta
from typing import NamedTuple
from zoneinfo import ZoneInfo

from hasat.messages import msg
from hasat.sources.football.client import FootballClient
from hasat.sources.football.jobs.bootstrap import ensure_static, ensure_teams
from hasat.sources.football.jobs.seasons import (
    UNREADABLE,
    Progress,
    Season,
    ensure_matches,
    followed_seasons,
    load_progress,
    recent_refusals,
    record_refused,
    save_progress,
)
from hasat.sources.football.states import FINISHED
from hasat.store.queries import load_query

BACKFILL = "fixtures_backfill_league_season"
# A running season is listed once a week, for matches moved or added far ahead; near dates are
# fetched daily.
_RELISTED_AFTER = timedelta(days=7)
_STILL_RUNS = timedelta(days=14)
_SEASON = "fixtures"
IDS_PER_REQUEST = 20
DETAIL_FLAGS = {
    "fixtures/events": "events",
    "fixtures/lineups": "lineups",
    "fixtures/statistics": "statistics_fixtures",
    "fixtures/players": "statistics_players",
}
"""The endpoints of a match's details, and their flags in a season's coverage."""
_PACKAGE = "hasat.sources.football"
_BY_IDS = "fixtures?ids"
_EACH = "fixtures/..."
# Shorter than for a season, since matches in play wait meanwhile.
_REFUSED_COOLDOWN = timedelta(hours=1)
_RECENT = timedelta(days=9)
_NINETY_DAYS = timedelta(days=90)
_ALWAYS = timedelta(days=36_500)


async def by_date(api: FootballClient) -> None:
    """Fetch the matches of yesterday, today and tomorrow, which include late and moved ones."""
    seasons = await followed_seasons(api)
    if not seasons:
        return
    today = api.now.astimezone(ZoneInfo(api.settings.default_timezone)).date()
    days = [today + timedelta(days=shift) for shift in (-1, 0, 1)]
    # One request for each league is cheaper than one for each day where leagues are few.
    if len(seasons) < len(days) and api.settings.fixtures_fetch_mode == "global_by_date":
        for season in seasons:
            first, last = str(days[0]), str(days[-1])
            response = await api.fetch(
                "fixtures", league=season.league_id, season=season.year, from_=first, to=last
            )
            await api.load(response)
        return
    if api.settings.fixtures_fetch_mode == "global_by_date" and not api.is_named:
        leagues = {season.league_id for season in seasons}
        for day in days:
            await api.load(await api.fetch("fixtures", date=str(day)), leagues=leagues)
        return
    for season in seasons:
        params = {"league": season.league_id, "season": season.year}
        for day in days:
            await api.load(await api.fetch("fixtures", **params, date=str(day)))


async def backfill(api: FootballClient) -> None:
    """Fetch all matches of the seasons, incomplete seasons first."""
    await ensure_static(api)
    seasons = await followed_seasons(api, with_previous=True)
    known = await load_progress(api.store, BACKFILL)
    refused = await recent_refusals(api, _SEASON)
    due = [
        (season, progress)
        for season in seasons
        if season.pair not in refused
        and _is_due(api, season, progress := known.get(season.pair, Progress()))
    ]
    if recently := refused & {season.pair for season in seasons}:
        api.report_idle(
            msg(
                "The API refused the matches of {count} seasons less than a day ago.",
                count=len(recently),
            )
        )
    elif seasons and not due:
        api.report_idle(msg("All seasons are complete; a running season is listed once a week."))
    due.sort(key=lambda pair: (pair[1].completed, not pair[0].is_followed))
    chosen = due if api.is_named else due[: api.settings.backfill.fixtures_max_tasks_per_run]
    for number, (season, progress) in enumerate(chosen):
        await api.progress(
            number,
            len(chosen),
            msg("league {league_id}, {year}", league_id=season.league_id, year=season.year),
        )
        await ensure_teams(api, season)
        if _in_windows(api, season, progress) and season.start and season.end:
            await _windows(api, season, season.start, season.end, progress)
        else:
            await _whole(api, season, progress)


def _is_due(api: FootballClient, season: Season, progress: Progress) -> bool:
    if (
        api.is_named
        or not progress.completed
        or progress.last_error
        or _in_windows(api, season, progress)
    ):
        return True
    runs = season.end is None or api.now.date() <= season.end + _STILL_RUNS
    old = progress.updated_at is None or api.now - progress.updated_at > _RELISTED_AFTER
    return runs and old and season.is_followed


def _in_windows(api: FootballClient, season: Season, progress: Progress) -> bool:
    """Whether to fetch by windows of dates; a complete season is listed as a whole."""
    if api.settings.backfill.fixtures_mode == "season":
        return False
    return not progress.completed or not progress.reaches(season.start, season.end)


async def _whole(api: FootballClient, season: Season, progress: Progress) -> None:
    response = await api.fetch("fixtures", league=season.league_id, season=season.year)
    if not await api.load(response):
        await _stopped(api, season, progress)
        return
    await _save(api, season, Progress(season.start, _after(season.end), completed=True))


async def _windows(
    api: FootballClient, season: Season, start: date, end: date, progress: Progress
) -> None:
    """Fetch window by window; progress is a date, so the size of windows may change."""
    first, at = progress.first_date, progress.next_date
    if first is None or at is None or start < first:
        first = at = start
    if at > end:
        # The season became shorter than what was fetched.
        await _save(api, season, Progress(first, at, completed=True))
        return
    width = timedelta(days=api.settings.backfill.fixtures_window_days)
    for _ in range(api.settings.backfill.fixtures_max_pages_per_task):
        to = min(at + width - timedelta(days=1), end)
        response = await api.fetch(
            "fixtures",
            league=season.league_id,
            season=season.year,
            from_=str(at),
            to=str(to),
        )
        if not await api.load(response):
            await _stopped(api, season, Progress(first, at))
            return
        at = to + timedelta(days=1)
        await _save(api, season, Progress(first, at, completed=at > end))
        if at > end:
            return


async def _save(api: FootballClient, season: Season, progress: Progress) -> None:
    await save_progress(api.store, BACKFILL, season.league_id, season.year, progress)


async def _stopped(api: FootballClient, season: Season, progress: Progress) -> None:
    """Save the progress and the reason why the API stopped it."""
    await record_refused(api, _SEASON, season.league_id, season.year)
    await _save(api, season, replace(progress, last_error=api.refusal or UNREADABLE))


def _after(day: date | None) -> date | None:
    return None if day is None else day + timedelta(days=1)


class _Due(NamedTuple):
    fixture: int
    league: int
    season: int


async def recent_details(api: FootballClient) -> None:
    """Fetch recently finished matches at once, after a day and after a week, as figures settle."""
    await _complete(api, _RECENT, api.settings.details.finalize_batch)


async def details_of_90_days(api: FootballClient) -> None:
    await _complete(api, _NINETY_DAYS, api.settings.details.backfill_batch)


async def details_of_seasons(api: FootballClient) -> None:
    """Fetch the oldest matches first, so that the 90-day job does not request the same ones."""
    await _complete(api, _ALWAYS, api.settings.details.season_backfill_batch, oldest_first=True)


async def _complete(
    api: FootballClient, since: timedelta, batch: int, *, oldest_first: bool = False
) -> None:
    seasons = [
        one
        for one in await followed_seasons(api, with_previous=True)
        if api.is_named or one.has_details
    ]
    await ensure_matches(api, seasons)
    if api.settings.details.fetch_mode == "by_ids":
        due = await _due(api, seasons, since, round_up_batch(batch), oldest_first)
        await fetch_by_ids(api, [one.fixture for one in due])
    else:
        due = await _due(api, seasons, since, batch, oldest_first)
        await _fetch_each(api, seasons, due)


async def fetch_by_ids(api: FootballClient, fixtures: Sequence[int]) -> None:
    """Fetch matches with all details, twenty a request; stop when the API refuses."""
    if not fixtures:
        return
    if await recent_refusals(api, _BY_IDS, _REFUSED_COOLDOWN):
        api.report_idle(msg("The API refused matches by id less than an hour ago."))
        return
    for place in range(0, len(fixtures), IDS_PER_REQUEST):
        await api.progress(place, len(fixtures), msg("matches"))
        some = fixtures[place : place + IDS_PER_REQUEST]
        await api.load(await api.fetch("fixtures", ids="-".join(map(str, some))))
        if api.refusal is not None:
            await record_refused(api, _BY_IDS, 0, 0)
            return


async def _fetch_each(api: FootballClient, seasons: Sequence[Season], due: Sequence[_Due]) -> None:
    """Fetch match by match, one request for each kind of details that its season covers."""
    if not due:
        return
    if await recent_refusals(api, _EACH, _REFUSED_COOLDOWN):
        api.report_idle(msg("The API refused details less than an hour ago."))
        return
    covering = {season.pair: season for season in seasons}
    for number, (fixture, *pair) in enumerate(due):
        await api.progress(number, len(due), msg("matches"))
        season = covering[pair[0], pair[1]]
        for endpoint, flag in DETAIL_FLAGS.items():
            if season.has("fixtures", flag):
                response = await api.fetch(endpoint, fixture=fixture)
                if response is None:
                    # The match stays due, with all its details.
                    break
                await api.load(response)
        else:
            await _note_detailed(api, fixture)
        if api.refusal is not None:
            await record_refused(api, _EACH, 0, 0)
            return


def round_up_batch(batch: int) -> int:
    """Round up to full requests: one for fewer than twenty matches costs the same."""
    return -(-batch // IDS_PER_REQUEST) * IDS_PER_REQUEST


async def _due(
    api: FootballClient, seasons: Sequence[Season], since: timedelta, limit: int, oldest_first: bool
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
        api.report_idle(
            msg("No finished match lacks details.")
            if since == _ALWAYS
            else msg("No finished match of the last {days} days lacks details.", days=since.days)
        )
    return due


async def _note_detailed(api: FootballClient, fixture: int) -> None:
    async with api.store.connection() as conn:
        await conn.execute(
            load_query(_PACKAGE, "record_fixtures"),
            {"requested": [fixture], "received": [], "detailed": [fixture]},
        )
