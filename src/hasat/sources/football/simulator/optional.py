"""Simulated responses for optional data, from the example of each endpoint's declaration."""

from collections.abc import Mapping
from typing import Any

from hasat.sources.football.endpoints import Endpoint
from hasat.sources.football.simulator.world import World

_ROWS = 20
_PAGES = 2


def simulated_pages(endpoint: Endpoint) -> int:
    """Return how many pages a response has."""
    return _PAGES if endpoint.plan is not None and endpoint.plan.pages > 1 else 1


def simulate_rows(world: World, endpoint: Endpoint, parameters: Mapping[str, str]) -> list[Any]:
    """Return the rows of a page: the example with the ids that the request is about."""
    first = _ROWS * (int(parameters.get("page", "1")) - 1)
    numbers = {name: int(text) for name, text in parameters.items() if text.isdecimal()}
    league = next(
        (one for one in world.leagues if one.id == numbers.get("league")), world.leagues[0]
    )
    is_list = endpoint.plan is not None and endpoint.plan.unit in ("api", "season", "country")
    rows = []
    for n in range(first + 1, first + (_ROWS if is_list else 1) + 1):
        team = numbers.get("team", league.teams[n % len(league.teams)])
        values: dict[str, int | str] = {
            "season": world.season - (n - 1 if "season" not in parameters else 0),
            "league": league.id,
            "team": team,
            "player": team * 100 + n,
            "fixture": 0,
            **numbers,
            "country": parameters.get("country", league.country),
            "n": n,
        }
        rows.append(_fill(endpoint.example, values))
    return rows


def _fill(example: Any, values: Mapping[str, int | str]) -> Any:
    """Replace {names} in an example; a text that is nothing else becomes the value itself."""
    match example:
        case str() if example[1:-1] in values and example == f"{{{example[1:-1]}}}":
            return values[example[1:-1]]
        case str():
            return example.format(**values)
        case dict():
            return {name: _fill(value, values) for name, value in example.items()}
        case list():
            return [_fill(value, values) for value in example]
    return example
