"""Matches whose end nobody told: asked for again, and meanwhile marked as probably over.

What is inferred is never written as a fact: it stands in core.fixture_inferences, beside the
mirrored match, and ends when the API says anything about that match.
"""

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from hasat.errors import HasatError, OutOfQuotaError
from hasat.jobs import Outcome, RunContext
from hasat.messages import msg
from hasat.sources import upstreams
from hasat.sources.football.client import FootballClient, is_named, only_league, run_with_client
from hasat.sources.football.datasets import LIVE, MAY_BE_OVER, RESTING, SCHEDULED, SOURCE
from hasat.sources.football.jobs.fixtures import IDS_PER_REQUEST, fetch_by_ids, round_up_batch
from hasat.sources.football.jobs.seasons import followed_seasons
from hasat.sources.football.leagues import resolve
from hasat.store.queries import load_query

_PACKAGE = "hasat.sources.football"
# After kick-off a match is asked for when it may be over; later whenever it was silent for long.
_CHECKS_AFTER = tuple(timedelta(minutes=m) for m in (105, 120, 150, 240))
_LATE = timedelta(hours=6)
# Postponed or abandoned matches get another date, or none: a look a day is enough, and for states
# that nobody knows yet it is the least.
_RESTING_LOOKBACK = timedelta(days=30)
_MAX_PER_RUN = 2000
MARKED = "marked"
"""How many matches a run marked, in its detail."""


async def auto_finish(context: RunContext) -> Outcome:
    """Mark matches as probably over; with `try_fetch_first`, ask for them before that.

    Where asking fails, they are marked all the same, and the run says why. A dry run only counts.
    """
    dry_run = bool(context.params.get("dry_run"))
    asked = Outcome("nothing")
    if context.params.get("try_fetch_first") and not dry_run:
        try:
            asked = await run_with_client(_fetch_candidates)(context)
        except HasatError as error:
            asked = Outcome("nothing", message=str(error))
            context.log.warning("matches could not be asked for: they are only marked")
    values = {
        **_thresholds(context),
        "leagues": await _league_ids(context),
        "statuses": list(MAY_BE_OVER),
        "dry_run": dry_run,
    }
    async with context.store.connection() as conn:
        # After any writer of matches: a kick-off that it moves must not be read as it was before.
        await conn.execute("SELECT FROM feed.head WHERE dataset = 'fixtures' FOR SHARE")
        cursor = await conn.execute(load_query(_PACKAGE, "infer_finished"), values)
        row = await cursor.fetchone()
        assert row is not None
    [marked] = row
    message = asked.message
    if not marked and asked.kind == "nothing" and message is None:
        hours, lag = values["threshold"], values["lag"]
        message = msg(
            "No match that began {hours} ago or earlier was silent for {lag}.", hours=hours, lag=lag
        )
    return Outcome(
        "done" if marked else asked.kind,
        asked.rows_changed + marked,
        detail={MARKED: marked},
        message=message,
    )


async def verify(api: FootballClient) -> None:
    """Ask for matches that were marked as over, until the API has answered."""
    settings = api.settings.verification
    await _check_quota(api)
    async with api.store.connection() as conn:
        cursor = await conn.execute(
            load_query(_PACKAGE, "take_inferred"),
            {
                "leagues": await _league_ids(api.context),
                "named": api.is_named,
                "attempts": settings.max_attempts,
                "cooldown": timedelta(hours=settings.cooldown_hours),
                "limit": round_up_batch(200),
            },
        )
        due = [fixture for (fixture,) in await cursor.fetchall()]
    if not due:
        api.report_idle("No match that was marked as over is due to be verified.")
    await fetch_by_ids(api, due)


async def _league_ids(context: RunContext) -> list[int]:
    """Return the followed leagues, or the one that the operator named, followed or not."""
    only = only_league(context)
    if only is not None and is_named(context):
        return [only]
    tracked = context.settings.football.tracked_leagues
    return [league.id for league in (await resolve(context.store, tracked, only)).leagues]


async def _check_quota(api: FootballClient) -> None:
    """What the lane keeps comes from the settings; a run may be told to keep more."""
    least = api.params.get("min_daily_quota")
    if least is None:
        return
    for quota in await upstreams.read_all_quotas(api.store, api.context.settings, outcomes=False):
        left = quota.windows.remaining
        if quota.windows.upstream == SOURCE and left is not None and left < least:
            raise OutOfQuotaError(
                msg(
                    "{left:,} requests are left today, and min_daily_quota is {least:,}.",
                    left=left,
                    least=least,
                ),
                until=quota.windows.ends_at,
            )


