"""Matches whose end nobody told: asked for again, and meanwhile marked as probably over.

What is inferred is never written as a fact: it stands in core.fixture_inferences, beside the
mirrored match, and ends when the API says anything about that match.
"""

from collections.abc import Sequence
from datetime import timedelta

from hasat.jobs import Outcome, RunContext
from hasat.sources.football.asking import Api, collects
from hasat.sources.football.details import ask_by_ids, filled
from hasat.sources.football.seasons import followed_seasons
from hasat.sources.football.states import LIVE, MAY_BE_OVER, SCHEDULED
from hasat.store.statements import statement

_ROOM = "hasat.sources.football"
# After kick-off a match is asked for when it may be over, and then ever more rarely.
_LOOKS = tuple(timedelta(minutes=m) for m in (105, 120, 150, 6 * 60, 24 * 60, 48 * 60))


async def auto_finish(context: RunContext) -> Outcome:
    """Mark matches as probably over; with `try_fetch_first`, ask for them before that."""
    if context.params.get("try_fetch_first"):
        asked = await collects(_fetch_candidates)(context)
        if asked.kind == "out_of_quota":
            context.log.info("no requests left: matches are only marked")
    values = {
        **_thresholds(context),
        "leagues": [league.id for league in context.settings.football.tracked_leagues],
        "statuses": list(MAY_BE_OVER),
        "dry_run": bool(context.params.get("dry_run", False)),
    }
    async with context.store.connection() as conn:
        cursor = await conn.execute(statement(_ROOM, "infer_finished"), values)
        row = await cursor.fetchone()
        assert row is not None
    return Outcome("done" if row[0] else "nothing", row[0])


async def verify(api: Api) -> None:
    """Ask for matches that were marked as over, until the API has answered."""
    settings = api.settings.verification
    async with api.store.connection() as conn:
        cursor = await conn.execute(
            statement(_ROOM, "take_inferred"),
            {
                "attempts": settings.max_attempts,
                "cooldown": timedelta(hours=settings.cooldown_hours),
                "limit": filled(200),
            },
        )
        due = [fixture for (fixture,) in await cursor.fetchall()]
    await ask_by_ids(api, due)


async def stale_live(api: Api) -> None:
    """Matches that were told as being played, and of which nothing was heard for a while."""
    silence = timedelta(minutes=int(api.params.get("stale_threshold_minutes", 15)))
    await ask_by_ids(api, await _silent(api, LIVE, silence, timedelta(days=30)))


async def stale_scheduled(api: Api) -> None:
    """Matches that should have begun, asked for when they may be over."""
    silence = timedelta(minutes=int(api.params.get("stale_threshold_minutes", 60)))
    lookback = timedelta(days=int(api.params.get("lookback_days", 3)))
    await ask_by_ids(api, await _silent(api, SCHEDULED, silence, lookback))


async def _silent(
    api: Api, statuses: Sequence[str], silence: timedelta, lookback: timedelta
) -> list[int]:
    """Matches in one of these states that are due for another look."""
    leagues = [season.league_id for season in await followed_seasons(api)]
    async with api.store.connection() as conn:
        cursor = await conn.execute(
            statement(_ROOM, "silent_fixtures"),
            {
                "leagues": leagues,
                "statuses": list(statuses),
                "now": api.now,
                "silence": silence,
                "lookback": lookback,
                "looks": list(_LOOKS),
                "limit": filled(int(api.params.get("batch_size", 20))),
            },
        )
        return [fixture for (fixture,) in await cursor.fetchall()]


async def _fetch_candidates(api: Api) -> None:
    leagues = [league.id for league in api.leagues]
    values = {**_thresholds(api.context), "leagues": leagues, "statuses": list(MAY_BE_OVER)}
    async with api.store.connection() as conn:
        cursor = await conn.execute(statement(_ROOM, "may_be_over"), values)
        due = [fixture for (fixture,) in await cursor.fetchall()]
    await ask_by_ids(api, due)


def _thresholds(context: RunContext) -> dict[str, object]:
    params = context.params
    return {
        "threshold": timedelta(hours=float(params.get("threshold_hours", 2))),
        "lag": timedelta(hours=float(params.get("safety_lag_hours", 3))),
        "limit": int(params.get("max_fixtures_per_run", 1000)),
    }
