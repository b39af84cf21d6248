"""A simulator of API-Football: a world of leagues with the API's envelope, limits and errors.

Options of the world: `leagues`, `teams`, `seasons`, `season_start` (the first day of the current
season), `round_days` (days between rounds), `stagger_days` (days over which leagues begin),
`cup_every` (every n-th competition is a cup), `odd_percent` (matches not played as planned) and
`varied` (1: matches begin at any time and take 107 to 122 minutes). Limits of the plan: `daily` and
`minute`; requests over the minute's limit are first delayed (up to `queue` of them), then refused,
and the day ends at 00:00 UTC of the simulated clock.
Speed: `tempo` (at 60 a match takes two minutes of the clock), `corrected_share`, `corrected_after`
(hours of a match's time) and `tables_after` (hours until tables and statistics follow).
"""

import asyncio
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from hasat.errors import UsageError
from hasat.messages import msg
from hasat.sim import Simulation, Simulator
from hasat.sources.football.endpoints import find_endpoint
from hasat.sources.football.simulator.matches import REAL_TIME, Tempo
from hasat.sources.football.simulator.optional import simulate_rows, simulated_pages
from hasat.sources.football.simulator.world import (
    READERS,
    BadRequestError,
    Calendar,
    World,
    make_world,
)

KEY: Final = "sim-key"
_QUEUE_SECONDS: Final = 0.2
_MINUTE: Final = "Too many requests. Your rate limit is {limit} requests per minute."
_DAY: Final = (
    "You have reached the request limit for the day, Go to https://dashboard.api-football.com"
    " to upgrade your plan."
)
_DAY_429: Final = (
    "Too many requests. You have reached your daily request limit. Please try again later or"
    " upgrade your plan."
)
_ADDRESS: Final = (
    "This IP is not allowed to call the API, check the list of allowed IPs in the dashboard."
)

FAULTS: Final = {
    "lapsed": "the subscription has ended: every response reports the daily limit",
    "no-headers": "responses have no quota headers",
    "stale-headers": "the headers show a day with hardly any requests",
    "errors-in-200": "status 200 with errors that disappear on the next try",
    "not-in-plan": "status 200: this plan has no access to this season",
    "day-as-429": "the daily limit is reported with status 429 and without headers",
    "minute-as-200": "the minute's limit is reported with status 200",
    "address-refused": "status 200: this address may not call the API",
    "half-list": "every other element of the lists of matches, leagues and countries is missing",
}
_LISTS: Final = ("countries", "fixtures", "leagues", "timezone")


class RequestCounter:
    """Counts requests by minute and day of the simulated clock."""

    def __init__(self, daily: int, minute: int, queue: int) -> None:
        self.daily, self.minute, self.queue = daily, minute, queue
        self.days: Counter[date] = Counter()
        self.minutes: Counter[datetime] = Counter()
        self.over_minute = 0
        self.over_day = 0

    def count(self, now: datetime) -> None:
        self.days[now.date()] += 1
        self.minutes[now.replace(second=0, microsecond=0)] += 1

    def day_left(self, now: datetime) -> int:
        return max(self.daily - self.days[now.date()], 0)

    def minute_left(self, now: datetime) -> int:
        return max(self.minute - self._of_minute(now), 0)

    def queue_left(self, now: datetime) -> int:
        return max(self.minute + self.queue - self._of_minute(now), 0)

    def _of_minute(self, now: datetime) -> int:
        return self.minutes[now.replace(second=0, microsecond=0)]


