"""Matches: those of a day, and whole seasons."""

from datetime import date, timedelta
from zoneinfo import ZoneInfo

from hasat.sources.football.asking import Api
from hasat.sources.football.bootstrap import ensure_teams
from hasat.sources.football.progress import Progress, load_progress, save_progress
from hasat.sources.football.seasons import Season, followed_seasons

BACKFILL = "fixtures_backfill_league_season"
# A season that runs is listed anew once a week, for what is re-dated or added far ahead; what is
# near is asked for by its date every day.
_RELISTED_AFTER = timedelta(days=7)
_STILL_RUNS = timedelta(days=14)


async def by_date(api: Api) -> None:
    """Yesterday, today and tomorrow: late matches and re-dated ones are in one of them."""
    seasons = await followed_seasons(api)
    if not seasons:
        return
    zone = api.settings.default_timezone
    today = api.now.astimezone(ZoneInfo(zone)).date()
    days = [today + timedelta(days=shift) for shift in (-1, 0, 1)]
    where = {} if zone == "UTC" else {"timezone": zone}
    if api.settings.fixtures_fetch_mode == "global_by_date":
        leagues = {season.league_id for season in seasons}
        for day in days:
            await api.load(await api.ask("fixtures", date=str(day), **where), leagues=leagues)
        return
    for season in seasons:
        asked = {"league": season.league_id, "season": season.year}
        for day in days:
            await api.load(await api.ask("fixtures", **asked, date=str(day), **where))


async def backfill(api: Api) -> None:
    """Whole seasons, those first that were never completed."""
    seasons = await followed_seasons(api, with_last=True)
    known = await load_progress(api.store, BACKFILL)
    due = [
        (season, progress)
        for season in seasons
        if _is_due(api, season, progress := known.get((season.league_id, season.year), Progress()))
    ]
    due.sort(key=lambda pair: (pair[1].completed, not pair[0].is_followed))
    chosen = due[: api.settings.backfill.fixtures_max_tasks_per_run]
    for number, (season, progress) in enumerate(chosen):
        await api.progress(number, len(chosen), f"league {season.league_id}, {season.year}")
        await ensure_teams(api, season)
        if api.settings.backfill.fixtures_mode == "season" or not (season.start and season.end):
            await _whole(api, season)
        else:
            await _windows(api, season, season.start, season.end, progress)


def _is_due(api: Api, season: Season, progress: Progress) -> bool:
    if not progress.completed:
        return True
    if api.settings.backfill.fixtures_mode == "windows":
        return not progress.reaches(season.start, season.end)
    runs = season.end is None or api.now.date() <= season.end + _STILL_RUNS
    old = progress.updated_at is None or api.now - progress.updated_at > _RELISTED_AFTER
    return runs and old and season.is_followed


async def _whole(api: Api, season: Season) -> None:
    answer = await api.ask("fixtures", league=season.league_id, season=season.year)
    await api.load(answer)
    error = None if answer is not None else "the API did not say"
    progress = Progress(season.start, _after(season.end), answer is not None, error)
    await save_progress(api.store, BACKFILL, season.league_id, season.year, progress)


async def _windows(api: Api, season: Season, start: date, end: date, progress: Progress) -> None:
    """Window by window. What is remembered is a date, so windows of any size fit together."""
    first, at = progress.first_date, progress.next_date
    if first is None or at is None or start < first:
        first = at = start
    width = timedelta(days=api.settings.backfill.fixtures_window_days)
    for _ in range(api.settings.backfill.fixtures_max_pages_per_task):
        if at > end:
            break
        to = min(at + width - timedelta(days=1), end)
        answer = await api.ask(
            "fixtures",
            league=season.league_id,
            season=season.year,
            from_=str(at),
            to=str(to),
        )
        if answer is None:
            failed = Progress(first, at, completed=False, last_error="the API did not say")
            await save_progress(api.store, BACKFILL, season.league_id, season.year, failed)
            return
        await api.load(answer)
        at = to + timedelta(days=1)
        reached = Progress(first, at, completed=at > end)
        await save_progress(api.store, BACKFILL, season.league_id, season.year, reached)


def _after(day: date | None) -> date | None:
    return None if day is None else day + timedelta(days=1)
