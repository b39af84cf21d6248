"""A fake API-Football on loopback, whose responses a test defines."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest

from hasat.budget import Budget
from hasat.console.runtime import source_migrations
from hasat.fetch import Fetcher
from hasat.jobs import Outcome
from hasat.settings import Settings
from hasat.sources.football import client
from hasat.sources.football.ingest.raw_store import ApiResponse
from hasat.sources.football.jobs.catalogue import JOBS
from hasat.store import Store, open_store
from hasat.testing.database import FakeDatabaseClock, ThrowAwayDatabase, fake_database_clock
from hasat.testing.jobs import perform

NOW = datetime(2026, 11, 14, 12, tzinfo=UTC)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
BY_NAME = {job.name: job for job in JOBS}
NO_DETAILS: dict[str, Any] = {"events": [], "lineups": [], "statistics": [], "players": []}
GOAL = {
    "time": {"elapsed": 5, "extra": None},
    "team": {"id": 1},
    "player": {"id": None, "name": None},
    "assist": {"id": None, "name": None},
    "type": "Goal",
    "detail": "Normal Goal",
    "comments": None,
}


Parameters = dict[str, str]


@dataclass(frozen=True)
class Reply:
    """A response as sent."""

    body: bytes
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


Responder = Callable[[str, Parameters], Reply | list[Any]]


def reply(rows: list[Any], *, errors: Any = None, status: int = 200, **headers: str) -> Reply:
    """Return an envelope in the form of the API."""
    envelope = {
        "get": "",
        "parameters": [],
        "errors": errors or [],
        "results": len(rows),
        "paging": {"current": 1, "total": 1},
        "response": rows,
    }
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Reply(json.dumps(envelope).encode(), status, named)


def api_response(endpoint: str, rows: list[Any], **parameters: str) -> ApiResponse:
    """Return a response of the API for the loader."""
    envelope = {
        "get": endpoint,
        "parameters": parameters or [],
        "errors": [],
        "results": len(rows),
        "paging": {"current": 1, "total": 1},
        "response": rows,
    }
    return ApiResponse(endpoint, parameters, json.dumps(envelope).encode())


def respond_with_matches(matches: list[Any]) -> Responder:
    """Respond with one league and these matches for any parameters; the list may change."""

    def respond(path: str, parameters: Parameters) -> list[Any]:
        if path == "leagues":
            return [league(39)]
        return matches if path == "fixtures" else []

    return respond


class FootballApi:
    """A server that responds as a test defines, and records requests."""

    def __init__(self, respond: Responder) -> None:
        self.respond = respond
        self.requests: list[tuple[str, Parameters]] = []
        self.address = ""

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                url = urlsplit(head.split(b" ", 2)[1].decode())
                request = url.path.strip("/"), dict(parse_qsl(url.query))
                self.requests.append(request)
                result = self.respond(*request)
                sent = result if isinstance(result, Reply) else reply(result)
                lines = [f"HTTP/1.1 {sent.status} OK", f"content-length: {len(sent.body)}"]
                lines += [f"{name}: {value}" for name, value in sent.headers.items()]
                writer.write("\r\n".join([*lines, "", ""]).encode() + sent.body)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def football_api(respond: Responder) -> AsyncIterator[FootballApi]:
    api = FootballApi(respond)
    server = await asyncio.start_server(api._serve, "127.0.0.1", 0)
    api.address = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server:
        yield api


@dataclass
class Collector:
    """Hasat with a fake API and a fake clock."""

    store: Store
    settings: Settings
    api: FootballApi
    database_clock: FakeDatabaseClock

    async def run(self, name: str, due: datetime | None = None, **params: Any) -> Outcome:
        """Run a job, manually or as scheduled at `due`."""
        return await perform(BY_NAME[name], self.store, self.settings, params, due=due)

    async def rows(self, query: Any, *values: Any) -> list[Any]:
        async with self.store.connection() as conn:
            return await (await conn.execute(query, values)).fetchall()


StartCollector = Callable[..., AbstractAsyncContextManager[Collector]]


@asynccontextmanager
async def start_collector_from(
    database: ThrowAwayDatabase,
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    respond: Responder,
    *leagues: int,
    **more: Any,
) -> AsyncIterator[Collector]:
    """Start Hasat on an empty database; `more` are settings of the source."""
    async with (
        football_api(respond) as api,
        fake_database_clock(database.url, NOW) as database_clock,
    ):
        monkeypatch.setattr(client, "Budget", partial(Budget, sleep=database_clock.sleep))
        monkeypatch.setattr(client, "Fetcher", partial(Fetcher, sleep=database_clock.sleep))
        base = database.settings(home)
        tracked = [{"id": league, "season": 2026} for league in leagues or (39,)]
        section = {"api_key": "k", "base_url": api.address, "tracked_leagues": tracked, **more}
        football = type(base.football).model_validate(base.football.model_dump() | section)
        settings = base.model_copy(update={"football": football})
        async with open_store(settings, source_migrations()) as store:
            yield Collector(store, settings, api, database_clock)


def league(number: int) -> dict[str, Any]:
    flags = ("events", "lineups", "statistics_fixtures", "statistics_players")
    coverage = {"fixtures": dict.fromkeys(flags, True), "standings": True}
    season = {"year": 2026, "start": "2026-08-01", "end": "2027-05-30", "coverage": coverage}
    return {"league": {"id": number, "name": f"L{number}"}, "seasons": [season]}


def match(number: int, at: datetime, status: str, of: int = 39) -> dict[str, Any]:
    return {
        "fixture": {"id": number, "timestamp": int(at.timestamp()), "status": {"short": status}},
        "league": {"id": of, "season": 2026},
        "teams": {"home": {"id": 1}, "away": {"id": 2}},
        "goals": {"home": 1, "away": 0},
    }


def matches_of_league(matches: list[Any], parameters: Parameters) -> list[Any]:
    return [one for one in matches if str(one["league"]["id"]) == parameters["league"]]
