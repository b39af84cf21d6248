"""`hasat football`: the mirror of API-Football."""

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.table import Table

from hasat.clock import zone
from hasat.console import context, output, runtime
from hasat.console.rebuild import rebuild_dataset
from hasat.errors import NotFoundError
from hasat.messages import msg
from hasat.sources.football.api.queries import read_rows
from hasat.sources.football.price import load_prices
from hasat.text import MAX_EXACT_INTEGER

_UNITS = {
    "api": msg("everything"),
    "season": msg("season"),
    "team": msg("team"),
    "player": msg("player"),
    "fixture": msg("match"),
    "country": msg("country"),
    "league": msg("league"),
    "pair": msg("pair of teams"),
}

app = typer.Typer(no_args_is_help=True, help="Matches, tables and players of API-Football.")


@app.command()
def rebuild(ctx: typer.Context, json: output.JsonFlag = False) -> None:
    """Rebuild tables from stored responses, without requests to the API.

    Reads every stored response, including Parquet files. If the result equals what was published,
    damaged tables are repaired and consumers do not notice. Exits with 3 if there are no responses,
    with 4 if they contain far fewer records than published: the guard holds the run.

    Example: `hasat football rebuild --json`
    """
    rebuild_dataset(
        context.get_settings(ctx),
        "fixtures",
        json=json,
        action="football.rebuild",
        target="football",
    )


LeagueArgument = Annotated[
    int, typer.Argument(min=1, max=MAX_EXACT_INTEGER, help="The id of the league.")
]
SeasonArgument = Annotated[int, typer.Argument(min=1800, max=2200, help="The year of the season.")]


def _rows(ctx: typer.Context, query: str, **values: Any) -> list[dict[str, Any]]:
    """Return the rows of a query."""
    settings = context.get_settings(ctx)
    return runtime.run_with_store(settings, lambda store: read_rows(store, query, **values))


def _matches(ctx: typer.Context, *, json: bool, **given: Any) -> list[dict[str, Any]]:
    """Return matches with score, local time, and how sure the state is, as people read them.

    JSON is the same in every language.
    """
    say: Callable[[str], str] = str if json else output.localize
    filters = ("ids", "league", "season", "team", "date", "status")
    rows = _rows(ctx, "tool_fixtures", **{**dict.fromkeys(filters), "limit": 1000, **given})
    local = zone(context.get_settings(ctx).jobs.timezone)
    for row in rows:
        goals = (row["goals_home"], row["goals_away"])
        row["score"] = "-" if goals[0] is None else f"{goals[0]}:{goals[1]}"
        begins = row["date"]
        row["begins"] = begins and f"{begins.astimezone(local):%Y-%m-%d %H:%M %Z}"
        states = [row["status_short"] or "-"]
        if row["inferred_status"]:
            states.append(say(msg("inferred {state}", state=row["inferred_status"])))
        if row["unconfirmed_since"]:
            since = f"{row['unconfirmed_since'].astimezone(local):%m-%d %H:%M %Z}"
            states.append(say(msg("last confirmed {time}", time=since)))
        row["state"] = ", ".join(states)
    return rows


def _show(rows: list[dict[str, Any]], json: bool, columns: Mapping[str, str]) -> None:
    """Print rows as JSON, or the columns as a table with their headings."""

    def table() -> Table:
        made = output.table(*columns.values())
        for row in rows:
            made.add_row(*("" if row[name] is None else str(row[name]) for name in columns))
        return made

    output.emit(rows, json=json, human=table)
    if not rows and not json:
        output.note(msg("No results. Is the season followed and mirrored?"))


