"""Simulated matches: their state at any moment, in the form of the API.

Everything about a match follows from its number and the seed, so its state at any moment is
computed without simulating the moments before.
"""

import random
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any, Literal

Fate = Literal["played", "cup", "postponed", "abandoned", "awarded", "cancelled"]
HALF = timedelta(minutes=47)
BREAK = timedelta(minutes=15)
# The final whistle, after added time.
FULL = HALF + BREAK + HALF + timedelta(minutes=3)
EXTRA_TIME = timedelta(minutes=50)
EXTRA = FULL + EXTRA_TIME
LATE_RESULT_AFTER = timedelta(hours=40)
_NOTHING = timedelta(0)
# fmt: off
_TOWNS = (
    "Adana", "Ağrı", "Amasya", "Artvin", "Balıkesir", "Bilecik", "Bolu", "Çanakkale", "Çorum",
    "Denizli", "Diyarbakır", "Düzce", "Edirne", "Erzincan", "Eskişehir", "Gümüşhane", "Hatay",
    "Iğdır", "Isparta", "İzmir", "Karabük", "Kars", "Kırşehir", "Konya", "Kütahya", "Mardin",
    "Muğla", "Niğde", "Ordu", "Sakarya", "Samsun", "Sinop", "Şırnak", "Tokat", "Uşak", "Van",
)
_KINDS = ("Yıldızı", "Irmak", "Demir", "İdman", "Güneşi", "Gücü", "Ovası", "Işık", "Kale", "Çınar")
_SURNAMES = (
    "Aydın", "Çelik", "Demir", "Doğan", "Erdem", "Güneş", "Işık", "Kaya", "Koç", "Öztürk", "Polat",
    "Şahin", "Taş", "Uysal", "Ünal", "Yıldız", "Yılmaz", "Aslan", "Bulut", "Çetin", "Özkan", "Şen",
)
# fmt: on
_FORMATION = ("1:1", *(f"{line}:{n}" for line in (2, 3) for n in (4, 3, 2, 1)), "4:2", "4:1")
_POSITIONS = "GDDDDMMMMFF"


@dataclass(frozen=True)
class Tempo:
    """The speed of a world's time, and how often results are corrected.

    Tables, scorers and teams' statistics are as they were `tables_after` before.
    """

    speed: float = 1.0
    corrected_share: float = 0.03
    corrected_after: timedelta = timedelta(days=2)
    tables_after: timedelta = timedelta(0)


REAL_TIME = Tempo()


@dataclass(frozen=True)
class League:
    """A league or a cup; without live events, results appear one or two days later."""

    id: int
    name: str
    country: str
    is_cup: bool
    has_live: bool
    teams: tuple[int, ...]


@dataclass(frozen=True)
class Match:
    """A match with its whole course."""

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
    tempo: Tempo = REAL_TIME
    full: timedelta = FULL
    """When it ends after its kick-off, without extra time."""

    @cached_property
    def goals(self) -> list[tuple[int, int, int]]:
        """The minute, team and scorer of every goal; the last one may be withdrawn later."""
        dice = random.Random(f"goals:{self.seed}:{self.id}")  # noqa: S311 - a simulation
        return sorted(
            (dice.randint(1, 90), team, team * 100 + dice.randint(1, 11))
            for team in (self.home, self.away)
            for _ in range(dice.choices((0, 1, 2, 3, 4), (25, 34, 22, 13, 6))[0])
        )

    @cached_property
    def is_corrected(self) -> bool:
        """Whether the last goal is withdrawn days later."""
        dice = random.Random(f"fix:{self.seed}:{self.id}")  # noqa: S311 - a simulation
        return bool(self.goals) and dice.random() < self.tempo.corrected_share

    def at(self, now: datetime) -> "Moment":
        """Return the match as the API reports it at a time."""
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
            over = played > LATE_RESULT_AFTER
            return Moment(self, kick_off, "FT" if over else "NS", 90 if over else None)
        if self.fate == "abandoned" and played > HALF:
            later = played > timedelta(days=1)
            return Moment(self, kick_off, "ABD" if later else "SUSP", 45)
        if self.fate == "cup" and played > self.full:
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
        if played < self.full:
            return Moment(self, kick_off, "2H", min(minute - 61 + 45, 90))
        corrected = self.is_corrected and played > self.tempo.corrected_after
        return Moment(self, kick_off, "FT", 90, corrected=corrected)

    def _after_extra_time(self, kick_off: datetime, played: timedelta) -> "Moment":
        teams = [team for _, team, _ in self.goals]
        if teams.count(self.home) != teams.count(self.away):
            return Moment(self, kick_off, "FT", 90)
        if played < self.full + EXTRA_TIME:
            return Moment(self, kick_off, "ET", 105)
        return Moment(self, kick_off, "PEN", 120)


