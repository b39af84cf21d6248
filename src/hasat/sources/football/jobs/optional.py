"""Jobs for optional data: what the operator switched on, by the plan of each endpoint."""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from psycopg import sql
from psycopg.types.json import Jsonb

from hasat.errors import UsageError
from hasat.jobs.catalogue import did_you_mean
from hasat.messages import msg
from hasat.sources.football.client import FootballClient
from hasat.sources.football.endpoints import OPTION_NAMES, OPTIONAL, Endpoint, Plan
from hasat.sources.football.ingest.envelope import read_envelope
from hasat.sources.football.jobs.seasons import Season, followed_seasons, refusals_since
from hasat.sources.football.states import FINISHED
from hasat.store import Store
from hasat.store.queries import load_query

_PACKAGE = "hasat.sources.football"
# More than this in one run would keep other jobs of the lane waiting.
_MAX_UNITS_PER_RUN = 50
_MINUTE_SECONDS = 60
_NEVER = timedelta(days=36_500)


async def collect(api: FootballClient) -> None:
    """Fetch the due units of every endpoint that is switched on, or of the one that was named."""
    named = api.params.get("dataset")
    names = [named] if named else list(api.settings.collect)
    if named and named not in OPTION_NAMES:
        raise UsageError(
            msg("{name!r} is not one of the optional data.", name=named),
            remedy=did_you_mean(named, OPTION_NAMES, otherwise=", ".join(OPTION_NAMES)),
        )
    endpoints = _chosen(names, live=False)
    if not endpoints:
        api.report_idle(msg("No optional data are switched on. Set football.collect."))
        return
    seasons = await followed_seasons(api)
    for endpoint in endpoints:
        assert endpoint.plan is not None
        await _collect(api, endpoint, endpoint.plan, seasons)
    if not api.requests:
        api.report_idle(msg("All optional data are up to date."))


async def live(api: FootballClient) -> None:
    """Fetch the matches in play, and their odds if switched on, several times in a minute."""
    seasons = await followed_seasons(api)
    endpoints = _chosen(api.settings.collect, live=True)
    interval = int(api.params["interval_seconds"])
    for tick in range(max(1, _MINUTE_SECONDS // interval)):
        if tick:
            await asyncio.sleep(interval)
        units = await _due(api, None, Plan("league", timedelta(0)), seasons)
        if not units:
            api.report_idle(msg("No followed match is in play."))
            return
        # One request for all leagues.
        leagues = "-".join(params["league"] for params, _ in units)
        await api.load(await api.fetch("fixtures", live=leagues))
        if tick == 0:
            for endpoint in endpoints:
                for params, page in units:
                    await _fetch(api, endpoint, params, page)


def _chosen(names: Sequence[str], *, live: bool) -> list[Endpoint]:
    return [
        endpoint
        for endpoint in OPTIONAL
        if endpoint.option_name in names and endpoint.plan and endpoint.plan.live == live
    ]


async def _collect(
    api: FootballClient, endpoint: Endpoint, plan: Plan, seasons: Sequence[Season]
) -> None:
    covered = [one for one in seasons if not endpoint.coverage or one.has(*endpoint.coverage)]
    units, _ = await count_units(api.store, plan, covered, api.now)
    async with api.store.connection() as conn:
        await conn.execute(
            load_query(_PACKAGE, "record_collection"), {"endpoint": endpoint.name, "units": units}
        )
    due = await _due(api, endpoint, plan, covered)
    for number, (params, page) in enumerate(due):
        await api.progress(number, len(due), endpoint.path)
        await _fetch(api, endpoint, params, page)


async def _due(
    api: FootballClient, endpoint: Endpoint | None, plan: Plan, seasons: Sequence[Season]
) -> list[tuple[Mapping[str, str], int]]:
    """Return the parameters of due units, each with the page to continue at."""
    values = {
        **unit_values(plan, seasons, api.now),
        "endpoint": endpoint.name if endpoint else "",
        "every": plan.every or _NEVER,
        "settle": list(plan.settle),
        "refused_since": refusals_since(api),
        "named": api.is_named or endpoint is None,
        "limit": None if api.is_named else _MAX_UNITS_PER_RUN,
    }
    async with api.store.connection() as conn:
        cursor = await conn.execute(_with_units("due_units", plan), values)
        return [(params, page) for params, page in await cursor.fetchall()]


async def _fetch(
    api: FootballClient, endpoint: Endpoint, params: Mapping[str, str], page: int
) -> None:
    """Fetch all pages of a unit; a killed run continues at the page it had reached."""
    while True:
        paging = {"page": page} if page > 1 else {}
        response = await api.fetch(endpoint.path, **params, **endpoint.fixed, **paging)
        if not await api.load(response) or response is None:
            if api.refusal is not None:
                await _record(api, "record_not_collected", endpoint, params)
            return
        envelope = read_envelope(response.body, response.parsed)
        # An empty page ends a unit, however many pages the API claims to have.
        last = page >= envelope.pages or not envelope.row_count
        page += 1
        await _record(api, "record_collected", endpoint, params, next_page=None if last else page)
        if last:
            return


async def _record(
    api: FootballClient, query: str, endpoint: Endpoint, params: Mapping[str, str], **values: Any
) -> None:
    async with api.store.connection() as conn:
        await conn.execute(
            load_query(_PACKAGE, query),
            {"endpoint": endpoint.name, "params": Jsonb(dict(params)), **values},
        )


async def count_units(
    store: Store, plan: Plan, seasons: Sequence[Season], now: Any
) -> tuple[int, int]:
    """Return how many units a plan has now, and how many match days the two weeks around now."""
    async with store.connection() as conn:
        cursor = await conn.execute(
            _with_units("count_units", plan), unit_values(plan, seasons, now)
        )
        row = await cursor.fetchone()
    assert row is not None
    return row[0], row[1]


def unit_values(plan: Plan, seasons: Sequence[Season], now: Any) -> dict[str, Any]:
    return {
        "leagues": [season.league_id for season in seasons],
        "seasons": [season.year for season in seasons],
        "finished": list(FINISHED),
        "now": now,
        "before": plan.before,
        "after": plan.after,
    }


def _with_units(query: str, plan: Plan) -> sql.Composed:
    units = sql.SQL(load_query(_PACKAGE, f"units_{plan.unit}"))
    return sql.SQL(load_query(_PACKAGE, query)).format(units=units)
