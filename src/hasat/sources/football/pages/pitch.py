"""Line-ups on a pitch: which players stand in which line."""

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_GRID = re.compile(r"([1-9][0-9]?):([1-9][0-9]?)")
_COLOUR = re.compile(r"[0-9A-Fa-f]{6}")
_LINES = "GDMF"
_MAX_PLAYERS = 40
# Where white digits become hard to read on a shirt.
_BRIGHT = 0.36


@dataclass(frozen=True)
class LineupPlayer:
    """A player with the number on the shirt."""

    name: str
    number: int | None
    position: str | None
    """G, D, M or F."""


@dataclass(frozen=True)
class Shirt:
    """The colours of a shirt and of the number on it, as six hexadecimal digits."""

    fill: str
    number: str


@dataclass(frozen=True)
class Lineup:
    """The line-up of a team; `lines` begins with the goalkeeper and is empty if unknown."""

    team: str
    formation: str | None
    coach: str | None
    shirt: Shirt | None
    lines: Sequence[Sequence[LineupPlayer]]
    starting: Sequence[LineupPlayer]
    substitutes: Sequence[LineupPlayer]


def read_lineup(body: Any) -> Lineup:
    """Read a published line-up, of which anything may be missing."""
    starting = [(_player(one), _grid(one)) for one in _players(body, "startXI")]
    formation = _text(_at(body, "formation"))
    players = [player for player, _ in starting]
    return Lineup(
        team=_text(_at(body, "team", "name")) or "–",
        formation=formation,
        coach=_text(_at(body, "coach", "name")),
        shirt=_shirt(_at(body, "team", "colors", "player", "primary")),
        lines=_lines_of_grid(starting) or _lines_of_formation(players, formation),
        starting=players,
        substitutes=[_player(one) for one in _players(body, "substitutes")],
    )


def _lines_of_grid(
    starting: Sequence[tuple[LineupPlayer, tuple[int, int] | None]],
) -> Sequence[Sequence[LineupPlayer]]:
    """Return the lines of published places such as `2:4`; none unless every player has one."""
    lines: dict[int, list[tuple[int, LineupPlayer]]] = defaultdict(list)
    for player, place in starting:
        if place is None:
            return []
        lines[place[0]].append((place[1], player))
    # The API counts columns from the right of the team.
    ordered = (sorted(lines[line], key=lambda one: -one[0]) for line in sorted(lines))
    return [[player for _, player in line] for line in ordered]


def _lines_of_formation(
    players: Sequence[LineupPlayer], formation: str | None
) -> Sequence[Sequence[LineupPlayer]]:
    """Return the lines by a formation such as `4-4-2`, or else by the players' positions."""
    sizes = [1, *(int(part) for part in (formation or "").split("-") if part.isdecimal())]
    if len(sizes) > 1 and sum(sizes) == len(players):
        starts = [sum(sizes[:number]) for number in range(len(sizes))]
        return [players[at : at + size] for at, size in zip(starts, sizes, strict=True)]
    if players and all((one.position or "-") in _LINES for one in players):
        by_line = ([one for one in players if one.position == line] for line in _LINES)
        return [line for line in by_line if line]
    return []


def _shirt(colour: Any) -> Shirt | None:
    if not isinstance(colour, str) or not _COLOUR.fullmatch(colour):
        return None
    red, green, blue = (_linear(int(colour[at : at + 2], 16) / 255) for at in (0, 2, 4))
    luminance = 0.2126 * red + 0.7152 * green + 0.0722 * blue
    return Shirt(colour.lower(), "000000" if luminance > _BRIGHT / 2 else "ffffff")


def _linear(value: float) -> float:
    return value / 12.92 if value <= 0.04045 else float(((value + 0.055) / 1.055) ** 2.4)


def _players(body: Any, name: str) -> Sequence[Any]:
    found = _at(body, name)
    return found[:_MAX_PLAYERS] if isinstance(found, list) else []


def _player(element: Any) -> LineupPlayer:
    number = _at(element, "player", "number")
    return LineupPlayer(
        _text(_at(element, "player", "name")) or "–",
        number if isinstance(number, int) and not isinstance(number, bool) else None,
        _text(_at(element, "player", "pos")),
    )


def _grid(element: Any) -> tuple[int, int] | None:
    found = _GRID.fullmatch(_text(_at(element, "player", "grid")) or "")
    return (int(found[1]), int(found[2])) if found else None


def _at(value: Any, *path: str) -> Any:
    for step in path:
        value = value.get(step) if isinstance(value, Mapping) else None
    return value


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
