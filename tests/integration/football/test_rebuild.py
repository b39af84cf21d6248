"""CORE made of RAW again is the CORE that was loaded, and nobody who follows it notices."""

import json
import random
from contextlib import suppress
from importlib.resources import files
from pathlib import Path
from typing import Any

import psycopg
import pytest

from hasat.errors import HeldError, NothingToDoError, UnavailableError
from hasat.jobs import Outcome
from hasat.settings import Settings
from hasat.sources.football.datasets import DATASETS
from hasat.sources.football.ingest.loader import UnreadableResponseError, load
from hasat.sources.football.ingest.raw_files import write_month
from hasat.sources.football.ingest.raw_store import ApiResponse
from hasat.sources.football.ingest.rebuild import RebuildSummary, rebuild
from hasat.sources.football.ingest.scopes import BLOCKS
from hasat.sources.football.jobs.catalogue import RETENTION
from hasat.store import MigrationSet, Store
from hasat.testing.jobs import perform

pytestmark = pytest.mark.anyio

FOOTBALL = MigrationSet("football", files("hasat.sources.football") / "migrations")
SAMPLES = Path(__file__).parents[3].parent / "shared" / "samples" / "football"


@pytest.fixture
def migrations() -> list[MigrationSet]:
    return [FOOTBALL]


def answer(endpoint: str, response: Any, **parameters: str) -> ApiResponse:
    envelope = {"get": endpoint, "parameters": parameters, "errors": [], "response": response}
    return ApiResponse(endpoint, parameters, json.dumps(envelope).encode())


def fixture(number: int, *, league: int = 39, goals: int = 0, **blocks: Any) -> Any:
    return {
        "fixture": {"id": number, "timestamp": 1700000000 + number, "status": {"short": "FT"}},
        "league": {"id": league, "season": 2024},
        "goals": {"home": goals, "away": 0},
        **blocks,
    }


def details(number: int, *players: int) -> Any:
    return fixture(
        number,
        events=[_event(player) for player in players],
        lineups=[{"team": {"id": 33}, "startXI": list(players)}],
        statistics=[{"team": {"id": 33}, "statistics": []}],
        players=[{"team": {"id": 33}, "players": [{"player": {"id": p}} for p in players]}],
    )


def _event(player: int) -> Any:
    time = {"elapsed": player, "extra": None}
    detail = "Normal Goal" if player % 2 else "Missed Penalty"
    who = {"team": {"id": 33}, "player": {"id": player}}
    return {"time": time, **who, "type": "Goal", "detail": detail}


def injury(player: int, fixture: int, day: int, league: int) -> Any:
    return {
        "player": {"id": player, "name": "P"},
        "team": {"id": 33},
        "fixture": {"id": fixture, "timestamp": 1700006400 + 86400 * day},
        "league": {"id": league, "season": 2024},
    }


async def everything(store: Store) -> dict[str, list[Any]]:
    """CORE with all its columns, and what the feed says of it."""
    found = {}
    async with store.connection() as conn:
        for name in DATASETS:
            cursor = await conn.execute(f"SELECT * FROM core.{name} ORDER BY key")
            found[name] = await cursor.fetchall()
        cursor = await conn.execute("SELECT * FROM feed.head WHERE version IS NOT NULL ORDER BY 1")
        found["head"] = await cursor.fetchall()
        cursor = await conn.execute("SELECT * FROM feed.change ORDER BY dataset, seq")
        found["change"] = await cursor.fetchall()
        cursor = await conn.execute("SELECT * FROM feed.version_dataset ORDER BY 1, 2")
        found["version"] = await cursor.fetchall()
    return found


async def execute(store: Store, *statements: Any) -> None:
    async with store.connection() as conn:
        for statement in statements:
            await conn.execute(statement)


def hows(done: RebuildSummary) -> set[str]:
    return {one.how for one in done.datasets}


