"""A world of leagues: who plays whom and when, what happens, and what is corrected days later.

Everything about a match follows from its number and the seed, so that any moment of the world can
be told without having lived through the moments before.
"""

import random
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from functools import cached_property
from typing import Any, Literal

from hasat.sources.football.simulator.names import club

Fate = Literal["played", "cup", "postponed", "abandoned", "awarded", "cancelled"]
HALF = timedelta(minutes=47)
BREAK = timedelta(minutes=15)
# The last whistle, after added time.
FULL = HALF + BREAK + HALF + timedelta(minutes=3)
EXTRA = FULL + timedelta(minutes=50)
TOLD_LATE_AFTER = timedelta(hours=40)
_KICK_OFFS = (12, 15, 17, 19)
_NOTHING = timedelta(0)
_YEAR = timedelta(days=364)


@dataclass(frozen=True)
class Tempo:
    """How fast a world lives from its first midnight on, and how often it corrects itself.

    Tables, scorers and teams' statistics are as they were `tables_after` before.
    """

    speed: float = 1.0
    corrected_share: float = 0.03
    corrected_after: timedelta = timedelta(days=2)
    tables_after: timedelta = timedelta(0)


AS_IN_LIFE = Tempo()


@dataclass(frozen=True)
class League:
    """A league or a cup; one without live events tells results a day or two later."""

    id: int
    name: str
    country: str
    is_cup: bool
    has_live: bool
    teams: tuple[int, ...]


