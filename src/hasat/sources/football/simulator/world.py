"""A simulated world: leagues, the schedule of their matches, and the API's responses about them."""

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from typing import Any, Final

from hasat.sources.football.simulator.matches import (
    FULL,
    REAL_TIME,
    League,
    Match,
    Moment,
    Tempo,
    club,
    footballer,
)
from hasat.sources.football.states import LIVE

_KICK_OFFS = (12, 15, 17, 19)
# Of a varied world: some matches are in play at midnight UTC.
_MINUTES = (0, 0, 0, 5, 15, 20, 30, 30, 45)
_LAST_HOUR = 23
_YEAR = timedelta(days=364)


@dataclass
class World:
    """Leagues with all matches of the current season and perhaps of previous ones."""

    seed: int
    start: date
    leagues: list[League] = field(default_factory=list)
    matches: dict[int, Match] = field(default_factory=dict)
    by_league: dict[int, list[Match]] = field(default_factory=lambda: defaultdict(list))
    by_day: dict[str, list[Match]] = field(default_factory=lambda: defaultdict(list))
    """The matches of a day, including those moved to it later."""
    seasons: dict[int, tuple[date, date]] = field(default_factory=dict)
    """The first and the last day of each season."""
    tempo: Tempo = REAL_TIME

    def add(self, match: Match) -> None:
        self.matches[match.id] = match
        self.by_league[match.league.id].append(match)
        for moment in {match.kick_off, match.moved_to or match.kick_off}:
            day = moment.date()
            self.by_day[day.isoformat()].append(match)
            first, last = self.seasons[match.season]
            self.seasons[match.season] = first, max(last, day)

    @property
    def season(self) -> int:
        """The current season."""
        return self.start.year

    def matches_of(self, league: int, season: int) -> list[Match]:
        return [match for match in self.by_league[league] if match.season == season]


@dataclass(frozen=True)
class Calendar:
    """The density of a world's schedule."""

    round_days: int = 4
    stagger_days: int = 1
    cup_every: int = 5
    """Every n-th competition is a cup, without a table."""
    odd_percent: int = 4
    """The share of matches that are postponed, abandoned, awarded or cancelled."""
    varied: int = 0
    """Whether matches begin at any time and take 107 to 122 minutes: 1 or 0."""


def make_world(
    seed: int,
    start: datetime,
    leagues: int,
    teams: int = 20,
    calendar: Calendar | None = None,
    tempo: Tempo = REAL_TIME,
    seasons: int = 1,
    names: Sequence[str] = (),
    country: str | None = None,
) -> World:
    """Make leagues in which every team plays every other twice, a round every few days.

    In real time the first day begins at midnight; at another tempo it begins at `start`, and every
    interval after it is shorter by that factor.
    """
    if tempo.speed == 1.0:
        start = start.replace(hour=0, minute=0, second=0, microsecond=0)
    world = World(seed, start.date(), tempo=tempo)
    calendar = calendar or Calendar()
    for number in range(leagues):
        members = tuple(range(1000 * (number + 1), 1000 * (number + 1) + teams))
        is_cup = number % calendar.cup_every == calendar.cup_every - 1
        name = f"{'Cup' if is_cup else 'League'} {number + 1}"
        if number < len(names):
            name = names[number]
        league = League(
            39 + number,
            name,
            country or ("World" if number % 7 == 6 else f"Country {number % 30}"),
            is_cup,
            has_live=number % 6 != 5,
            teams=members,
        )
        world.leagues.append(league)
        stagger = timedelta(days=number % calendar.stagger_days) / tempo.speed
        for ago in range(seasons):
            begins = start - ago * _YEAR
            world.seasons.setdefault(world.season - ago, (begins.date(), begins.date()))
            for match in _matches(league, seed, begins + stagger, world, ago, calendar, tempo):
                world.add(match)
    return world


