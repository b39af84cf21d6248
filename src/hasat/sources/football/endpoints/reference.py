"""The reference of the endpoints, as Markdown from their declarations."""

from collections.abc import Iterator
from datetime import timedelta

from hasat.sources.football.endpoints import (
    ENDPOINTS,
    FORMS,
    MIRRORED,
    OPTIONAL,
    Endpoint,
    Plan,
)

_UNITS = {
    "api": "everything",
    "season": "season of a league",
    "team": "team",
    "player": "player",
    "fixture": "match",
    "country": "country",
    "league": "league in play",
    "pair": "pair of teams that meet soon",
}
_SPANS = (
    (timedelta(days=1), "day"),
    (timedelta(hours=1), "hour"),
    (timedelta(minutes=1), "minute"),
)

_HEAD = """\
# Endpoints of API-Football

This page is generated from the declarations in `src/hasat/sources/football/endpoints` \
(`scripts/docs`). One entry there is all that an endpoint needs: path, parameters, key, typed \
columns, scope, coverage flag and plan. Reader, table, routes, MCP lookup, coverage, price, this \
page and the simulated response follow from it.

- **Removed when absent**: the parameters of a complete response in which a missing record is a \
removal. Any other response never removes.
- **Coverage**: the flag of a season in `/leagues` without which the endpoint is not requested.

"""


def markdown() -> str:
    """Return the page."""
    return "\n".join([_HEAD + "\n".join(_lines()), ""])


def _lines() -> Iterator[str]:
    yield "## Always mirrored\n"
    yield "| dataset | endpoint | removed when absent |"
    yield "|---|---|---|"
    for endpoint in MIRRORED:
        yield f"| `{endpoint.dataset.name}` | `/{endpoint.name}` | {_scopes(endpoint)} |"
    yield "\n## Optional\n"
    yield "Switched on by name with `football.collect`; `hasat football price` shows the cost.\n"
    yield "| name | endpoint | one request for each | fetched | coverage | removed when absent |"
    yield "|---|---|---|---|---|---|"
    for endpoint in OPTIONAL:
        plan = endpoint.plan
        assert plan is not None
        name = f"`{endpoint.option_name}`"
        if endpoint.option_name != endpoint.dataset.name:
            name += f" (in `{endpoint.dataset.name}`)"
        unit = _UNITS[plan.unit] + (" and page" if plan.pages > 1 else "")
        flag = ".".join(endpoint.coverage)
        yield (
            f"| {name} | `/{endpoint.name}` | {unit} | {_cadence(plan)} |"
            f" {f'`{flag}`' if flag else ''} | {_scopes(endpoint)} |"
        )
    forms = ", ".join(f"`/{endpoint.name}`" for endpoint in FORMS)
    yield f"\nNo job requests {forms}, but their stored responses are read.\n"
    yield "## Columns\n"
    yield "| dataset | contents | columns |"
    yield "|---|---|---|"
    for dataset in {one.dataset.name: one.dataset for one in ENDPOINTS}.values():
        columns = ", ".join(f"`{one.name}` ({one.type})" for one in dataset.columns)
        yield f"| `{dataset.name}` | {dataset.summary} | {columns} |"


def _scopes(endpoint: Endpoint) -> str:
    named = [" and ".join(f"`{one}`" for one in rule.columns) for rule in endpoint.rules]
    return "; ".join(one or "no parameters" for one in named)


def _cadence(plan: Plan) -> str:
    if plan.live:
        return "while matches are in play (job `live_refresh`)"
    if plan.settle:
        *others, last = (_span(one) for one in plan.settle)
        return f"{', '.join(others)} and {last} after a match"
    times = "once" if plan.every is None else f"every {_span(plan.every)}"
    if plan.before:
        return f"{times}, from {_span(plan.before)} before the match"
    return f"{times}, until {_span(plan.after)} after the match" if plan.after else times


def _span(length: timedelta) -> str:
    for unit, name in _SPANS:
        if length >= unit and not length % unit:
            count = length // unit
            return f"{count} {name}" + ("s" if count > 1 else "")
    return f"{length.total_seconds():.0f} seconds"
