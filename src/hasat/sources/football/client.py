"""The API client of a job's run: sends requests within the budget and loads the responses."""

import hashlib
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from hasat.budget import Budget
from hasat.errors import BrokenAnswerError, OutOfQuotaError, SettingsError
from hasat.feed.holds import GuardError
from hasat.fetch import Client, ClientOptions, Fetcher, Outcome, Request, RequestContext
from hasat.jobs import Outcome as JobOutcome
from hasat.jobs import RunContext
from hasat.messages import join, msg
from hasat.sources.football.endpoints import SOURCE
from hasat.sources.football.ingest.held_responses import HeldResponses, load_held
from hasat.sources.football.ingest.loader import UnreadableResponseError, load
from hasat.sources.football.ingest.raw_store import ApiResponse, reserve_order
from hasat.sources.football.leagues import FollowedLeague, current_season, resolve
from hasat.sources.football.outcomes import classify, is_used_up, remaining, why_exhausted
from hasat.sources.football.settings import FootballSettings, football_upstream
from hasat.store import Store
from hasat.store.queries import load_query

_PACKAGE = "hasat.sources.football"
# A job waits for the minute's budget, never for the next day.
_PATIENCE_SECONDS = 300.0
_REFUSED_KEY_COOLDOWN = timedelta(hours=1)
_REFUSED = (Outcome.NOT_IN_PLAN, Outcome.BAD_REQUEST)
# The envelope that is stored for status 204, which has no body.
_NO_CONTENT = b'{"errors": [], "results": 0, "response": []}'


def only_league(context: RunContext) -> int | None:
    """Return the only league of a run, or None for all followed leagues."""
    return (
        context.params.get("only_league_id")
        or context.settings.section(FootballSettings).only_league_id
    )


def is_named(context: RunContext) -> bool:
    """Whether an operator named a league or a season, which is then fetched in any case."""
    named = only_league(context) is not None or context.params.get("only_season") is not None
    return context.scheduled_for is None and named


