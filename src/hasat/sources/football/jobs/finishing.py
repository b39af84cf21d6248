"""Jobs for matches without a reported end: fetched again, and marked as probably finished.

Inferences never enter a match's record: they are in core.fixture_inferences, and are deleted when
the API reports the match again.
"""

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from hasat.errors import HasatError, OutOfQuotaError
from hasat.feed.holds import GuardError
from hasat.jobs import Outcome, RunContext
from hasat.messages import msg
from hasat.sources.football.client import FootballClient, is_named, only_league, run_with_client
from hasat.sources.football.endpoints import SOURCE
from hasat.sources.football.jobs.fixtures import IDS_PER_REQUEST, fetch_by_ids, round_up_batch
from hasat.sources.football.jobs.seasons import followed_seasons
from hasat.sources.football.leagues import resolve
from hasat.sources.football.settings import FootballSettings
from hasat.sources.football.states import LIVE, MAY_BE_OVER, RESTING, SCHEDULED
from hasat.store.queries import load_query
from hasat.upstreams import read_all_quotas

_PACKAGE = "hasat.sources.football"
# A match is fetched at these times after kick-off, when it may be over, and later when it is stale.
_CHECKS_AFTER = tuple(timedelta(minutes=m) for m in (110, 120, 150, 240))
# From these times on, a match in one of these states may end at any moment, and is fetched as often
# as the plan allows: every quarter of an hour on the free plan, in every run on larger ones.
_ENDING = (
    (("2H", "LIVE"), _CHECKS_AFTER[0]),
    (("ET", "BT", "P"), timedelta(minutes=145)),
)
_END_SHARE = 1.0
_MIN_END_SILENCE = timedelta(minutes=4)
_LATE = timedelta(hours=6)
_HOUR = timedelta(hours=1)
# Two halves and the break.
_MIN_MATCH = timedelta(minutes=105)
# Postponed and abandoned matches, and those in an unknown state, are fetched once a day.
_RESTING_LOOKBACK = timedelta(days=30)
_MAX_PER_RUN = 2000
MARKED = "marked"
"""The key for the number of marked matches in a run's detail."""


async def auto_finish(context: RunContext) -> Outcome:
    """Mark matches as probably finished; with `try_fetch_first`, fetch them before.

    If fetching fails, they are marked nevertheless, and the run reports why. A dry run counts only.
    """
    dry_run = bool(context.params.get("dry_run"))
    fetched = Outcome("nothing")
    held: GuardError | None = None
    if context.params.get("try_fetch_first") and not dry_run:
        try:
            fetched = await run_with_client(_fetch_candidates)(context)
        except GuardError as error:
            held = error
        except HasatError as error:
            fetched = Outcome("nothing", message=str(error))
            context.log.warning("auto_finish.fetch_failed", reason=str(error))
    values = {
        **_thresholds(context),
        "leagues": await _league_ids(context),
        "statuses": list(MAY_BE_OVER),
        "dry_run": dry_run,
    }
    async with context.store.connection() as conn:
        # Wait for writers of matches: a kick-off that they move must not be read before.
        await conn.execute("SELECT FROM feed.head WHERE dataset = 'fixtures' FOR SHARE")
        cursor = await conn.execute(load_query(_PACKAGE, "infer_finished"), values)
        row = await cursor.fetchone()
        assert row is not None
    [marked] = row
    if held is not None:
        raise held
    message = fetched.message
    if not marked and fetched.kind == "nothing" and message is None:
        hours, lag = values["threshold"], values["lag"]
        message = msg(
            "No match that began at least {hours} ago has been without news for {lag}.",
            hours=hours,
            lag=lag,
        )
    return Outcome(
        "done" if marked else fetched.kind,
        fetched.rows_changed + marked,
        detail={MARKED: marked},
        message=message,
    )


