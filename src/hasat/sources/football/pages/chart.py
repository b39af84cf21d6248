"""The chart of points over the rounds, drawn as SVG by the server."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

WIDTH, HEIGHT = 960, 360
_LEFT, _RIGHT, _TOP, _BOTTOM = 40, 190, 14, HEIGHT - 28
# The number of lines that have a colour of their own.
_EMPHASISED = 5
_LABEL_HEIGHT = 15
_MAX_TICKS = 12


@dataclass(frozen=True)
class Tick:
    """A labelled position on an axis."""

    at: float
    label: int


@dataclass(frozen=True)
class Line:
    """A team's line; `colour` is 1 to 6, or 0 for a line in the background."""

    team_id: int
    team: str
    points: int
    drawn: str
    colour: int
    end_x: float
    end_y: float
    label_y: float


@dataclass(frozen=True)
class PointsChart:
    """Lines with their axes, the ones in the background first."""

    width: int
    height: int
    left: int
    right: int
    bottom: int
    lines: Sequence[Line]
    ticks_x: Sequence[Tick]
    ticks_y: Sequence[Tick]
    rounds: Sequence[int]
    table: Sequence[tuple[str, Sequence[int]]]
    """Each team's points after every round, the leader first."""


def points_chart(
    teams: Mapping[int, tuple[str, Mapping[int, int]]], chosen: int | None = None
) -> PointsChart | None:
    """Draw the points of teams by round; None with less than two rounds.

    A team that did not play in a round keeps its points.
    """
    rounds = sorted({number for _, points in teams.values() for number in points})
    if len(rounds) < 2:
        return None
    filled = {team: _filled(points, rounds) for team, (_, points) in teams.items()}
    order = sorted(teams, key=lambda team: (-filled[team][-1], teams[team][0]))
    highest = max(3, filled[order[0]][-1])
    emphasised = order[:_EMPHASISED]
    if chosen is not None and chosen in teams and chosen not in emphasised:
        emphasised = [*emphasised, chosen]
    xs = [_scale(at, 0, len(rounds) - 1, _LEFT, WIDTH - _RIGHT) for at in range(len(rounds))]
    labels = _spread([_y(filled[team][-1], highest) for team in emphasised])
    places = dict(zip(emphasised, labels, strict=True))
    lines = [
        Line(
            team_id=team,
            team=teams[team][0],
            points=filled[team][-1],
            drawn=" ".join(
                f"{x},{_y(points, highest)}" for x, points in zip(xs, filled[team], strict=True)
            ),
            colour=emphasised.index(team) + 1 if team in emphasised else 0,
            end_x=xs[-1],
            end_y=_y(filled[team][-1], highest),
            label_y=places.get(team, 0.0),
        )
        for team in reversed(order)
    ]
    step = max(1, -(-len(rounds) // _MAX_TICKS))
    steps = range(0, highest + 1, max(1, -(-highest // 5)))
    return PointsChart(
        width=WIDTH,
        height=HEIGHT,
        left=_LEFT,
        right=WIDTH - _RIGHT,
        bottom=_BOTTOM,
        lines=sorted(lines, key=lambda line: (line.colour > 0, -line.colour)),
        ticks_x=[Tick(xs[at], rounds[at]) for at in range(0, len(rounds), step)],
        ticks_y=[Tick(_y(points, highest), points) for points in steps],
        rounds=rounds,
        table=[(teams[team][0], filled[team]) for team in order],
    )


def _filled(points: Mapping[int, int], rounds: Sequence[int]) -> list[int]:
    found, last = [], 0
    for number in rounds:
        last = points.get(number, last)
        found.append(last)
    return found


def _spread(wanted: Sequence[float]) -> list[float]:
    """Move labels apart so that none covers another, and keep them on the chart."""
    order = sorted(range(len(wanted)), key=lambda at: wanted[at])
    placed = [0.0] * len(wanted)
    last = float(_TOP - _LABEL_HEIGHT)
    for at in order:
        last = placed[at] = max(wanted[at], last + _LABEL_HEIGHT)
    over = max(0.0, last - _BOTTOM)
    return [round(place - over, 1) for place in placed]


def _y(points: int, highest: int) -> float:
    return _scale(points, 0, highest, _BOTTOM, _TOP)


def _scale(value: float, first: float, last: float, low: float, high: float) -> float:
    return round(low + (high - low) * (value - first) / (last - first), 1)