def _matches(
    league: League,
    seed: int,
    start: datetime,
    world: World,
    ago: int,
    calendar: Calendar,
    tempo: Tempo,
) -> list[Match]:
    """Return the matches of a league in the current season, or `ago` seasons before."""
    season = world.season - ago
    seed_text = f"schedule:{seed}:{league.id}" + (f":{season}" if ago else "")
    dice = random.Random(seed_text)  # noqa: S311 - a simulation
    found = []
    number = league.id * 10_000 + ago * 1_000
    odd = calendar.odd_percent
    for index, pairs in enumerate(_rounds(league.teams)):
        day = timedelta(days=calendar.round_days * index)
        for home, away in pairs:
            number += 1
            hour = timedelta(days=dice.randint(0, 1), hours=dice.choice(_KICK_OFFS))
            full = FULL
            if calendar.varied:
                full = timedelta(minutes=dice.randint(107, 122))
                clock = 60 * dice.randint(min(_KICK_OFFS), _LAST_HOUR) + dice.choice(_MINUTES)
                hour = timedelta(days=hour.days, minutes=clock)
            kick_off = start + (day + hour) / tempo.speed
            fate = dice.choices(
                ("played", "postponed", "abandoned", "awarded", "cancelled"),
                (100 - odd, odd * 0.5, odd * 0.2, odd * 0.15, odd * 0.15),
            )[0]
            moved = kick_off + timedelta(days=9) / tempo.speed if fate == "postponed" else None
            if league.is_cup and fate == "played":
                fate = "cup"
            match = Match(
                number,
                league,
                season,
                index + 1,
                kick_off,
                home,
                away,
                seed,
                moved,
                fate,  # type: ignore[arg-type]
                tempo,
                full,
            )
            found.append(match)
    return found


def _rounds(teams: tuple[int, ...]) -> list[list[tuple[int, int]]]:
    """Return the rounds of a double round-robin by the circle method."""
    circle = list(teams)
    half = len(circle) // 2
    first = []
    for _ in range(len(circle) - 1):
        first.append(list(zip(circle[:half], reversed(circle[half:]), strict=True)))
        circle.insert(1, circle.pop())
    return first + [[(away, home) for home, away in pairs] for pairs in first]


_INJURED_BEFORE: Final = timedelta(days=5)


class BadRequestError(Exception):
    """A request that the API refuses; has the name of the parameter and the message."""


def _timezones(_: World, __: Mapping[str, str], ___: datetime) -> list[Any]:
    return ["Europe/Istanbul", "Europe/London", "UTC"]


def _countries(world: World, _: Mapping[str, str], __: datetime) -> list[Any]:
    names = sorted({league.country for league in world.leagues} | {"World"})
    return [
        {"name": name, "code": None if name == "World" else name[-2:].strip(), "flag": None}
        for name in names
    ]


def _leagues(world: World, parameters: Mapping[str, str], _: datetime) -> list[Any]:
    wanted = parameters.get("id")
    return [_league(world, league) for league in world.leagues if wanted in (None, str(league.id))]


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
                    "top_assists": not league.is_cup,
                    "top_cards": not league.is_cup,
                    "injuries": league.has_live,
                    "predictions": True,
                    "odds": True,
                },
            }
            for year, (start, end) in sorted(world.seasons.items())
        ],
    }


def _teams(world: World, parameters: Mapping[str, str], _: datetime) -> list[Any]:
    league = next((one for one in world.leagues if str(one.id) == parameters.get("league")), None)
    if league is None or int(parameters["season"]) not in world.seasons:
        return []
    return [
        {
            "team": {"id": team, "name": club(team), "country": league.country, "code": None},
            "venue": {"id": team, "name": f"{club(team)} Stadı", "capacity": None},
        }
        for team in league.teams
    ]


def _fixtures(world: World, parameters: Mapping[str, str], now: datetime) -> list[Any]:
    if not parameters:
        raise BadRequestError("required", "At least one parameter is required.")
    if "ids" in parameters or "id" in parameters:
        numbers = [int(one) for one in parameters.get("ids", parameters.get("id", "")).split("-")]
        if len(numbers) > 20:
            raise BadRequestError("ids", "The Ids field must have at most 20 ids.")
        found = [world.matches[one] for one in sorted(numbers) if one in world.matches]
        moments = [match.at(now) for match in found]
        return [{**moment.body(), **moment.blocks()} for moment in moments]
    if "live" in parameters:
        wanted = parameters["live"].split("-")
        return [
            {**moment.body(), "events": moment.blocks()["events"]}
            for moment in _moments(world, {}, now)
            if moment.code in LIVE and (wanted == ["all"] or str(moment.match.league.id) in wanted)
        ]
    return [moment.body() for moment in _moments(world, parameters, now)]


def _moments(world: World, parameters: Mapping[str, str], now: datetime) -> Iterable[Moment]:
    league, season = parameters.get("league"), parameters.get("season")
    matches: Iterable[Match] = world.matches.values()
    if "date" in parameters:
        matches = world.by_day[parameters["date"]]
    elif league is not None and league.isdecimal():
        matches = world.by_league[int(league)]
    for match in matches:
        if league not in (None, str(match.league.id)) or season not in (None, str(match.season)):
            continue
        moment = match.at(now)
        day = moment.kick_off.date().isoformat()
        if parameters.get("date", day) != day:
            continue
        if parameters.get("from", day) <= day <= parameters.get("to", day):
            yield moment


