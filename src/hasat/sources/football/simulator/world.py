"""A simulated world: leagues, their seasons and the schedule of their matches."""

import random
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta

from hasat.sources.football.simulator.matches import REAL_TIME, League, Match, Tempo

_KICK_OFFS = (12, 15, 17, 19)
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


def make_world(
    seed: int,
    start: datetime,
    leagues: int,
    teams: int = 20,
    calendar: Calendar | None = None,
    tempo: Tempo = REAL_TIME,
    seasons: int = 1,
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
    """Return the rounds of a double round-robin by the circle method."""
    circle = list(teams)
    half = len(circle) // 2
    first = []
    for _ in range(len(circle) - 1):
        first.append(list(zip(circle[:half], reversed(circle[half:]), strict=True)))
        circle.insert(1, circle.pop())
    return first + [[(away, home) for home, away in pairs] for pairs in first]