class FootballClient:
    """Fetches and loads for one run of a job, and counts requests and changes."""

    def __init__(
        self, context: RunContext, client: Client, fetcher: Fetcher, now: datetime
    ) -> None:
        self.context = context
        self._client = client
        self._fetcher = fetcher
        self.now = now
        self.changed = 0
        self.warnings: set[str] = set()
        self.idle_reasons: dict[str, None] = {}
        """Why the run sent no request, in the order of reporting."""
        self.held = HeldResponses()
        self._readable = 0
        self._unreadable = 0
        self._day_limit: int | None = None
        self.reports_leagues = self.is_manual
        """Whether the run reports unlisted leagues: when it fetched the list, about once a day."""
        self.refusal: str | None = None
        """Why the API refused the last request, or the guard its response; None if neither did."""

    @property
    def requests(self) -> int:
        return self._fetcher.sent

    @property
    def is_all_unreadable(self) -> bool:
        """Whether there were responses, and none of them could be read."""
        return self._unreadable > 0 and not self._readable

    @property
    def store(self) -> Store:
        return self.context.store

    @property
    def settings(self) -> FootballSettings:
        return self.context.settings.section(FootballSettings)

    @property
    def params(self) -> Mapping[str, Any]:
        return self.context.params

    async def leagues(self) -> Sequence[FollowedLeague]:
        """Return the followed leagues, or the league and season that the operator named."""
        only, season = only_league(self.context), self.params.get("only_season")
        found = await resolve(self.store, self.settings.tracked_leagues, only)
        if self.reports_leagues:
            for warning in found.warnings:
                self.warn(warning)
        leagues = found.leagues
        if only is not None and not leagues:
            year = season or (self.is_named and await current_season(self.store, only))
            leagues = (FollowedLeague(only, year),) if self.is_named and year else ()
            if not leagues:
                self.warn(
                    msg(
                        "League {only} is not in tracked_leagues, and its current season is "
                        "unknown. Set only_season.",
                        only=only,
                    )
                )
        if season is not None:
            leagues = tuple({FollowedLeague(league.id, season): None for league in leagues})
        return leagues

    def warn(self, message: str) -> None:
        """Add a warning to the run's message, once."""
        if message not in self.warnings:
            self.context.log.warning("run.warning", warning=message)
            self.warnings.add(message)

    def report_idle(self, reason: str) -> None:
        """Report why there was nothing to fetch."""
        if reason not in self.idle_reasons:
            self.context.log.info("run.idle", reason=reason)
            self.idle_reasons[reason] = None

    @property
    def is_named(self) -> bool:
        return is_named(self.context)

    @property
    def is_manual(self) -> bool:
        return self.context.scheduled_for is None

    @property
    def _lane(self) -> str:
        """A manual run waits for the minute only, not for its share of the day."""
        lane = self.context.job.lane
        return "daily" if self.is_manual and lane in ("details", "backfill") else lane

    @property
    def _key(self) -> str:
        """The name under which refusals of the API key are recorded."""
        key = self.settings.api_key.get_secret_value() if self.settings.api_key else ""
        return f"key {hashlib.sha256(key.encode()).hexdigest()[:12]}"

    async def day_limit(self) -> int:
        """Return the requests that a day has: the smaller of what is configured and stated.

        Until the first response of a day, the statement of the day before counts.
        """
        if self._day_limit is None:
            async with self.store.connection() as conn:
                cursor = await conn.execute(load_query(_PACKAGE, "stated_limit"))
                stated = [plan for (plan,) in await cursor.fetchall()]
            self._day_limit = min([self.settings.rate_limiter.daily_limit, *stated])
        return self._day_limit

    async def interval(self, requests: int, share: float, least: timedelta) -> timedelta:
        """Return the time between two rounds of requests that cost a share of the day at most."""
        return max(least, timedelta(days=1) * requests / (share * await self.day_limit()))

    async def check_key(self) -> None:
        """Raise SettingsError if the key was refused in the last hour; manual runs try it."""
        if not self.is_manual and await load_refusals(
            self.store, self._key, self.now - _REFUSED_KEY_COOLDOWN
        ):
            raise SettingsError(
                msg("API-Football refused the key less than an hour ago; no request was sent."),
                remedy=msg("Correct API_FOOTBALL_KEY; a new key is tried at once."),
            )

    async def fetch(self, endpoint: str, **parameters: str | int) -> ApiResponse | None:
        """Send a request and return the response; None if it was refused or cannot be read.

        A refusal (not in the plan, bad request) is stored as a raw response, too.
        """
        params = {name.rstrip("_"): str(value) for name, value in parameters.items()}
        # Every request for matches uses the same zone; otherwise their bodies would alternate.
        if endpoint == "fixtures" and self.settings.default_timezone != "UTC":
            params["timezone"] = self.settings.default_timezone
        request = Request(f"/{endpoint}", self.settings.timeout_seconds, params=params)
        context = RequestContext(self._lane, self.context.job.name, self.context.run_id)
        before = self.requests
        try:
            fetched = await self._fetcher.fetch(request, context, patience=_PATIENCE_SECONDS)
        except SettingsError:
            await record_refusal(self.store, self._key)
            raise
        except OutOfQuotaError as error:
            # Without a request the budget is spent, and its own message is clear.
            if self.requests > before and (why := await self._why_exhausted()):
                raise OutOfQuotaError(join([error.message, why]), until=error.until) from error
            raise
        finally:
            self.context.count_requests(self.requests - before)
        outcome, reason = fetched.verdict.outcome, fetched.verdict.reason
        if outcome not in (Outcome.OK, Outcome.EMPTY):
            self.context.log.warning(
                "api.request_failed",
                endpoint=endpoint,
                parameters=params,
                outcome=outcome,
                reason=reason,
            )
        self.refusal = reason if outcome in _REFUSED else None
        if fetched.response is None or outcome not in (Outcome.OK, Outcome.EMPTY, *_REFUSED):
            self._unreadable += 1
            self.warn(
                msg(
                    "The response of /{endpoint} cannot be read: {reason}.",
                    endpoint=endpoint,
                    reason=reason,
                )
            )
            return None
        self._readable += 1
        headers = {k: v for k, v in fetched.response.headers.items() if "ratelimit" in k}
        if self.refusal is not None:
            self.warn(
                msg(
                    "The API refused /{endpoint}: {reason}.",
                    endpoint=endpoint,
                    reason=reason.rstrip("."),
                )
            )
        status = fetched.response.status
        parsed = fetched.verdict.content if fetched.body else None
        body = fetched.body or _NO_CONTENT
        response = ApiResponse(endpoint, params, body, status, headers, parsed)
        if self.refusal is None:
            return response
        if fetched.body:
            await self.load(response)
        return None

    async def _why_exhausted(self) -> str | None:
        return await why_exhausted(self._client, self.settings.base_url, self.now)

    async def load(
        self, response: ApiResponse | None, leagues: Collection[int] | None = None
    ) -> bool:
        """Load a response into the mirror and commit; return whether it was accepted.

        A response that the guard holds counts as refused.
        """
        if response is None:
            return False
        try:
            version = await load(
                self.store,
                [response],
                run=self.context.run_id,
                retention_days=self.settings.change_retention_days,
                leagues=leagues,
            )
        except UnreadableResponseError as error:
            self._readable -= 1
            self._unreadable += 1
            self.warn(error.message)
            return False
        except GuardError as error:
            async with self.store.connection() as conn:
                self.held.add(response, leagues, error.finding, await reserve_order(conn))
            self.refusal = error.message
            return False
        if version is not None:
            self.changed += sum(count.total for count in version.counts.values())
        return True

    async def progress(self, done: int, total: int | None, note: str) -> None:
        await self.context.progress(done, total, note)