async def stale_live(api: FootballClient) -> None:
    """Matches that were told as being played, and of which nothing was heard for a while.

    Those that are about to begin are asked for once with them, for their line-ups.
    """
    silence = timedelta(minutes=int(api.params.get("stale_threshold_minutes", 15)))
    due = await _silent(api, LIVE, silence, timedelta(days=30))
    fixtures = [*(fixture for fixture, _ in due), *await _near_kick_off(api)]
    if not fixtures:
        api.report_idle(
            f"No match is being played and was silent for {silence}, or is about to begin."
        )
    await fetch_by_ids(api, fixtures)


async def stale_scheduled(api: FootballClient) -> None:
    """Matches that should have begun, and those without a date, asked for when they may be over.

    Where a day has more of them than fit into one request by ids, the day is asked for.
    """
    silence = timedelta(minutes=int(api.params.get("stale_threshold_minutes", 60)))
    lookback = timedelta(days=int(api.params.get("lookback_days", 3)))
    due = await _silent(api, SCHEDULED, silence, lookback, checks=_CHECKS_AFTER)
    if api.settings.fixtures_fetch_mode == "global_by_date":
        late = Counter(at.date() for _, at in due if at < api.now - _LATE)
        if days := sorted(day for day, count in late.items() if count > IDS_PER_REQUEST):
            leagues = {league.id for league in await api.leagues()}
            for day in days:
                await api.load(await api.fetch("fixtures", date=str(day)), leagues=leagues)
            due = await _silent(api, SCHEDULED, silence, lookback, checks=_CHECKS_AFTER)
    due += await _silent(api, RESTING, timedelta(days=1), _RESTING_LOOKBACK, unknown=True)
    if not due:
        api.report_idle(f"No match should have begun and was silent for {silence}.")
    await fetch_by_ids(api, [fixture for fixture, _ in due])


async def _near_kick_off(api: FootballClient) -> list[int]:
    """Matches that are about to begin, where the API has line-ups of them."""
    seasons = [one for one in await followed_seasons(api) if one.has("fixtures", "lineups")]
    async with api.store.connection() as conn:
        cursor = await conn.execute(
            load_query(_PACKAGE, "near_kick_off"),
            {
                "leagues": [season.league_id for season in seasons],
                "seasons": [season.year for season in seasons],
                "now": api.now,
                "window": timedelta(minutes=api.settings.details.stale_minutes),
                "limit": round_up_batch(api.settings.details.lineups_window_batch),
            },
        )
        return [fixture for (fixture,) in await cursor.fetchall()]


async def _silent(
    api: FootballClient,
    statuses: Sequence[str],
    silence: timedelta,
    lookback: timedelta,
    *,
    checks: Sequence[timedelta] = (),
    unknown: bool = False,
) -> list[tuple[int, datetime]]:
    """Matches in one of these states that are due for another look, and when they began."""
    leagues = [season.league_id for season in await followed_seasons(api)]
    async with api.store.connection() as conn:
        cursor = await conn.execute(
            load_query(_PACKAGE, "silent_fixtures"),
            {
                "leagues": leagues,
                "statuses": list(statuses),
                "now": api.now,
                "silence": silence,
                "late": _LATE,
                "lookback": lookback,
                "looks": list(checks),
                "unknown": unknown,
                "limit": _MAX_PER_RUN,
            },
        )
        return [(fixture, date.astimezone(UTC)) for fixture, date in await cursor.fetchall()]


async def _fetch_candidates(api: FootballClient) -> None:
    leagues = await _league_ids(api.context)
    values = {**_thresholds(api.context), "leagues": leagues, "statuses": list(MAY_BE_OVER)}
    async with api.store.connection() as conn:
        cursor = await conn.execute(load_query(_PACKAGE, "may_be_over"), values)
        due = [fixture for (fixture,) in await cursor.fetchall()]
    await fetch_by_ids(api, due)


def _thresholds(context: RunContext) -> dict[str, object]:
    params = context.params
    return {
        "threshold": timedelta(hours=float(params.get("threshold_hours", 2))),
        "lag": timedelta(hours=float(params.get("safety_lag_hours", 3))),
        "limit": int(params.get("max_fixtures_per_run", 1000)),
    }
