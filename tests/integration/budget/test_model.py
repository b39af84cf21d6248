"""The budget against a simple model of it: random days, verdict by verdict.

HASAT_BUDGET_STEPS and HASAT_BUDGET_SEED make it longer, or repeat what failed.
"""

import math
import os
import random
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta

import pytest

from hasat.budget import Budget, EndpointLimit, Lane, Remaining, Upstream, declare
from hasat.store import Store
from support.budget_clock import FakeBudgetClock, acquire, fake_budget_clock

pytestmark = pytest.mark.anyio

STEPS = int(os.environ.get("HASAT_BUDGET_STEPS", "250"))
START = datetime(2026, 3, 10, 20, 30, tzinfo=UTC)

LANES = (
    Lane("high", keep=5, needs=40, early=True),
    Lane("low", keep=10, needs=20),
    Lane("backfill", keep=10, paced=True),
)


@dataclass
class Granted:
    """A grant as the model remembers it."""

    request: int
    day: str
    at: float
    early: bool
    endpoint: str
    settled: bool = False


@dataclass
class Model:
    """All rules in memory, in floats and loops; times are seconds, days are UTC days."""

    upstream: Upstream
    now: float
    sent: float = 0.0
    paced: float = 0.0
    slow: float = 1.0
    slowed: float = -1e9
    spent: dict[str, int] = field(default_factory=dict)
    foreign: dict[str, int] = field(default_factory=dict)
    stopped: set[tuple[str, str]] = field(default_factory=set)
    rest: dict[str, float] = field(default_factory=dict)
    endpoint_spent: dict[tuple[str, str], int] = field(default_factory=dict)
    endpoint_sent: dict[str, float] = field(default_factory=dict)
    usage: dict[tuple[str, str, int], int] = field(default_factory=dict)
    waiting: dict[str, float] = field(default_factory=dict)
    grants: list[Granted] = field(default_factory=list)

    def day(self) -> tuple[str, float]:
        """Today, and how many seconds of it are over."""
        moment = datetime.fromtimestamp(self.now, UTC)
        midnight = moment.replace(hour=0, minute=0, second=0, microsecond=0)
        return moment.date().isoformat(), (moment - midnight).total_seconds()

    def need(self, lane: Lane, today: str, over: float) -> float:
        """Return the needs of a lane for the rest of the day."""
        if lane.paced:
            return 0.0
        a_week = [(date.fromisoformat(today) - timedelta(days=n)).isoformat() for n in range(1, 8)]
        known = {day for day, _, _ in self.usage if day in a_week}
        hour, part = divmod(over / 3600, 1)

        def rest(slot: float) -> float:
            if not known:
                return lane.needs * (24 - slot) / 24
            used = dict.fromkeys(a_week, 0)
            for (day, name, h), units in self.usage.items():
                if day in known and name == lane.name and h >= slot:
                    used[day] += units
            # As much as on the same day of the week before, if that was more than usual.
            return max(sum(used.values()) / len(known), used[a_week[-1]])

        return rest(hour) + (rest(hour + 1) - rest(hour)) * part

    def judge(self, lane: Lane, cost: int, endpoint: str) -> tuple[str, float]:
        """refused, wait (and how long) or granted."""
        u = self.upstream
        today, over = self.day()
        assert u.day_limit is not None
        assert u.minute_limit is not None
        assert u.each_endpoint is not None
        assert u.each_endpoint.day is not None
        spent = self.spent.get(today, 0)
        left = max(0, u.day_limit - spent - self.foreign.get(today, 0))
        keep = max(lane.keep, math.ceil(u.day_limit * (1 - u.target) - 1e-6))
        keep = keep if lane.paced else lane.keep
        above = u.lanes[: u.lanes.index(lane)]
        promised = math.ceil(sum(self.need(one, today, over) for one in above) - 1e-6)
        spendable = left - keep - promised
        used = self.endpoint_spent.get((today, endpoint), 0)
        stopped = (today, endpoint) in self.stopped
        if stopped or spendable < cost or used + cost > u.each_endpoint.day:
            return "refused", 0.0
        rate = u.minute_limit * self.pace()
        waits = [
            self.sent + self.step(rate) - self.now,
            self.rest.get(endpoint, -1e9) - self.now,
            self.endpoint_sent.get(endpoint, -1e9) + u.each_endpoint.seconds - self.now,
        ]
        if not lane.early:
            waits.append(u.opening_seconds - over)
        if lane.paced:
            waits.append(self.pace_from(over) + self.interval(over, spendable, cost) - self.now)
        wait = max(waits)
        if wait <= 0 and any(
            # The database counts microseconds: a hair more is not more.
            self.waiting.get(one.name, -1e9) > self.now + 1e-6
            for one in above
            if not one.paced
        ):
            return "turn", wait
        return ("granted", wait) if wait <= 0 else ("wait", wait)

    def pace(self) -> float:
        # A float that is a hair below a full minute is one.
        return min(1.0, self.slow + math.floor(round(self.now - self.slowed, 6) / 60) / 10)

    @staticmethod
    def step(rate: float) -> float:
        return 60 / (rate - 1) if rate >= 20 else 60 / rate

    def pace_from(self, over: float) -> float:
        return max(self.paced, self.now - over + self.upstream.opening_seconds)

    def interval(self, over: float, spendable: int, cost: int) -> float:
        left = max(0.0, 86_400 - over - self.upstream.opening_seconds)
        return left * cost / max(1, spendable)

    def grant(self, lane: Lane, cost: int, endpoint: str, request: int) -> None:
        """Write down what the database granted."""
        u = self.upstream
        today, over = self.day()
        assert u.day_limit is not None
        assert u.minute_limit is not None
        rate = u.minute_limit * self.pace()
        step = self.step(rate)
        left = max(0, u.day_limit - self.spent.get(today, 0) - self.foreign.get(today, 0))
        if lane.paced:
            above = u.lanes[: u.lanes.index(lane)]
            promised = math.ceil(sum(self.need(one, today, over) for one in above) - 1e-6)
            keep = max(lane.keep, math.ceil(u.day_limit * (1 - u.target) - 1e-6))
            due = self.pace_from(over) + self.interval(over, left - keep - promised, cost)
            self.paced = min(self.now, max(due, self.now - 300))
        behind = step if rate >= 20 else 0.0
        self.sent = min(self.now, max(self.sent + step, self.now - behind))
        self.spent[today] = self.spent.get(today, 0) + cost
        spot = (today, endpoint)
        self.endpoint_spent[spot] = self.endpoint_spent.get(spot, 0) + cost
        self.endpoint_sent[endpoint] = self.now
        entry = (today, lane.name, int(over // 3600))
        self.usage[entry] = self.usage.get(entry, 0) + cost
        self.waiting.pop(lane.name, None)
        self.grants.append(Granted(request, today, self.now, over < u.opening_seconds, endpoint))

    def settle(self, grant: Granted, day_left: int | None) -> None:
        """Apply the headers of a response."""
        grant.settled = True
        if day_left is None or grant.early:
            return
        assert self.upstream.day_limit is not None
        seen = self.upstream.day_limit - day_left - self.spent[grant.day]
        self.foreign[grant.day] = max(self.foreign.get(grant.day, 0), seen)


async def test_every_verdict_matches_the_model(store: Store) -> None:
    seed = int(os.environ.get("HASAT_BUDGET_SEED", random.randrange(10**6)))
    print(f"HASAT_BUDGET_SEED={seed}")
    dice = random.Random(seed)
    upstream = Upstream(
        "u",
        day_limit=dice.choice((60, 120, 400)),
        minute_limit=dice.choice((12, 30, 60)),
        opening_seconds=600,
        lanes=LANES,
        each_endpoint=EndpointLimit(day=dice.choice((30, 90)), seconds=0.5),
    )
    start = START.timestamp()
    model = Model(upstream, start, sent=start, paced=start)
    verdicts: dict[str, int] = {}
    async with fake_budget_clock(store, START) as clock, Budget(store, upstream) as budget:
        await declare(clock.conn, upstream)
        first = await acquire(clock, "u", "high", endpoint="a")
        model.waiting["high"] = model.now + min(first["wait"], 5) + 1
        for step in range(STEPS):
            pause = dice.choice((0.0, 0.3, 1.0, 2.5, 5.0, 30.0, 400.0, dice.uniform(0, 9000)))
            model.now += round(pause, 3)
            await clock.turn_to(datetime.fromtimestamp(0, UTC) + timedelta(seconds=model.now))
            verdict = await one_step(clock, budget, model, dice)
            verdicts[verdict] = verdicts.get(verdict, 0) + 1
            assert model.spent.get(model.day()[0], 0) <= (upstream.day_limit or 0), step
    print(verdicts)


async def one_step(
    clock: FakeBudgetClock, budget: Budget, model: Model, dice: random.Random
) -> str:
    """Ask or settle once, in the database and in the model."""
    open_grants = [grant for grant in model.grants if not grant.settled]
    if open_grants and dice.random() < 0.3:
        return await settle_one(budget, model, dice, dice.choice(open_grants))
    lane = dice.choice(LANES)
    cost = dice.choice((1, 1, 1, 3))
    endpoint = dice.choice("ab")
    expected, wait = model.judge(lane, cost, endpoint)
    response = await acquire(clock, "u", lane.name, cost=cost, endpoint=endpoint)
    verdict: str = response["verdict"]
    where = (lane.name, cost, endpoint, model.now, expected, wait, response)
    if expected == "turn":
        assert verdict == "wait", where
        assert response["reason"] == "turn" or abs(wait) <= 0.002, where
    elif expected == "refused" or abs(wait) > 0.002:
        assert verdict == expected, where
    if verdict == "wait" and expected == "wait":
        assert response["wait"] == pytest.approx(wait, abs=0.002), where
    if verdict == "wait" and response["reason"] in ("minute", "paused", "paced", "turn"):
        model.waiting[lane.name] = model.now + min(response["wait"], 5) + 1
    if verdict == "granted":
        model.grant(lane, cost, endpoint, response["request"])
    return verdict


async def settle_one(budget: Budget, model: Model, dice: random.Random, grant: Granted) -> str:
    """Any response; limits are those of the endpoint, for each has a window of its own here."""
    outcome = dice.choice(("ok", "ok", "empty", "transient", "slow", "minute_limited"))
    if dice.random() < 0.02:
        outcome = "day_exhausted"
    if outcome == "slow":
        await budget.slow_down(0.7)
        # BrowserErrors of one moment are about the same requests.
        if model.now > model.slowed:
            model.slow, model.slowed = max(0.1, model.pace() * 0.7), model.now
        return outcome
    assert model.upstream.day_limit is not None
    mine = model.upstream.day_limit - model.spent[grant.day]
    header = dice.choice((None, mine, mine + 5, max(0, mine - 3)))
    await budget.settle(grant.request, outcome, Remaining(day=header), retry_after=20)
    model.settle(grant, header)
    if outcome == "minute_limited":
        model.rest[grant.endpoint] = max(model.rest.get(grant.endpoint, 0), model.now + 20)
    elif outcome == "day_exhausted" and grant.early:
        opens = datetime.fromisoformat(f"{grant.day}T00:10:00+00:00").timestamp()
        model.rest[grant.endpoint] = max(model.rest.get(grant.endpoint, 0), opens)
    elif outcome == "day_exhausted":
        model.stopped.add((grant.day, grant.endpoint))
    return outcome