@asynccontextmanager
async def _open_client(context: RunContext) -> AsyncIterator[FootballClient]:
    football = context.settings.section(FootballSettings)
    if football.api_key is None:
        raise SettingsError(
            msg("No API key is set for API-Football."),
            remedy=msg("Set API_FOOTBALL_KEY, or football.api_key in a settings file."),
        )
    rules = ClientOptions("Hasat", {"x-apisports-key": football.api_key.get_secret_value()})
    now = await context.store.now()
    async with Client(rules) as client:
        budget = Budget(
            context.store,
            football_upstream(context.settings),
            waiting=context.waiting,
            is_used_up=partial(is_used_up, client, football.base_url, now),
        )
        fetcher = Fetcher(
            context.store,
            budget,
            client,
            SOURCE,
            football.base_url,
            classify,
            remaining,
            waiting=context.waiting,
        )
        try:
            api = FootballClient(context, client, fetcher, now)
            await api.check_key()
            yield api
        finally:
            await budget.close()


Collector = Callable[[FootballClient], Awaitable[None]]


def run_with_client(collect: Collector) -> Callable[[RunContext], Awaitable[JobOutcome]]:
    """Return a job's function that calls `collect` with a client and reports the outcome.

    A run that applies a hold loads its responses and sends no request.
    """

    async def run(context: RunContext) -> JobOutcome:
        if context.approving is not None:
            retention = context.settings.section(FootballSettings).change_retention_days
            return JobOutcome(rows_changed=await load_held(context, retention))
        async with _open_client(context) as api:
            try:
                await collect(api)
            except OutOfQuotaError as error:
                if api.held:
                    raise api.held.error({*api.warnings, error.message}) from error
                return JobOutcome("out_of_quota", api.changed, message=error.message)
        if api.held:
            raise api.held.error(api.warnings)
        if api.idle_reasons and not api.requests and api.is_manual and not api.is_named:
            api.report_idle(msg("Set only_league_id to fetch a league in any case."))
        message = join([*sorted(api.warnings), *api.idle_reasons]) or None
        if api.is_all_unreadable:
            raise BrokenAnswerError(
                message or "",
                remedy=msg("The responses are in raw.set_aside. Run the job again later."),
            )
        return JobOutcome("done" if api.requests else "nothing", api.changed, message=message)

    return run


async def record_refusal(
    store: Store, endpoint: str, league: int = 0, season: int = 0, team: int = 0
) -> None:
    async with store.connection() as conn:
        await conn.execute(
            load_query(_PACKAGE, "record_refusal"),
            {"endpoint": endpoint, "league": league, "season": season, "team": team},
        )


async def load_refusals(store: Store, endpoint: str, since: datetime) -> set[tuple[int, int]]:
    """Return the leagues and seasons that an endpoint refused since a time."""
    async with store.connection() as conn:
        cursor = await conn.execute(
            "SELECT league_id, season FROM football.refusal"
            " WHERE endpoint = %s AND refused_at > %s",
            [endpoint, since],
        )
        return {(league, season) for league, season in await cursor.fetchall()}
