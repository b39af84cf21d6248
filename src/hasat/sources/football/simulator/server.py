"""API-Football: a world of leagues behind the real one's envelope, limits and ways to refuse.

`leagues`, `teams` and `seasons` make the world, `season_start` the first day of the season that is
played; a round is every `round_days`, leagues begin over `stagger_days`, one in `cup_every` is a
cup, `odd_percent` of the matches are not played as planned. `daily` and `minute` are the plan's
limits: over a minute's limit requests are first delayed (`queue` of them), then refused; the day
turns at 00:00 UTC of the simulated clock. `tempo` (60: a match takes two minutes of the clock, a
day 24), `corrected_share` and `corrected_after` (hours of a match's time) hurry the world on;
tables, scorers and teams' statistics follow `tables_after` hours later.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from hasat.errors import UsageError
from hasat.messages import msg
from hasat.sim import Simulation, Simulator
from hasat.sources.football.simulator.names import club
from hasat.sources.football.simulator.world import (
    AS_IN_LIFE,
    Calendar,
    League,
    Match,
    Moment,
    Tempo,
    World,
    make_world,
)

KEY: Final = "sim-key"
_QUEUE_SECONDS: Final = 0.2
_INJURED_BEFORE: Final = timedelta(days=5)
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
    "lapsed": "the subscription has ended: every answer is the day's limit",
    "no-headers": "answers carry no quota headers",
    "stale-headers": "the headers show a day that has hardly begun",
    "errors-in-200": "status 200 with errors that go away when asked again",
    "not-in-plan": "status 200: this plan has no access to this season",
    "day-as-429": "the day's limit is told by status 429 without headers",
    "minute-as-200": "the minute's limit is told with status 200",
    "address-refused": "status 200: this address may not call the API",
}


class Counting:
    """How many requests a minute and a day of the simulated clock have seen."""

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


class Football:
    """The API over one world."""

    def __init__(self, simulation: Simulation) -> None:
        options = simulation.options
        self._sim = simulation
        self.counting = Counting(
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
        self.tempo = _tempo(options)
        calendar = Calendar(
            **{
                name: int(options[name])
                for name in ("round_days", "stagger_days", "cup_every", "odd_percent")
                if name in options
            }
        )
        self.world: World = make_world(
            simulation.seed,
            began,
            int(options.get("leagues", 3)),
            teams,
            calendar,
            self.tempo,
            int(options.get("seasons", 1)),
        )

    async def answer(self, request: Request) -> Response:
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
        if endpoint not in _READERS:
            return self._envelope(
                endpoint, parameters, errors={"endpoint": "This endpoint do not exist."}
            )
        try:
            rows = self.read(endpoint, parameters, now)
        except _AskedWronglyError as error:
            return self._envelope(endpoint, parameters, errors={error.args[0]: error.args[1]})
        except KeyError as error:
            name = str(error.args[0])
            errors = {name: f"The {name.title()} field is required."}
            return self._envelope(endpoint, parameters, errors=errors)
        return self._envelope(endpoint, parameters, rows, headers=self._headers(now))

    def read(self, endpoint: str, parameters: Mapping[str, str], now: datetime) -> Any:
        """What an endpoint would answer at a moment."""
        return _READERS[endpoint](self, parameters, now)

    async def _refusal(
        self, endpoint: str, parameters: Mapping[str, str], now: datetime
    ) -> Response | None:
        counting, faults = self.counting, self._sim.faults
        lapsed = faults.strikes("lapsed")
        if lapsed or not counting.day_left(now):
            counting.over_day += not lapsed
            if faults.strikes("day-as-429"):
                return self._envelope(
                    endpoint, parameters, errors={"rateLimit": _DAY_429}, status=429
                )
            stale = {"x-ratelimit-requests-remaining": str(counting.daily - 1)}
            return self._envelope(endpoint, parameters, errors={"requests": _DAY}, headers=stale)
        if not counting.minute_left(now):
            counting.over_minute += 1
            # The real one keeps whoever asks too fast waiting before it refuses.
            await asyncio.sleep(_QUEUE_SECONDS)
            if not counting.queue_left(now):
                errors = {"rateLimit": _MINUTE.format(limit=counting.minute)}
                status = 200 if faults.strikes("minute-as-200") else 429
                return self._envelope(endpoint, parameters, errors=errors, status=status)
        counting.count(now)
        if faults.strikes("address-refused"):
            return self._envelope(endpoint, parameters, errors={"Ip": _ADDRESS})
        if faults.strikes("errors-in-200"):
            return self._envelope(endpoint, parameters, errors={"bug": "Something went wrong."})
        if faults.strikes("not-in-plan"):
            errors = {"plan": "Free plans do not have access to this season."}
            return self._envelope(endpoint, parameters, errors=errors)
        return None

    def _headers(self, now: datetime) -> dict[str, str]:
        counting = self.counting
        if self._sim.faults.strikes("no-headers"):
            return {}
        left = counting.day_left(now)
        if self._sim.faults.strikes("stale-headers"):
            left = counting.daily - 1
        return {
            "x-ratelimit-requests-limit": str(counting.daily),
            "x-ratelimit-requests-remaining": str(left),
            "X-RateLimit-Limit": str(counting.minute),
            "X-RateLimit-Remaining": str(counting.minute_left(now)),
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
    ) -> Response:
        told = response if isinstance(response, dict) else list(response)
        return JSONResponse(
            {
                "get": endpoint,
                "parameters": dict(parameters) or [],
                "errors": dict(errors) if errors else [],
                "results": len(told),
                "paging": {"current": 1, "total": 1},
                "response": told,
            },
            status,
            headers,
        )

    @property
    def has_lapsed(self) -> bool:
        return any(fault.name == "lapsed" for fault in self._sim.faults.on)

    def matches_of(self, league: int, season: int) -> list[Match]:
        return [match for match in self.world.by_league[league] if match.season == season]


def _tempo(options: Mapping[str, Any]) -> Tempo:
    speed = float(options.get("tempo", AS_IN_LIFE.speed))
    if speed <= 0:
        raise UsageError(msg("tempo must be greater than 0."), remedy=msg("Use 60, for example."))
    after = float(options.get("corrected_after", AS_IN_LIFE.corrected_after / timedelta(hours=1)))
    share = float(options.get("corrected_share", AS_IN_LIFE.corrected_share))
    tables = timedelta(hours=float(options.get("tables_after", 0))) / speed
    return Tempo(speed, share, timedelta(hours=after), tables)


class _AskedWronglyError(Exception):
    """The name of a parameter and what is wrong with it."""


def _timezones(_: Football, __: Mapping[str, str], ___: datetime) -> list[Any]:
    return ["Europe/Istanbul", "Europe/London", "UTC"]


def _countries(api: Football, _: Mapping[str, str], __: datetime) -> list[Any]:
    names = sorted({league.country for league in api.world.leagues} | {"World"})
    return [
        {"name": name, "code": None if name == "World" else name[-2:].strip(), "flag": None}
        for name in names
    ]


def _leagues(api: Football, asked: Mapping[str, str], _: datetime) -> list[Any]:
    wanted = asked.get("id")
    return [
        _league(api.world, league)
        for league in api.world.leagues
        if wanted in (None, str(league.id))
    ]


def _league(world: World, league: League) -> dict[str, Any]:
    flags = ("events", "lineups", "statistics_fixtures", "statistics_players")
    return {
        "league": {
            "id": league.id,
            "name": league.name,
            "type": "Cup" if league.is_cup else "League",
            "logo": "",
        },
        "country": {"name": league.country, "code": None, "flag": None},
        "seasons": [
            {
                "year": year,
                "start": start.isoformat(),
                "end": end.isoformat(),
                "current": year == world.season,
                "coverage": {
                    "fixtures": dict.fromkeys(flags, league.has_live),
                    "standings": not league.is_cup,
                    "players": True,
                    "top_scorers": not league.is_cup,
                    "top_assists": False,
                    "top_cards": False,
                    "injuries": league.has_live,
                    "predictions": False,
                    "odds": False,
                },
            }
            for year, (start, end) in sorted(world.seasons.items())
        ],
    }


def _teams(api: Football, asked: Mapping[str, str], _: datetime) -> list[Any]:
    league = next((one for one in api.world.leagues if str(one.id) == asked.get("league")), None)
    if league is None or int(asked["season"]) not in api.world.seasons:
        return []
    return [
        {
            "team": {"id": team, "name": club(team), "country": league.country, "code": None},
            "venue": {"id": team, "name": f"{club(team)} Stadı", "capacity": None},
        }
        for team in league.teams
    ]


def _fixtures(api: Football, asked: Mapping[str, str], now: datetime) -> list[Any]:
    if not asked:
        raise _AskedWronglyError("required", "At least one parameter is required.")
    if "ids" in asked or "id" in asked:
        numbers = [int(one) for one in asked.get("ids", asked.get("id", "")).split("-")]
        if len(numbers) > 20:
            raise _AskedWronglyError("ids", "The Ids field must have at most 20 ids.")
        found = [api.world.matches[one] for one in sorted(numbers) if one in api.world.matches]
        moments = [match.at(now) for match in found]
        return [{**moment.body(), **moment.blocks()} for moment in moments]
    return [moment.body() for moment in _moments(api, asked, now)]


def _moments(api: Football, asked: Mapping[str, str], now: datetime) -> Iterable[Moment]:
    league, season = asked.get("league"), asked.get("season")
    matches: Iterable[Match] = api.world.matches.values()
    if "date" in asked:
        matches = api.world.by_day[asked["date"]]
    elif league is not None and league.isdecimal():
        matches = api.world.by_league[int(league)]
    for match in matches:
        if league not in (None, str(match.league.id)) or season not in (None, str(match.season)):
            continue
        moment = match.at(now)
        day = moment.kick_off.date().isoformat()
        if asked.get("date", day) != day:
            continue
        if asked.get("from", day) <= day <= asked.get("to", day):
            yield moment


def _block(name: str) -> "_Reader":
    def read(api: Football, asked: Mapping[str, str], now: datetime) -> list[Any]:
        match = api.world.matches.get(int(asked.get("fixture", "0")))
        return [] if match is None else match.at(now).blocks()[name]

    return read


def _standings(api: Football, asked: Mapping[str, str], now: datetime) -> list[Any]:
    matches = api.matches_of(int(asked["league"]), int(asked["season"]))
    if not matches or matches[0].league.is_cup:
        return []
    results: dict[int, list[tuple[int, int]]] = {team: [] for team in matches[0].league.teams}
    counted = now - api.tempo.tables_after
    for moment in sorted((m.at(counted) for m in matches), key=lambda one: one.match.kick_off):
        home, away = moment.score()
        if moment.is_finished and home is not None and away is not None:
            results[moment.match.home].append((home, away))
            results[moment.match.away].append((away, home))
    lines = [_table_line(team, matches[0].league.name, told) for team, told in results.items()]
    lines.sort(key=lambda line: (-line["points"], -line["goalsDiff"], line["team"]["id"]))
    table = [{"rank": rank, **line} for rank, line in enumerate(lines, 1)]
    league = {"id": matches[0].league.id, "season": matches[0].season, "standings": [table]}
    return [{"league": league}]


def _table_line(team: int, group: str, results: Sequence[tuple[int, int]]) -> dict[str, Any]:
    """What a table says of a team, from the goals for and against in its matches."""
    form = "".join("WDL"[(own <= other) + (own < other)] for own, other in results)
    scored, conceded = sum(own for own, _ in results), sum(other for _, other in results)
    return {
        "team": {"id": team, "name": club(team)},
        "points": 3 * form.count("W") + form.count("D"),
        "goalsDiff": scored - conceded,
        "group": group,
        "form": form[-5:],
        "all": {
            "played": len(form),
            "win": form.count("W"),
            "draw": form.count("D"),
            "lose": form.count("L"),
            "goals": {"for": scored, "against": conceded},
        },
    }


def _injuries(api: Football, asked: Mapping[str, str], now: datetime) -> list[Any]:
    return [
        {
            "player": {
                "id": moment.match.home * 100 + 12,
                "name": "P12",
                "type": "Missing Fixture",
                "reason": "Knee Injury",
            },
            "team": {"id": moment.match.home},
            "fixture": moment.body()["fixture"],
            "league": {"id": moment.match.league.id, "season": moment.match.season},
        }
        for moment in _moments(api, asked, now)
        if moment.match.id % 3 == 0 and moment.match.league.has_live
        if moment.match.kick_off - _INJURED_BEFORE <= now
    ]


def _top_scorers(api: Football, asked: Mapping[str, str], now: datetime) -> list[Any]:
    goals: Counter[tuple[int, int]] = Counter()
    for match in api.matches_of(int(asked["league"]), int(asked["season"])):
        moment = match.at(now - api.tempo.tables_after)
        if moment.is_finished:
            goals.update((scorer, team) for _, team, scorer in moment.goals)
    best = sorted(goals.items(), key=lambda pair: (-pair[1], pair[0]))[:20]
    return [
        {
            "player": {"id": player, "name": f"P{player % 100}"},
            "statistics": [{"team": {"id": team}, "goals": {"total": count}}],
        }
        for (player, team), count in best
    ]


def _team_statistics(api: Football, asked: Mapping[str, str], now: datetime) -> dict[str, Any]:
    team = int(asked["team"])
    played = [
        moment
        for match in api.matches_of(int(asked["league"]), int(asked["season"]))
        if team in (match.home, match.away)
        for moment in [match.at(now - api.tempo.tables_after)]
        if moment.is_finished
    ]
    return {
        "league": {"id": int(asked["league"]), "season": int(asked["season"])},
        "team": {"id": team},
        "form": "W" * len(played),
        "fixtures": {"played": {"total": len(played)}},
        "goals": {"for": {"minute": {"0-15": {"total": None}, "": {"total": 0}}}},
    }


def _status(api: Football, _: Mapping[str, str], now: datetime) -> dict[str, Any]:
    end = now - timedelta(days=1) if api.has_lapsed else now + timedelta(days=30)
    return {
        "account": {"firstname": "-", "lastname": "-", "email": "-"},
        "subscription": {
            "plan": "Ultra",
            "end": end.isoformat(timespec="seconds"),
            "active": not api.has_lapsed,
        },
        "requests": {
            "current": api.counting.days[now.date()],
            "limit_day": api.counting.daily,
        },
    }


_Reader = Callable[[Football, Mapping[str, str], datetime], Any]
_READERS: Final[dict[str, _Reader]] = {
    "timezone": _timezones,
    "countries": _countries,
    "leagues": _leagues,
    "teams": _teams,
    "fixtures": _fixtures,
    "fixtures/events": _block("events"),
    "fixtures/lineups": _block("lineups"),
    "fixtures/statistics": _block("statistics"),
    "fixtures/players": _block("players"),
    "standings": _standings,
    "injuries": _injuries,
    "players/topscorers": _top_scorers,
    "teams/statistics": _team_statistics,
    "status": _status,
}


def _build(simulation: Simulation) -> Starlette:
    football = Football(simulation)
    simulation.inside = football
    return Starlette(routes=[Route("/{endpoint:path}", football.answer)])


FOOTBALL = Simulator("football", "API-Football over a world of leagues", _build, FAULTS)