class SimulatedApi:
    """The API for one world."""

    def __init__(self, simulation: Simulation) -> None:
        options = simulation.options
        self._sim = simulation
        self.counter = RequestCounter(
            daily=int(options.get("daily", 75_000)),
            minute=int(options.get("minute", 450)),
            queue=int(options.get("queue", 10)),
        )
        start = options.get("season_start")
        began = datetime.fromisoformat(str(start)) if start else simulation.clock()
        if began.tzinfo is None:
            began = began.replace(tzinfo=UTC)
        teams = int(options.get("teams", 20))
        if teams < 2 or teams % 2:
            raise UsageError(
                msg("teams must be an even number."), remedy=msg("Use 20, for example.")
            )
        tempo = _tempo(options)
        calendar = Calendar(
            **{
                name: int(options[name])
                for name in ("round_days", "stagger_days", "cup_every", "odd_percent", "varied")
                if name in options
            }
        )
        self.world: World = make_world(
            simulation.seed,
            began,
            int(options.get("leagues", 3)),
            teams,
            calendar,
            tempo,
            int(options.get("seasons", 1)),
            options.get("names", ()),
            options.get("country"),
        )

    async def respond(self, request: Request) -> Response:
        now = self._sim.clock()
        endpoint = request.path_params["endpoint"]
        parameters = dict(request.query_params)
        if request.headers.get("x-apisports-key") != KEY:
            errors = {"token": "Error/Missing application key. Go to the documentation."}
            return self._envelope(endpoint, parameters, errors=errors)
        if endpoint != "status":
            refused = await self._refusal(endpoint, parameters, now)
            if refused is not None:
                return refused
        declared = find_endpoint(endpoint, parameters)
        if endpoint != "status" and endpoint not in READERS and declared is None:
            return self._envelope(
                endpoint, parameters, errors={"endpoint": "This endpoint do not exist."}
            )
        try:
            rows = self.read(endpoint, parameters, now)
        except BadRequestError as error:
            return self._envelope(endpoint, parameters, errors={error.args[0]: error.args[1]})
        except KeyError as error:
            name = str(error.args[0])
            errors = {name: f"The {name.title()} field is required."}
            return self._envelope(endpoint, parameters, errors=errors)
        is_list = endpoint in _LISTS and not parameters.keys() & {"id", "ids"}
        if is_list and self._sim.faults.strikes("half-list"):
            rows = rows[::2]
        pages = simulated_pages(declared) if declared else 1
        return self._envelope(endpoint, parameters, rows, headers=self._headers(now), pages=pages)

    def read(self, endpoint: str, parameters: Mapping[str, str], now: datetime) -> Any:
        """Return the response of an endpoint at a time."""
        if endpoint == "status":
            return _status(self, now)
        declared = find_endpoint(endpoint, parameters)
        if declared is not None and declared.example is not None:
            return simulate_rows(self.world, declared, parameters)
        return READERS[endpoint](self.world, parameters, now)

    async def _refusal(
        self, endpoint: str, parameters: Mapping[str, str], now: datetime
    ) -> Response | None:
        counter, faults = self.counter, self._sim.faults
        lapsed = faults.strikes("lapsed")
        if lapsed or not counter.day_left(now):
            counter.over_day += not lapsed
            if faults.strikes("day-as-429"):
                return self._envelope(
                    endpoint, parameters, errors={"rateLimit": _DAY_429}, status=429
                )
            stale = {"x-ratelimit-requests-remaining": str(counter.daily - 1)}
            return self._envelope(endpoint, parameters, errors={"requests": _DAY}, headers=stale)
        if not counter.minute_left(now):
            counter.over_minute += 1
            # The real API delays requests over the limit before it refuses them.
            await asyncio.sleep(_QUEUE_SECONDS)
            if not counter.queue_left(now):
                errors = {"rateLimit": _MINUTE.format(limit=counter.minute)}
                status = 200 if faults.strikes("minute-as-200") else 429
                return self._envelope(endpoint, parameters, errors=errors, status=status)
        counter.count(now)
        if faults.strikes("address-refused"):
            return self._envelope(endpoint, parameters, errors={"Ip": _ADDRESS})
        if faults.strikes("errors-in-200"):
            return self._envelope(endpoint, parameters, errors={"bug": "Something went wrong."})
        if faults.strikes("not-in-plan"):
            errors = {"plan": "Free plans do not have access to this season."}
            return self._envelope(endpoint, parameters, errors=errors)
        return None

    def _headers(self, now: datetime) -> dict[str, str]:
        counter = self.counter
        if self._sim.faults.strikes("no-headers"):
            return {}
        left = counter.day_left(now)
        if self._sim.faults.strikes("stale-headers"):
            left = counter.daily - 1
        return {
            "x-ratelimit-requests-limit": str(counter.daily),
            "x-ratelimit-requests-remaining": str(left),
            "X-RateLimit-Limit": str(counter.minute),
            "X-RateLimit-Remaining": str(counter.minute_left(now)),
        }

    def _envelope(
        self,
        endpoint: str,
        parameters: Mapping[str, str],
        response: Any = (),
        *,
        errors: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        status: int = 200,
        pages: int = 1,
    ) -> Response:
        rows = response if isinstance(response, dict) else list(response)
        return JSONResponse(
            {
                "get": endpoint,
                "parameters": dict(parameters) or [],
                "errors": dict(errors) if errors else [],
                "results": len(rows),
                "paging": {"current": int(parameters.get("page", "1")), "total": pages},
                "response": rows,
            },
            status,
            headers,
        )

    @property
    def has_lapsed(self) -> bool:
        return any(fault.name == "lapsed" for fault in self._sim.faults.on)


def _tempo(options: Mapping[str, Any]) -> Tempo:
    speed = float(options.get("tempo", REAL_TIME.speed))
    if speed <= 0:
        raise UsageError(msg("tempo must be greater than 0."), remedy=msg("Use 60, for example."))
    after = float(options.get("corrected_after", REAL_TIME.corrected_after / timedelta(hours=1)))
    share = float(options.get("corrected_share", REAL_TIME.corrected_share))
    tables = timedelta(hours=float(options.get("tables_after", 0))) / speed
    return Tempo(speed, share, timedelta(hours=after), tables)


def _status(api: SimulatedApi, now: datetime) -> dict[str, Any]:
    end = now - timedelta(days=1) if api.has_lapsed else now + timedelta(days=30)
    return {
        "account": {"firstname": "-", "lastname": "-", "email": "-"},
        "subscription": {
            "plan": "Ultra",
            "end": end.isoformat(timespec="seconds"),
            "active": not api.has_lapsed,
        },
        "requests": {
            "current": api.counter.days[now.date()],
            "limit_day": api.counter.daily,
        },
    }


def _build(simulation: Simulation) -> Starlette:
    football = SimulatedApi(simulation)
    simulation.inside = football
    return Starlette(routes=[Route("/{endpoint:path}", football.respond)])


FOOTBALL = Simulator("football", msg("API-Football with made-up leagues"), _build, FAULTS)