@dataclass(frozen=True)
class Match:
    """One match, and everything that will ever be true about it."""

    id: int
    league: League
    season: int
    round: int
    kick_off: datetime
    home: int
    away: int
    seed: int
    moved_to: datetime | None = None
    fate: Fate = "played"
    tempo: Tempo = AS_IN_LIFE

    @cached_property
    def goals(self) -> list[tuple[int, int, int]]:
        """Minute, team and scorer of every goal; the last may be withdrawn later."""
        dice = random.Random(f"goals:{self.seed}:{self.id}")  # noqa: S311 - a simulation
        return sorted(
            (dice.randint(1, 90), team, team * 100 + dice.randint(1, 11))
            for team in (self.home, self.away)
            for _ in range(dice.choices((0, 1, 2, 3, 4), (25, 34, 22, 13, 6))[0])
        )

    @cached_property
    def is_corrected(self) -> bool:
        """Whether a goal turns out to be none, days later."""
        dice = random.Random(f"fix:{self.seed}:{self.id}")  # noqa: S311 - a simulation
        return bool(self.goals) and dice.random() < self.tempo.corrected_share

    def at(self, now: datetime) -> "Moment":
        """The match as it is told at a moment."""
        kick_off, played = self.kick_off, self._since(self.kick_off, now)
        if played < _NOTHING:
            return Moment(self, kick_off, "NS", None)
        if self.fate == "postponed" and self.moved_to is not None:
            if played < timedelta(hours=20):
                return Moment(self, kick_off, "PST", None)
            kick_off, played = self.moved_to, self._since(self.moved_to, now)
        if self.fate == "cancelled":
            return Moment(self, kick_off, "CANC", None)
        if self.fate == "awarded" and played >= timedelta(hours=24):
            return Moment(self, kick_off, "AWD", None, awarded=True)
        if self.fate == "awarded" or played < _NOTHING:
            return Moment(self, kick_off, "NS", None)
        if not self.league.has_live:
            over = played > TOLD_LATE_AFTER
            return Moment(self, kick_off, "FT" if over else "NS", 90 if over else None)
        if self.fate == "abandoned" and played > HALF:
            later = played > timedelta(days=1)
            return Moment(self, kick_off, "ABD" if later else "SUSP", 45)
        if self.fate == "cup" and played > FULL:
            return self._after_extra_time(kick_off, played)
        return self._in_ninety(kick_off, played)

    def _since(self, kick_off: datetime, now: datetime) -> timedelta:
        return (now - kick_off) * self.tempo.speed

    def _in_ninety(self, kick_off: datetime, played: timedelta) -> "Moment":
        minute = int(played.total_seconds() // 60)
        if played < HALF:
            return Moment(self, kick_off, "1H", min(minute + 1, 45))
        if played < HALF + BREAK:
            return Moment(self, kick_off, "HT", 45)
        if played < FULL:
            return Moment(self, kick_off, "2H", min(minute - 61 + 45, 90))
        corrected = self.is_corrected and played > self.tempo.corrected_after
        return Moment(self, kick_off, "FT", 90, corrected=corrected)

    def _after_extra_time(self, kick_off: datetime, played: timedelta) -> "Moment":
        teams = [team for _, team, _ in self.goals]
        if teams.count(self.home) != teams.count(self.away):
            return Moment(self, kick_off, "FT", 90)
        if played < EXTRA:
            return Moment(self, kick_off, "ET", 105)
        return Moment(self, kick_off, "PEN", 120)


@dataclass(frozen=True)
class Moment:
    """A match at one moment, in the API's own form."""

    match: Match
    kick_off: datetime
    code: str
    elapsed: int | None
    corrected: bool = False
    awarded: bool = False

    @property
    def is_finished(self) -> bool:
        return self.code in ("FT", "AET", "PEN")

    @cached_property
    def goals(self) -> list[tuple[int, int, int]]:
        """Those scored so far and not withdrawn."""
        if self.elapsed is None:
            return []
        found = [goal for goal in self.match.goals if goal[0] <= self.elapsed]
        return found[:-1] if self.corrected else found

    def score(self) -> tuple[int | None, int | None]:
        if self.awarded:
            return 3, 0
        if self.elapsed is None:
            return None, None
        teams = [team for _, team, _ in self.goals]
        return teams.count(self.match.home), teams.count(self.match.away)

    def body(self) -> dict[str, Any]:
        """The element of /fixtures."""
        match, (home, away) = self.match, self.score()
        none = {"home": None, "away": None}
        told = {"home": home, "away": away}
        return {
            "fixture": {
                "id": match.id,
                "referee": None,
                "timezone": "UTC",
                "date": self.kick_off.isoformat(),
                "timestamp": int(self.kick_off.timestamp()),
                "periods": {"first": None, "second": None},
                "venue": {"id": None, "name": f"{club(match.home)} Stadı", "city": "Town"},
                "status": {
                    "long": self.code,
                    "short": self.code,
                    "elapsed": self.elapsed,
                    "extra": None,
                },
            },
            "league": {
                "id": match.league.id,
                "name": match.league.name,
                "country": match.league.country,
                "logo": "",
                "flag": None,
                "season": match.season,
                "round": f"Regular Season - {match.round}",
            },
            "teams": {
                "home": _side(match.home, home, away),
                "away": _side(match.away, away, home),
            },
            "goals": told,
            "score": {
                "halftime": told if self.elapsed and self.elapsed >= 45 else none,
                "fulltime": told if self.is_finished or self.awarded else none,
                "extratime": {"home": 0, "away": 0} if self.code == "PEN" else none,
                "penalty": {"home": 5, "away": 4} if self.code == "PEN" else none,
            },
        }

    def blocks(self) -> dict[str, list[Any]]:
        """Events, line-ups, statistics and players, as far as there are any yet."""
        if self.elapsed is None:
            return {"events": [], "lineups": [], "statistics": [], "players": []}
        sides = (self.match.home, self.match.away)
        return {
            "events": [_goal(*goal) for goal in self.goals],
            "lineups": [_lineup(team) for team in sides],
            "statistics": [self._statistics(team) for team in sides],
            "players": [self._players(team) for team in sides],
        }

    def _statistics(self, team: int) -> dict[str, Any]:
        goals = sum(scored == team for _, scored, _ in self.goals)
        return {
            "team": _team(team),
            "statistics": [
                {"type": "Shots on Goal", "value": goals + 2},
                {"type": "Ball Possession", "value": "50%"},
                {"type": "expected_goals", "value": f"{goals * 0.9:.2f}"},
                {"type": "Red Cards", "value": None},
            ],
        }

    def _players(self, team: int) -> dict[str, Any]:
        players = [
            {
                "player": {"id": team * 100 + n if n < 11 else 0, "name": f"P{n}", "photo": ""},
                "statistics": [{"games": {"minutes": self.elapsed, "rating": "7.1"}}],
            }
            for n in range(1, 13)
        ]
        return {
            "team": {**_team(team), "update": self.kick_off.isoformat()},
            "players": players,
        }


def _side(team: int, own: int | None, other: int | None) -> dict[str, Any]:
    winner = None if own is None or other is None or own == other else own > other
    return {**_team(team), "winner": winner}


def _team(team: int) -> dict[str, Any]:
    return {"id": team, "name": club(team), "logo": ""}


def _goal(minute: int, team: int, scorer: int) -> dict[str, Any]:
    return {
        "time": {"elapsed": minute, "extra": None},
        "team": _team(team),
        "player": {"id": scorer, "name": f"P{scorer % 100}"},
        "assist": {"id": None, "name": None},
        "type": "Goal",
        "detail": "Normal Goal",
        "comments": None,
    }


def _lineup(team: int) -> dict[str, Any]:
    player = [
        {"player": {"id": team * 100 + n, "name": f"P{n}", "number": n, "pos": "M", "grid": None}}
        for n in range(1, 12)
    ]
    return {
        "team": {**_team(team), "colors": None},
        "coach": {"id": None, "name": None, "photo": ""},
        "formation": "4-4-2",
        "startXI": player,
        "substitutes": [],
    }


@dataclass
class World:
    """Leagues with all matches of a season that begins on a day, and perhaps of those before it."""

    seed: int
    start: date
    leagues: list[League] = field(default_factory=list)
    matches: dict[int, Match] = field(default_factory=dict)
    by_league: dict[int, list[Match]] = field(default_factory=lambda: defaultdict(list))
    by_day: dict[str, list[Match]] = field(default_factory=lambda: defaultdict(list))
    """Those that are on a day, or will have been moved to it."""
    seasons: dict[int, tuple[date, date]] = field(default_factory=dict)
    """The first and the last day of each."""

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
        """The one that is played."""
        return self.start.year


@dataclass(frozen=True)
class Calendar:
    """How dense a world is: days between two rounds, over how many of them leagues are spread."""

    round_days: int = 4
    stagger_days: int = 1
    cup_every: int = 5
    """One competition in so many is a cup, without a table."""
    odd_percent: int = 4
    """So many matches are postponed, abandoned, awarded or cancelled."""


def make_world(
    seed: int,
    start: datetime,
    leagues: int,
    teams: int = 20,
    calendar: Calendar | None = None,
    tempo: Tempo = AS_IN_LIFE,
    seasons: int = 1,
) -> World:
    """Leagues in which everybody plays everybody twice, a round every few days.

    As in life the first day begins at midnight; at another tempo it begins at `start`, and every
    time in the world is so many times nearer to it.
    """
    if tempo.speed == 1.0:
        start = start.replace(hour=0, minute=0, second=0, microsecond=0)
    world = World(seed, start.date())
    calendar = calendar or Calendar()
    for number in range(leagues):
        members = tuple(range(1000 * (number + 1), 1000 * (number + 1) + teams))
        is_cup = number % calendar.cup_every == calendar.cup_every - 1
        league = League(
            39 + number,
            f"{'Cup' if is_cup else 'League'} {number + 1}",
            "World" if number % 7 == 6 else f"Country {number % 30}",
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
    """The matches of a league in the season that is played, or so many before it."""
    season = world.season - ago
    named = f"schedule:{seed}:{league.id}" + (f":{season}" if ago else "")
    dice = random.Random(named)  # noqa: S311 - a simulation
    found = []
    number = league.id * 10_000 + ago * 1_000
    odd = calendar.odd_percent
    for index, pairs in enumerate(_rounds(league.teams)):
        day = timedelta(days=calendar.round_days * index)
        for home, away in pairs:
            number += 1
            hour = timedelta(days=dice.randint(0, 1), hours=dice.choice(_KICK_OFFS))
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
            )
            found.append(match)
    return found


def _rounds(teams: tuple[int, ...]) -> list[list[tuple[int, int]]]:
    """Everybody against everybody, at home and away, by turning a circle."""
    circle = list(teams)
    half = len(circle) // 2
    first = []
    for _ in range(len(circle) - 1):
        first.append(list(zip(circle[:half], reversed(circle[half:]), strict=True)))
        circle.insert(1, circle.pop())
    return first + [[(away, home) for home, away in pairs] for pairs in first]