async def a_history(store: Store, dice: random.Random) -> None:
    """Answers of all kinds that correct, cover, repeat and contradict each other."""
    said: list[tuple[ApiResponse, Any]] = []
    for _ in range(50):
        if said and dice.random() < 0.3:
            await load_any(store, dice.choice(said)[0], None)
            continue
        some = dice.sample(range(1, 7), dice.randint(0, 4))
        number, league = dice.randrange(1, 5), dice.choice((39, 140))
        season = {"league": str(league), "season": "2024"}
        leagues = dice.choice((None, {39}, {39, 140}, {140}))
        day = f"2023-11-{15 + number % 3}"
        match dice.randrange(8):
            case 0:
                told = [fixture(n, league=league, goals=dice.randrange(3)) for n in some]
                one = answer("fixtures", told, **season)
                leagues = None
            case 1:
                told = [fixture(n, league=dice.choice((39, 140))) for n in some]
                one = answer("fixtures", told, date="2024-01-01")
            case 2:
                told = [details(n, *dice.sample(range(1, 5), dice.randrange(4))) for n in some]
                # Of the last one the API has no details, or only a score without goals.
                told[-1:] = [one | {block: [] for block in BLOCKS} for one in told[-1:]]
                one = answer("fixtures", told, ids="-".join(map(str, some)))
                leagues = None
            case 3:
                told = [injury(p, number, dice.randrange(3), dice.choice((39, 140))) for p in some]
                one = answer("injuries", told, date=day)
            case 4:
                told = [injury(p, number, dice.randrange(3), league) for p in some]
                one = answer("injuries", told, **season)
                leagues = None
            case 5:
                told = [{"team": {"id": 33}, "startXI": some}]
                one = answer("fixtures/lineups", told, fixture=str(number), type="startXI")
                leagues = None
            case 6:
                lines = [{"team": {"id": p}, "group": "A", "points": p} for p in some]
                tables = {"league": {"id": league, "season": 2024, "standings": [lines]}}
                one = answer("standings", [tables] if some else [], **season)
                leagues = None
            case _:
                told = [_event(p) for p in some] + ["?"] * dice.randrange(2)
                one = answer("fixtures/events", told, fixture=str(number))
                leagues = None
        if leagues is None:
            said.append((one, leagues))
        await load_any(store, one, leagues)


async def load_any(store: Store, one: ApiResponse, leagues: set[int] | None) -> None:
    """Load a response; one of which no record can be read is stored, and changes nothing else."""
    with suppress(UnreadableResponseError):
        await load(store, [one], run=None, retention_days=30, leagues=leagues)


async def test_any_history_of_answers_gives_the_same_core_again(
    store: Store, settings: Settings
) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    dice = random.Random(seed)
    await a_history(store, dice)
    before = await everything(store)
    assert hows(await rebuild(store, settings)) == {"intact"}
    assert await everything(store) == before
    await execute(
        store,
        "DELETE FROM core.fixtures WHERE fixture_id % 2 = 0",
        """UPDATE core.fixtures SET body = '{"fixture": {"id": 1}}'""",
        "TRUNCATE core.injuries, core.standings",
        "INSERT INTO core.fixture_events (key, body, digest) VALUES ('9:x', '{}', '')",
    )
    assert await everything(store) != before
    assert "repaired" in hows(await rebuild(store, settings))
    assert await everything(store) == before


async def details_of(store: Store) -> dict[str, set[int]]:
    """Return the matches that have records in each dataset of details."""
    found = {}
    async with store.connection() as conn:
        for block in BLOCKS:
            cursor = await conn.execute(f"SELECT fixture_id FROM core.fixture_{block}")
            found[block] = {number for (number,) in await cursor.fetchall()}
    return found


async def test_the_details_of_a_match_leave_the_mirror_with_it(
    store: Store, settings: Settings
) -> None:
    season = {"league": "39", "season": "2024"}
    both = answer("fixtures", [fixture(1), fixture(2)], **season)
    one = answer("fixtures", [fixture(2)], **season)
    told = answer("fixtures", [details(1, 3), details(2, 3)], ids="1-2")
    for response in (both, told):
        await load(store, [response], run=None, retention_days=30)
    assert await details_of(store) == {key: {1, 2} for key in BLOCKS}
    version = await load(store, [one], run=None, retention_days=30)
    assert version is not None
    assert await details_of(store) == {key: {2} for key in BLOCKS}
    # One version, and a change for every record that left.
    removed = {name: count.removed for name, count in version.counts.items()}
    assert removed == {"fixtures": 1, **{f"fixture_{block}": 1 for block in BLOCKS}}
    # The match is back: its details are asked for again, they are not there.
    await load(store, [both], run=None, retention_days=30)
    assert await details_of(store) == {key: {2} for key in BLOCKS}
    async with store.connection() as conn:
        notes = "SELECT fixture_id, details_at FROM football.fixture_told ORDER BY 1"
        before = await (await conn.execute(notes)).fetchall()
    assert [(number, at is None) for number, at in before] == [(1, True), (2, False)]
    state = await everything(store)
    await execute(store, "TRUNCATE core.fixture_events, football.fixture_told")
    await rebuild(store, settings)
    assert await everything(store) == state
    async with store.connection() as conn:
        after = await (await conn.execute(notes)).fetchall()
    assert [(number, at is None) for number, at in after] == [(1, True), (2, False)]