def _head_to_head(world: World, parameters: Mapping[str, str], now: datetime) -> list[Any]:
    pair = {int(team) for team in parameters["h2h"].split("-")}
    return [
        moment.body()
        for moment in _moments(world, {}, now)
        if {moment.match.home, moment.match.away} == pair
    ]


def _block(name: str) -> "_Reader":
    def read(world: World, parameters: Mapping[str, str], now: datetime) -> list[Any]:
        match = world.matches.get(int(parameters.get("fixture", "0")))
        return [] if match is None else match.at(now).blocks()[name]

    return read


def _standings(world: World, parameters: Mapping[str, str], now: datetime) -> list[Any]:
    matches = world.matches_of(int(parameters["league"]), int(parameters["season"]))
    if not matches or matches[0].league.is_cup:
        return []
    results: dict[int, list[tuple[int, int]]] = {team: [] for team in matches[0].league.teams}
    counted = now - world.tempo.tables_after
    for moment in sorted((m.at(counted) for m in matches), key=lambda one: one.match.kick_off):
        home, away = moment.score()
        if moment.is_finished and home is not None and away is not None:
            results[moment.match.home].append((home, away))
            results[moment.match.away].append((away, home))
    lines = [_table_line(team, matches[0].league.name, scores) for team, scores in results.items()]
    lines.sort(key=lambda line: (-line["points"], -line["goalsDiff"], line["team"]["id"]))
    table = [{"rank": rank, **line} for rank, line in enumerate(lines, 1)]
    league = {"id": matches[0].league.id, "season": matches[0].season, "standings": [table]}
    return [{"league": league}]


def _table_line(team: int, group: str, results: Sequence[tuple[int, int]]) -> dict[str, Any]:
    """Return the line of a team from the goals for and against in its matches."""
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


def _injuries(world: World, parameters: Mapping[str, str], now: datetime) -> list[Any]:
    return [
        {
            "player": {
                "id": moment.match.home * 100 + 12,
                "name": footballer(moment.match.home * 100 + 12),
                "type": "Missing Fixture",
                "reason": "Knee Injury",
            },
            "team": {"id": moment.match.home},
            "fixture": moment.body()["fixture"],
            "league": {"id": moment.match.league.id, "season": moment.match.season},
        }
        for moment in _moments(world, parameters, now)
        if moment.match.id % 3 == 0 and moment.match.league.has_live
        if moment.match.kick_off - _INJURED_BEFORE <= now
    ]


def _top_scorers(world: World, parameters: Mapping[str, str], now: datetime) -> list[Any]:
    goals: Counter[tuple[int, int]] = Counter()
    for match in world.matches_of(int(parameters["league"]), int(parameters["season"])):
        moment = match.at(now - world.tempo.tables_after)
        if moment.is_finished:
            goals.update((scorer, team) for _, team, scorer in moment.goals)
    best = sorted(goals.items(), key=lambda pair: (-pair[1], pair[0]))[:20]
    return [
        {
            "player": {"id": player, "name": footballer(player)},
            "statistics": [{"team": {"id": team, "name": club(team)}, "goals": {"total": count}}],
        }
        for (player, team), count in best
    ]


def _team_statistics(world: World, parameters: Mapping[str, str], now: datetime) -> dict[str, Any]:
    team = int(parameters["team"])
    played = [
        moment
        for match in world.matches_of(int(parameters["league"]), int(parameters["season"]))
        if team in (match.home, match.away)
        for moment in [match.at(now - world.tempo.tables_after)]
        if moment.is_finished
    ]
    return {
        "league": {"id": int(parameters["league"]), "season": int(parameters["season"])},
        "team": {"id": team},
        "form": "W" * len(played),
        "fixtures": {"played": {"total": len(played)}},
        "goals": {"for": {"minute": {"0-15": {"total": None}, "": {"total": 0}}}},
    }


_Reader = Callable[[World, Mapping[str, str], datetime], Any]
READERS: Final[dict[str, _Reader]] = {
    "timezone": _timezones,
    "countries": _countries,
    "leagues": _leagues,
    "teams": _teams,
    "fixtures": _fixtures,
    "fixtures/headtohead": _head_to_head,
    "fixtures/events": _block("events"),
    "fixtures/lineups": _block("lineups"),
    "fixtures/statistics": _block("statistics"),
    "fixtures/players": _block("players"),
    "standings": _standings,
    "injuries": _injuries,
    "players/topscorers": _top_scorers,
    "teams/statistics": _team_statistics,
}