@dataclass(frozen=True)
class Moment:
    """A match at one moment, in the form of the API."""

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
        """The goals scored so far and not withdrawn."""
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
        """Return the element of /fixtures."""
        match, (home, away) = self.match, self.score()
        none = {"home": None, "away": None}
        score = {"home": home, "away": away}
        return {
            "fixture": {
                "id": match.id,
                "referee": None,
                "timezone": "UTC",
                "date": self.kick_off.isoformat(),
                "timestamp": int(self.kick_off.timestamp()),
                "periods": {"first": None, "second": None},
                "venue": {
                    "id": None,
                    "name": f"{club(match.home)} Stadı",
                    "city": club(match.home).split()[0],
                },
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
            "goals": score,
            "score": {
                "halftime": score if self.elapsed and self.elapsed >= 45 else none,
                "fulltime": score if self.is_finished or self.awarded else none,
                "extratime": {"home": 0, "away": 0} if self.code == "PEN" else none,
                "penalty": {"home": 5, "away": 4} if self.code == "PEN" else none,
            },
        }

    def blocks(self) -> dict[str, list[Any]]:
        """Return events, line-ups, statistics and players, if the match has begun."""
        if self.elapsed is None:
            return {"events": [], "lineups": [], "statistics": [], "players": []}
        sides = (self.match.home, self.match.away)
        return {
            "events": self._events(),
            "lineups": [_lineup(team) for team in sides],
            "statistics": [self._statistics(team) for team in sides],
            "players": [self._players(team) for team in sides],
        }

    def _events(self) -> list[dict[str, Any]]:
        """Return goals, cards and substitutions so far, in the order of minutes."""
        elapsed = self.elapsed or 0
        found = [
            _event(minute, team, player, "Goal", "Normal Goal")
            for minute, team, player in self.goals
        ]
        for team in (self.match.home, self.match.away):
            dice = random.Random(f"events:{self.match.seed}:{self.match.id}:{team}")  # noqa: S311
            for _ in range(dice.randint(0, 3)):
                player = team * 100 + dice.randint(2, 10)
                found.append(_event(dice.randint(10, 90), team, player, "Card", "Yellow Card"))
            for number in range(1, dice.randint(2, 4)):
                player, other = team * 100 + 11 - number, team * 100 + 11 + number
                minute = dice.randint(50, 88)
                detail = f"Substitution {number}"
                found.append(_event(minute, team, player, "subst", detail, other))
        found = [one for one in found if one["time"]["elapsed"] <= elapsed]
        return sorted(found, key=lambda one: one["time"]["elapsed"])

    def _statistics(self, team: int) -> dict[str, Any]:
        goals = sum(scored == team for _, scored, _ in self.goals)
        dice = random.Random(f"statistics:{self.match.seed}:{self.match.id}")  # noqa: S311
        possession = dice.randint(35, 65)
        if team == self.match.away:
            possession = 100 - possession
            dice = random.Random(f"statistics:{self.match.seed}:{self.match.id}:away")  # noqa: S311
        played = (self.elapsed or 0) / 90
        shots = goals + round(played * dice.randint(3, 8))
        return {
            "team": _team(team),
            "statistics": [
                {"type": "Shots on Goal", "value": shots},
                {"type": "Total Shots", "value": shots + round(played * dice.randint(2, 9))},
                {"type": "Fouls", "value": round(played * dice.randint(6, 18))},
                {"type": "Corner Kicks", "value": round(played * dice.randint(1, 10))},
                {"type": "Ball Possession", "value": f"{possession}%"},
                {"type": "Total passes", "value": round(played * possession * 9)},
                {"type": "expected_goals", "value": f"{goals * 0.7 + played * 0.6:.2f}"},
                {"type": "Red Cards", "value": None},
            ],
        }

    def _players(self, team: int) -> dict[str, Any]:
        players = [
            {
                "player": {
                    "id": team * 100 + n if n < 11 else 0,
                    "name": footballer(team * 100 + n),
                    "photo": "",
                },
                "statistics": [
                    {
                        "games": {"minutes": self.elapsed, "rating": "7.1"},
                        "goals": {
                            "total": sum(one == team * 100 + n for _, _, one in self.goals) or None
                        },
                    }
                ],
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


def _event(
    minute: int, team: int, player: int, type_: str, detail: str, assist: int | None = None
) -> dict[str, Any]:
    return {
        "time": {"elapsed": minute, "extra": None},
        "team": _team(team),
        "player": {"id": player, "name": footballer(player)},
        "assist": {"id": assist, "name": footballer(assist) if assist else None},
        "type": type_,
        "detail": detail,
        "comments": None,
    }


def _lineup(team: int) -> dict[str, Any]:
    shirt = f"{(team * 2_654_435_761) % 2**24:06x}"
    colours = {"primary": shirt, "number": "ffffff", "border": shirt}
    return {
        "team": {**_team(team), "colors": {"player": colours, "goalkeeper": colours}},
        "coach": {"id": team, "name": footballer(team * 100 + 99), "photo": ""},
        "formation": "4-4-2",
        "startXI": [
            _in_lineup(team, n, position, grid)
            for n, (position, grid) in enumerate(zip(_POSITIONS, _FORMATION, strict=True), 1)
        ],
        "substitutes": [_in_lineup(team, n, "M", None) for n in range(12, 17)],
    }


def _in_lineup(team: int, number: int, position: str, grid: str | None) -> dict[str, Any]:
    player = team * 100 + number
    named = {"id": player, "name": footballer(player), "number": number}
    return {"player": {**named, "pos": position, "grid": grid}}


def footballer(player: int) -> str:
    """Return the name of a player, made of an initial and a common surname."""
    initial = "ABCÇDEFGHİKLMNOÖRSŞTUVYZ"[player * 7 % 24]
    return f"{initial}. {_SURNAMES[(player * 5 + player // 100) % len(_SURNAMES)]}"


def club(team: int) -> str:
    """Return the invented name of a club; each league has a thousand numbers."""
    league, place = divmod(team, 1000)
    town = _TOWNS[(place * 7 + league * 11) % len(_TOWNS)]
    return f"{town} {_KINDS[(place * 3 + league) % len(_KINDS)]}"