@app.command()
def table(
    ctx: typer.Context,
    league: LeagueArgument,
    season: SeasonArgument,
    until_round: Annotated[
        int | None, typer.Option("--round", min=1, max=9999, help="Up to this round.")
    ] = None,
    json: output.JsonFlag = False,
) -> None:
    """Show the table of a season, computed from the results up to a round.

    Example: `hasat football table 39 2026 --round 12`
    """
    rows = _rows(ctx, "league_table", league=league, season=season, round=until_round, stage=None)
    columns = {
        "rank": "#",
        "team": msg("team"),
        "played": msg("P"),
        "won": msg("W"),
        "drawn": msg("D"),
        "lost": msg("L"),
        "scored": msg("F"),
        "conceded": msg("A"),
        "points": msg("pts"),
        "form": msg("form"),
    }
    _show(rows, json, columns)


@app.command()
def fixtures(
    ctx: typer.Context,
    league: LeagueArgument,
    season: SeasonArgument,
    json: output.JsonFlag = False,
) -> None:
    """List the matches of a season, the latest first.

    Example: `hasat football fixtures 39 2026`
    """
    rows = _matches(ctx, json=json, league=league, season=season)
    columns = {
        "fixture_id": msg("id"),
        "begins": msg("begins"),
        "home_team": msg("home"),
        "score": msg("score"),
        "away_team": msg("away"),
        "state": msg("state"),
    }
    _show(rows, json, columns)


@app.command()
def match(
    ctx: typer.Context,
    fixture: Annotated[
        int, typer.Argument(min=1, max=MAX_EXACT_INTEGER, help="The id of the match.")
    ],
    json: output.JsonFlag = False,
) -> None:
    """Show the score, the state and the events of a match.

    Example: `hasat football match 867946`
    """
    found = _matches(ctx, json=json, ids=[fixture])
    if not found:
        raise NotFoundError(
            msg("The mirror has no match {number}.", number=fixture),
            remedy=msg("`hasat football fixtures LEAGUE SEASON` lists the matches."),
        )
    [one] = found
    rows = _rows(ctx, "match_events", fixture=fixture)
    for row in rows:
        row["minute"] = (
            f"{row['elapsed']}" if row["extra"] is None else f"{row['elapsed']}+{row['extra']}"
        )
    if json:
        output.emit({"match": one, "events": rows}, json=True, human=str)
        return
    print(f"{one['home_team'] or '-'} {one['score']} {one['away_team'] or '-'}  {one['state']}")
    print(", ".join(str(one[name]) for name in ("league", "round", "begins") if one[name]))
    columns = {
        "minute": msg("minute"),
        "team": msg("team"),
        "player": msg("player"),
        "type": msg("type"),
        "detail": msg("detail"),
        "assist": msg("assist"),
    }
    if rows:
        _show(rows, json, columns)


@app.command()
def scorers(
    ctx: typer.Context,
    league: LeagueArgument,
    season: SeasonArgument,
    json: output.JsonFlag = False,
) -> None:
    """List the top scorers of a season as the API lists them.

    Example: `hasat football scorers 39 2026`
    """
    rows = _rows(ctx, "top_scorers_of_season", league=league, season=season)
    columns = {
        "player": msg("player"),
        "team": msg("team"),
        "goals": msg("goals"),
        "assists": msg("assists"),
    }
    _show(rows, json, columns)


@app.command()
def price(ctx: typer.Context, json: output.JsonFlag = False) -> None:
    """Show what optional data cost in requests, before they are switched on.

    The counts are those of the followed leagues as mirrored now. Switch data on with
    football.collect.

    Example: `hasat football price --json`
    """
    settings = context.get_settings(ctx)

    prices = runtime.run_with_store(settings, lambda store: load_prices(store, settings))

    def table() -> Table:
        made = output.table("data", "per", "units", "at first", "per day", "of the day", "on")
        for one in prices:
            made.add_row(
                one.name,
                output.localize(_UNITS[one.unit]),
                *map(output.number, (one.units, one.first, one.daily)),
                output.number(one.share, ".1%"),
                output.localize(msg("yes")) if one.on else "",
            )
        return made

    output.emit([asdict(one) for one in prices], json=json, human=table)