async def verify(api: FootballClient) -> None:
    """Fetch matches marked as finished until the API reports their result."""
    settings = api.settings.verification
    await _check_quota(api)
    async with api.store.connection() as conn:
        cursor = await conn.execute(
            load_query(_PACKAGE, "claim_inferred"),
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
        api.report_idle(msg("No match marked as finished is due for verification."))
    await fetch_by_ids(api, due)


async def _league_ids(context: RunContext) -> list[int]:
    """Return the followed leagues, or the league that the operator named."""
    only = only_league(context)
    if only is not None and is_named(context):
        return [only]
    tracked = context.settings.section(FootballSettings).tracked_leagues
    return [league.id for league in (await resolve(context.store, tracked, only)).leagues]


async def _check_quota(api: FootballClient) -> None:
    """Raise OutOfQuotaError below `min_daily_quota`, which may reserve more than the lane does."""
    minimum = api.params.get("min_daily_quota")
    if minimum is None:
        return
    for quota in await read_all_quotas(api.store, api.context.settings, outcomes=False):
        left = quota.windows.remaining
        if quota.windows.upstream == SOURCE and left is not None and left < minimum:
            raise OutOfQuotaError(
                msg(
                    "{left:,} requests are left today; min_daily_quota is {minimum:,}.",
                    left=left,
                    minimum=minimum,
                ),
                until=quota.windows.ends_at,
            )


async def stale_live(api: FootballClient) -> None:
    """Fetch matches in play without recent news, those that may be over, and those that start soon.

    Each is fetched once shortly before it starts, for line-ups.
    """
    silence = timedelta(minutes=int(api.params.get("stale_threshold_minutes", 15)))
    at_end = min(silence, await api.interval(1, _END_SHARE, _MIN_END_SILENCE))
    due = await _stale(api, LIVE, silence, timedelta(days=30))
    for states, began in _ENDING:
        due += await _stale(api, states, at_end, _LATE, began=began)
    due += await _stale(api, SCHEDULED, at_end, _LATE, checks=_CHECKS_AFTER)
    fixtures = dict.fromkeys([*(fixture for fixture, _ in due), *await _near_kick_off(api)])
    if not fixtures:
        api.report_idle(
            msg(
                "No match in play has been without news for {silence}, and none starts soon.",
                silence=silence,
            )
        )
    await fetch_by_ids(api, list(fixtures))


async def stale_scheduled(api: FootballClient) -> None:
    """Fetch matches that should have started, when they may be over, and those without a date.

    A day with more of them than one request by ids takes is fetched as a whole.
    """
    silence = timedelta(minutes=int(api.params.get("stale_threshold_minutes", 60)))
    lookback = timedelta(days=int(api.params.get("lookback_days", 3)))
    due = await _stale(api, SCHEDULED, silence, lookback, checks=_CHECKS_AFTER)
    if api.settings.fixtures_fetch_mode == "global_by_date":
        late = Counter(at.date() for _, at in due if at < api.now - _LATE)
        if days := sorted(day for day, count in late.items() if count > IDS_PER_REQUEST):
            leagues = {league.id for league in await api.leagues()}
            for day in days:
                await api.load(await api.fetch("fixtures", date=str(day)), leagues=leagues)
            due = await _stale(api, SCHEDULED, silence, lookback, checks=_CHECKS_AFTER)
    due += await _stale(api, RESTING, timedelta(days=1), _RESTING_LOOKBACK, unknown=True)
    if not due:
        api.report_idle(
            msg(
                "No match that should have started has been without news for {silence}.",
                silence=silence,
            )
        )
    await fetch_by_ids(api, [fixture for fixture, _ in due])


async def _near_kick_off(api: FootballClient) -> list[int]:
    """Return the matches about to start for which the API has line-ups."""
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


async def _stale(
    api: FootballClient,
    statuses: Sequence[str],
    silence: timedelta,
    lookback: timedelta,
    *,
    began: timedelta | None = None,
    checks: Sequence[timedelta] = (),
    unknown: bool = False,
) -> list[tuple[int, datetime]]:
    """Return stale matches in one of these states that began a while ago, and their kick-offs."""
    leagues = [season.league_id for season in await followed_seasons(api)]
    async with api.store.connection() as conn:
        cursor = await conn.execute(
            load_query(_PACKAGE, "stale_fixtures"),
            {
                "leagues": leagues,
                "statuses": list(statuses),
                "now": api.now,
                "silence": silence,
                "began": began or min(silence, _HOUR),
                "late": _LATE,
                "lookback": lookback,
                "checks": list(checks),
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
        # Whatever the run is given, a match that may still be in play is not over.
        "threshold": max(_MIN_MATCH, timedelta(hours=float(params.get("threshold_hours", 2)))),
        "lag": timedelta(hours=float(params.get("safety_lag_hours", 3))),
        "limit": int(params.get("max_fixtures_per_run", 1000)),
    }
