"""What optional data cost: requests at first and in a day, before they are switched on."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from hasat.settings import Settings
from hasat.sources.football.endpoints import OPTIONAL, Plan
from hasat.sources.football.jobs.optional import count_units
from hasat.sources.football.jobs.seasons import Season, listed_seasons
from hasat.sources.football.leagues import resolve
from hasat.sources.football.settings import FootballSettings
from hasat.store import Store

_DAY = timedelta(days=1)
_DAYS_AROUND = 14
# A league's match day usually has matches in play for about four hours, asked once a minute.
_LIVE_MINUTES = 240


@dataclass(frozen=True)
class Price:
    """The requests for the data of one endpoint."""

    name: str
    path: str
    summary: str
    unit: str
    units: int
    first: int
    """Requests until everything is there."""
    daily: float
    """Requests in a day after that."""
    share: float
    """Of the day's limit."""
    on: bool


async def load_prices(store: Store, settings: Settings) -> Sequence[Price]:
    """Return the price of every optional endpoint for the followed leagues."""
    football = settings.section(FootballSettings)
    followed = (await resolve(store, football.tracked_leagues)).leagues
    pairs = [(league.id, league.season) for league in followed]
    listed = await listed_seasons(store, [league for league, _ in pairs])
    seasons = [listed.get(pair, Season(*pair)) for pair in pairs]
    now = await store.now()
    prices = []
    for endpoint in OPTIONAL:
        plan = endpoint.plan
        assert plan is not None
        covered = [one for one in seasons if not endpoint.coverage or one.has(*endpoint.coverage)]
        units, match_days = await count_units(store, plan, covered, now)
        daily = _daily(plan, units, match_days / _DAYS_AROUND)
        name = endpoint.option_name
        prices.append(
            Price(
                name,
                f"/{endpoint.name}",
                endpoint.dataset.summary,
                plan.unit,
                units,
                0 if plan.live else units * plan.pages,
                round(daily, 1),
                daily / football.rate_limiter.daily_limit,
                name in football.collect,
            )
        )
    return prices


def _daily(plan: Plan, units: int, match_days: float) -> float:
    """Return the requests in a day; `match_days` are the days with matches of all seasons a day."""
    if plan.live:
        return match_days * _LIVE_MINUTES
    if plan.settle:
        return match_days * len(plan.settle) * plan.pages
    if plan.every is None:
        return units * plan.pages * (_DAY / plan.after if plan.after else 0)
    return units * plan.pages * (_DAY / plan.every)
