"""The match day in the demo: a season at 60 times the speed."""

import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

from hasat.demo import DemoFolder, DemoPart, Loading, Scene
from hasat.jobs import Catalogue, Run
from hasat.jobs.queue import queue_run
from hasat.messages import msg
from hasat.settings import Settings
from hasat.sim import Simulation
from hasat.sim.simulation import Faults
from hasat.sources.football.simulator.server import FOOTBALL, KEY
from hasat.store import Store

_NAMES: Final = (
    "Anadolu Ligi",
    "Marmara Ligi",
    "Ege Ligi",
    "Karadeniz Ligi",
    "Akdeniz Ligi",
    "Fırat Ligi",
)
_LEAGUES: Final = len(_NAMES)
# Small enough that the quota moves while one watches.
_REQUESTS_A_DAY: Final = 7_500
_TEAMS: Final = 8
MATCHES: Final = _LEAGUES * _TEAMS * (_TEAMS - 1)
_TEMPO: Final = 60
# At this tempo a day has 24 minutes and a round begins every 96, at noon of its first day. The
# first round has been played when the demo begins, the second kicks off a minute later.
SEASON_AGE: Final = timedelta(minutes=96 + 11)
_SEASON_LENGTH: Final = timedelta(minutes=96 * 2 * (_TEAMS - 1))
# The API fails while the last matches of the first day are played.
_API_DOWN: Final = range(9, 16)
_SEASON_FILE: Final = "season.json"
_FIRST_JOBS: Final = ("fixtures_backfill_league_season", "standings_backfill_league_season")
_JOBS_AFTER_MATCHES: Final = ("team_statistics_refresh", "top_scorers_daily", "injuries_hourly")
# A match takes two minutes here, so hourly jobs run every minute.
_EVERY_MINUTE: Final = {"cron": "* * * * *"}
_HOURS_UNTIL_PROBABLY_OVER: Final = {"threshold_hours": 0.05, "safety_lag_hours": 0.05}


def season_start(folder: Path, now: datetime) -> datetime:
    """Return when the season of a folder started; store a new season if the last one is over."""
    file = folder / _SEASON_FILE
    try:
        stored = datetime.fromisoformat(json.loads(file.read_text("utf-8")))
        if now - stored <= _SEASON_LENGTH:
            return stored
    except (OSError, ValueError, TypeError):
        pass  # A missing or damaged file starts a season too.
    file.write_text(json.dumps((now - SEASON_AGE).isoformat()), "utf-8")
    return now - SEASON_AGE


def _simulation(folder: DemoFolder) -> Simulation:
    world = {
        "leagues": _LEAGUES,
        "names": _NAMES,
        "country": "Turkey",
        "daily": _REQUESTS_A_DAY,
        "teams": _TEAMS,
        "season_start": season_start(folder.path, folder.now).isoformat(),
        "tempo": _TEMPO,
        "corrected_share": 0.25,
        # In hours of match time: four minutes after kick-off at this tempo.
        "corrected_after": 4,
    }
    return Simulation(FOOTBALL, seed=11, options=world)


def _settings(folder: DemoFolder, address: str) -> Mapping[str, Any]:
    season = season_start(folder.path, folder.now).year
    leagues = [
        {"id": 39 + number, "season": season, "name": name} for number, name in enumerate(_NAMES)
    ]
    return {"base_url": address, "api_key": KEY, "tracked_leagues": leagues}


def _switch_faults(minute: int, faults: Faults) -> None:
    if minute == _API_DOWN.start:
        faults.switch_on("error", status=503)
    elif minute == _API_DOWN.stop:
        faults.switch_off("error")


async def _start(store: Store, _settings: Settings, catalogue: Catalogue) -> Run | None:
    for name in _FIRST_JOBS:
        await queue_run(store, catalogue, name)
    return None


SCENES: Final = (
    Scene(
        1,
        "/football",
        "/api/v1/football/fixtures?state=live",
        msg("A match day at 60 times the speed"),
        msg(
            "A match takes two minutes, a round starts every hour and a half. Scores, events and "
            "tables are updated within the daily requests of the plan."
        ),
    ),
    Scene(
        5,
        "/changes?dataset=fixtures",
        "/changes.json?dataset=fixtures",
        msg("A score is corrected after the match"),
        msg(
            "A goal is disallowed. Consumers receive the correction as a change with the record "
            "before and after. The Fırat Ligi publishes its results late; until then its matches "
            "stay as last published, and nothing is guessed."
        ),
    ),
    Scene(
        12,
        "/football",
        "/api/v1/football/fixtures?inferred=true",
        msg("The API goes down while matches end"),
        msg(
            "The API does not respond for minutes. Matches are marked as probably finished, "
            "separately from the published data. The mark is cleared once the API responds."
        ),
        replay=range(_API_DOWN.start, _API_DOWN.stop + 1),
    ),
)

PART = DemoPart(
    _simulation,
    _settings,
    SCENES,
    Loading(
        msg("matches"),
        MATCHES,
        "SELECT count(*) FROM core.fixtures",
        _start,
        then=_JOBS_AFTER_MATCHES,
    ),
    schedule={
        "daily_fixtures_by_date": _EVERY_MINUTE,
        "fixture_details_recent_finalize": _EVERY_MINUTE,
        "daily_standings": {**_EVERY_MINUTE, "params": {"at_once": True}},
        "auto_finish_stale_fixtures": {**_EVERY_MINUTE, "params": _HOURS_UNTIL_PROBABLY_OVER},
    },
    switch_faults=_switch_faults,
)
