"""Matches: those of a day, and whole seasons."""

from dataclasses import replace
from datetime import date, timedelta
from zoneinfo import ZoneInfo

from hasat.messages import msg
from hasat.sources.football.asking import Api
from hasat.sources.football.bootstrap import ensure_static, ensure_teams
from hasat.sources.football.progress import UNREADABLE, Progress, load_progress, save_progress
from hasat.sources.football.seasons import (
    Season,
    followed_seasons,
    note_refused,
    refused_lately,
)

BACKFILL = "fixtures_backfill_league_season"
# A season that runs is listed anew once a week, for what is re-dated or added far ahead; what is
# near is asked for by its date every day.
_RELISTED_AFTER = timedelta(days=7)
_STILL_RUNS = timedelta(days=14)
_SEASON = "fixtures"


async def by_date(api: Api) -> None:
    """Yesterday, today and tomorrow: late matches and re-dated ones are in one of them."""
    seasons = await followed_seasons(api)
    if not seasons:
        return
    today = api.now.astimezone(ZoneInfo(api.settings.default_timezone)).date()
    days = [today + timedelta(days=shift) for shift in (-1, 0, 1)]
    if api.settings.fixtures_fetch_mode == "global_by_date" and not api.is_named:
        leagues = {season.league_id for season in seasons}
        for day in days:
            await api.load(await api.ask("fixtures", date=str(day)), leagues=leagues)
        return
    for season in seasons:
        asked = {"league": season.league_id, "season": season.year}
        for day in days:
            await api.load(await api.ask("fixtures", **asked, date=str(day)))


async def backfill(api: Api) -> None:
    """Whole seasons, those first that were never completed."""
    await ensure_static(api)
    seasons = await followed_seasons(api, with_last=True)
    known = await load_progress(api.store, BACKFILL)
    refused = await refused_lately(api, _SEASON)
    due = [
        (season, progress)
        for season in seasons
        if season.pair not in refused
        and _is_due(api, season, progress := known.get(season.pair, Progress()))
    ]
    if lately := refused & {season.pair for season in seasons}:
        api.idle(f"The API refused the matches of {len(lately)} seasons less than a day ago.")
    elif seasons and not due:
        api.idle("All seasons are listed; a running one is listed again after a week.")
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


def _is_due(api: Api, season: Season, progress: Progress) -> bool:
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


def _in_windows(api: Api, season: Season, progress: Progress) -> bool:
    """Whether windows are left to be asked for; a season that is complete is listed as a whole."""
    if api.settings.backfill.fixtures_mode == "season":
        return False
    return not progress.completed or not progress.reaches(season.start, season.end)


async def _whole(api: Api, season: Season, progress: Progress) -> None:
    answer = await api.ask("fixtures", league=season.league_id, season=season.year)
    if not await api.load(answer):
        await _stopped(api, season, progress)
        return
    await _save(api, season, Progress(season.start, _after(season.end), completed=True))


async def _windows(api: Api, season: Season, start: date, end: date, progress: Progress) -> None:
    """Window by window. What is remembered is a date, so windows of any size fit together."""
    first, at = progress.first_date, progress.next_date
    if first is None or at is None or start < first:
        first = at = start
    if at > end:
        # The season has become shorter than what is there.
        await _save(api, season, Progress(first, at, completed=True))
        return
    width = timedelta(days=api.settings.backfill.fixtures_window_days)
    for _ in range(api.settings.backfill.fixtures_max_pages_per_task):
        to = min(at + width - timedelta(days=1), end)
        answer = await api.ask(
            "fixtures",
            league=season.league_id,
            season=season.year,
            from_=str(at),
            to=str(to),
        )
        if not await api.load(answer):
            await _stopped(api, season, Progress(first, at))
            return
        at = to + timedelta(days=1)
        await _save(api, season, Progress(first, at, completed=at > end))
        if at > end:
            return


async def _save(api: Api, season: Season, progress: Progress) -> None:
    await save_progress(api.store, BACKFILL, season.league_id, season.year, progress)


async def _stopped(api: Api, season: Season, progress: Progress) -> None:
    """Remember how far it is, and what the API said instead of going on."""
    await note_refused(api, _SEASON, season.league_id, season.year)
    await _save(api, season, replace(progress, last_error=api.refusal or UNREADABLE))


def _after(day: date | None) -> date | None:
    return None if day is None else day + timedelta(days=1)