async def test_details_that_an_earlier_release_left_behind_leave_with_the_next_listing(
    store: Store, settings: Settings
) -> None:
    season = {"league": "39", "season": "2024"}
    for response in (
        answer("fixtures", [details(1, 3), details(2, 3)], ids="1-2"),
        answer("fixtures", [fixture(2)], **season),
        answer("fixtures/events", [_event(3)], fixture="1"),
    ):
        await load(store, [response], run=None, retention_days=30)
    await execute(store, "INSERT INTO football.fixture_told VALUES (1, now(), now())")
    assert (await details_of(store))["events"] == {1, 2}
    await load(store, [answer("fixtures", [fixture(2)], **season)], run=None, retention_days=30)
    assert (await details_of(store))["events"] == {2}
    assert hows(await rebuild(store, settings)) == {"intact"}


async def test_matches_come_and_go_with_their_details_live_and_in_a_rebuild(
    store: Store, settings: Settings
) -> None:
    """Compare every step with a plain model, and a rebuild with the end."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    dice = random.Random(seed)
    league_of: dict[int, int] = {}
    events: dict[int, set[int]] = {}
    for _ in range(60):
        some = dice.sample(range(1, 7), dice.randint(1, 4))
        players = dice.sample(range(1, 5), dice.randint(1, 3))
        league = dice.choice((39, 140))
        match dice.randrange(4):
            case 0 | 1:
                told = [fixture(number, league=league) for number in some]
                one = answer("fixtures", told, league=str(league), season="2024")
                for number in [n for n, of in league_of.items() if of == league and n not in some]:
                    del league_of[number]
                    events.pop(number, None)
                league_of |= dict.fromkeys(some, league)
            case 2:
                told = [details(number, *players) for number in some]
                one = answer("fixtures", told, ids="-".join(map(str, some)))
                league_of |= dict.fromkeys(some, 39)
                events |= {number: set(players) for number in some}
            case _:
                told = [_event(player) for player in players]
                one = answer("fixtures/events", told, fixture=str(some[0]))
                events[some[0]] = set(players)
        await load(store, [one], run=None, retention_days=30)
        async with store.connection() as conn:
            cursor = await conn.execute("SELECT fixture_id, league_id FROM core.fixtures")
            assert dict(await cursor.fetchall()) == league_of
            cursor = await conn.execute("SELECT fixture_id, player_id FROM core.fixture_events")
            assert set(await cursor.fetchall()) == {
                (n, p) for n, who in events.items() for p in who
            }
    state = await everything(store)
    assert hows(await rebuild(store, settings)) == {"intact"}
    tables = ", ".join(f"core.fixture_{block}" for block in BLOCKS)
    await execute(store, f"TRUNCATE core.fixtures, {tables}")
    await rebuild(store, settings)
    assert await everything(store) == state


async def test_core_is_made_of_raw_alone(store: Store, settings: Settings) -> None:
    """All that was saved is RAW: neither tables nor heads nor changes."""
    seasons = [[fixture(1000 * n + number) for number in range(300)] for n in range(9)]
    for number, matches in enumerate(seasons):
        one = answer("fixtures", matches, league=str(number), season="2024")
        await load(store, [one], run=None, retention_days=30)
    before = await everything(store)
    await execute(store, "TRUNCATE core.fixtures, feed.change, feed.version_dataset, feed.head")
    done = {one.dataset: one for one in (await rebuild(store, settings)).datasets}
    assert (done["fixtures"].how, done["fixtures"].records) == ("new_epoch", 2700)
    after = await everything(store)
    assert [row[:3] for row in after["fixtures"]] == [row[:3] for row in before["fixtures"]]
    assert hows(await rebuild(store, settings)) == {"intact"}


async def test_an_order_that_the_clock_denies_is_kept(store: Store, settings: Settings) -> None:
    """The first answer comes again last; and by then the clock was turned back."""
    season = {"league": "39", "season": "2024"}
    first = answer("fixtures", [fixture(7)], **season)
    for one in (first, answer("fixtures", [fixture(7, goals=1)], ids="7"), first):
        await load(store, [one], run=None, retention_days=30)
    turned = "UPDATE raw.api_responses SET last_fetched_at = now() - times * interval '1 day'"
    await execute(store, turned)
    before = await everything(store)
    await execute(store, "TRUNCATE core.fixtures")
    await rebuild(store, settings)
    assert await everything(store) == before


async def test_without_answers_core_is_left_alone(store: Store, settings: Settings) -> None:
    await load(store, [answer("fixtures", [fixture(7)], ids="7")], run=None, retention_days=30)
    before = await everything(store)
    await execute(store, "DELETE FROM raw.api_responses")
    with pytest.raises(NothingToDoError, match="no answers"):
        await rebuild(store, settings)
    assert await everything(store) == before


async def test_answers_that_got_lost_take_nothing_with_them_unless_told_to(
    store: Store, settings: Settings
) -> None:
    for number in range(1, 4):
        one = answer("fixtures", [fixture(number)], ids=str(number))
        await load(store, [one], run=None, retention_days=30)
    before = await everything(store)
    await execute(store, """DELETE FROM raw.api_responses WHERE requested_params->>'ids' = '1'""")
    with pytest.raises(HeldError, match="fixtures would lose 1 of 3"):
        await rebuild(store, settings)
    assert await everything(store) == before
    done = {one.dataset: one for one in (await rebuild(store, settings, force=True)).datasets}
    assert (done["fixtures"].how, done["fixtures"].changes.removed) == ("changed", 1)
    # Now the table is damaged as well: what followers have can no longer be led on.
    await execute(
        store,
        """DELETE FROM raw.api_responses WHERE requested_params->>'ids' = '2'""",
        "DELETE FROM core.fixtures",
    )
    done = {one.dataset: one for one in (await rebuild(store, settings, force=True)).datasets}
    assert (done["fixtures"].how, done["fixtures"].records) == ("new_epoch", 1)
    after = await everything(store)
    assert [row[0] for row in after["fixtures"]] == ["3"]
    [(_, _, epoch, seq, floor, _, records, digest, *_)] = after["head"]
    assert (seq, floor, records, digest) == (4, 4, 1, done["fixtures"].digest)
    assert epoch != before["head"][0][2]
    assert hows(await rebuild(store, settings)) == {"intact"}


async def move_old_months(store: Store, settings: Settings) -> Outcome:
    return await perform(RETENTION, store, settings)


async def test_old_months_are_moved_to_files_and_still_read(
    store: Store, settings: Settings
) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    dice = random.Random(seed)
    await a_history(store, dice)
    assert (await move_old_months(store, settings)).kind == "nothing"
    # Months and the order of answers need not agree: an old one may have come again yesterday.
    await execute(
        store,
        *(f"SELECT raw.ensure_month('2020-0{month}-15')" for month in (1, 2)),
        """UPDATE raw.api_responses SET fetched_at = '2020-01-15' WHERE seen_order % 3 = 0""",
        """UPDATE raw.api_responses SET fetched_at = '2020-02-15' WHERE seen_order % 3 = 1""",
    )
    before = await everything(store)
    moved = await move_old_months(store, settings)
    assert moved.detail == {"months": ["2020-01", "2020-02"]}
    assert (await move_old_months(store, settings)).kind == "nothing"
    async with store.connection() as conn:
        cursor = await conn.execute(
            "SELECT (SELECT count(*) FROM raw.api_responses WHERE fetched_at < '2021-01-01'),"
            " (SELECT sum(answers) FROM raw.api_archives)"
        )
        assert await cursor.fetchone() == (0, moved.rows_changed)
    await execute(store, "TRUNCATE core.fixtures, core.injuries, core.fixture_lineups")
    await rebuild(store, settings)
    assert await everything(store) == before
    [first, _] = sorted((settings.home / "archives" / "football_raw").iterdir())
    first.write_bytes(first.read_bytes()[:-1] + b"?")
    with pytest.raises(UnavailableError, match="not the file that was written"):
        await rebuild(store, settings)
    assert await everything(store) == before


async def test_a_month_whose_answer_comes_again_stays_until_it_is_quiet(
    store: Store, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = answer("fixtures", [fixture(7)], ids="7")
    await load(store, [one], run=None, retention_days=30)
    await execute(
        store,
        "SELECT raw.ensure_month('2020-01-15')",
        "UPDATE raw.api_responses SET fetched_at = '2020-01-15'",
    )
    url = store.url

    def and_meanwhile(*arguments: Any) -> Any:
        written = write_month(*arguments)
        with psycopg.connect(url) as conn:
            conn.execute("UPDATE raw.api_responses SET seen_order = seen_order + 1")
        return written

    monkeypatch.setattr("hasat.sources.football.ingest.raw_files.write_month", and_meanwhile)
    assert (await move_old_months(store, settings)).kind == "nothing"
    assert list((settings.home / "archives" / "football_raw").iterdir()) == []
    monkeypatch.undo()
    assert (await move_old_months(store, settings)).kind == "done"
