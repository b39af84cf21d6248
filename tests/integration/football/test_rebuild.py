"""Tables rebuilt from raw responses equal the loaded ones, unnoticed by consumers."""

import random
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest

from hasat.errors import NothingToDoError, UnavailableError
from hasat.feed.holds import GuardError
from hasat.feed.rebuild import RebuildResult, RebuildSummary
from hasat.jobs import Outcome
from hasat.settings import Settings
from hasat.sources.football import source
from hasat.sources.football.endpoints import DATASETS
from hasat.sources.football.ingest.loader import UnreadableResponseError, load
from hasat.sources.football.ingest.raw_files import write_month
from hasat.sources.football.ingest.raw_store import ApiResponse
from hasat.sources.football.ingest.rebuild import rebuild
from hasat.sources.football.ingest.scopes import BLOCKS
from hasat.sources.football.jobs.catalogue import RETENTION
from hasat.store import MigrationSet, Store
from hasat.testing.jobs import perform
from support.football_api import api_response

pytestmark = pytest.mark.anyio

FOOTBALL = source.FOOTBALL.migration_set
SAMPLES = Path(__file__).parents[3].parent / "shared" / "samples" / "football"


@pytest.fixture
def migrations() -> list[MigrationSet]:
    return [FOOTBALL]


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
    """Return all tables with all columns, and the heads of the feed."""
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


def results_of(done: RebuildSummary) -> set[str]:
    return {one.how for one in done.datasets}


async def load_random_history(store: Store, dice: random.Random) -> None:
    """Load responses of all kinds that correct, repeat and contradict each other."""
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
                published = [fixture(n, league=league, goals=dice.randrange(3)) for n in some]
                one = api_response("fixtures", published, **season)
                leagues = None
            case 1:
                published = [fixture(n, league=dice.choice((39, 140))) for n in some]
                one = api_response("fixtures", published, date="2024-01-01")
            case 2:
                published = [details(n, *dice.sample(range(1, 5), dice.randrange(4))) for n in some]
                # The last match has no details, or only a score without goals.
                published[-1:] = [one | {block: [] for block in BLOCKS} for one in published[-1:]]
                one = api_response("fixtures", published, ids="-".join(map(str, some)))
                leagues = None
            case 3:
                published = [
                    injury(p, number, dice.randrange(3), dice.choice((39, 140))) for p in some
                ]
                one = api_response("injuries", published, date=day)
            case 4:
                published = [injury(p, number, dice.randrange(3), league) for p in some]
                one = api_response("injuries", published, **season)
                leagues = None
            case 5:
                published = [{"team": {"id": 33}, "startXI": some}]
                one = api_response(
                    "fixtures/lineups", published, fixture=str(number), type="startXI"
                )
                leagues = None
            case 6:
                lines = [{"team": {"id": p}, "group": "A", "points": p} for p in some]
                tables = {"league": {"id": league, "season": 2024, "standings": [lines]}}
                one = api_response("standings", [tables] if some else [], **season)
                leagues = None
            case _:
                published = [_event(p) for p in some] + ["?"] * dice.randrange(2)
                one = api_response("fixtures/events", published, fixture=str(number))
                leagues = None
        if leagues is None:
            said.append((one, leagues))
        await load_any(store, one, leagues)


async def load_any(store: Store, one: ApiResponse, leagues: set[int] | None) -> None:
    """Load a response; an unreadable one is stored and changes nothing else."""
    with suppress(UnreadableResponseError):
        await load(store, [one], run=None, retention_days=30, leagues=leagues)


async def test_rebuild_of_random_history_gives_same_tables(
    store: Store, settings: Settings
) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    dice = random.Random(seed)
    await load_random_history(store, dice)
    before = await everything(store)
    assert results_of(await rebuild(store, settings)) == {"intact"}
    assert await everything(store) == before
    await execute(
        store,
        "DELETE FROM core.fixtures WHERE fixture_id % 2 = 0",
        """UPDATE core.fixtures SET body = '{"fixture": {"id": 1}}'""",
        "TRUNCATE core.injuries, core.standings",
        "INSERT INTO core.fixture_events (key, body, digest) VALUES ('9:x', '{}', '')",
    )
    assert await everything(store) != before
    assert "repaired" in results_of(await rebuild(store, settings))
    assert await everything(store) == before


async def details_of(store: Store) -> dict[str, set[int]]:
    """Return the matches that have records in each dataset of details."""
    found = {}
    async with store.connection() as conn:
        for block in BLOCKS:
            cursor = await conn.execute(f"SELECT fixture_id FROM core.fixture_{block}")
            found[block] = {number for (number,) in await cursor.fetchall()}
    return found


async def test_details_leave_mirror_with_their_match(store: Store, settings: Settings) -> None:
    season = {"league": "39", "season": "2024"}
    both = api_response("fixtures", [fixture(1), fixture(2)], **season)
    one = api_response("fixtures", [fixture(2)], **season)
    published = api_response("fixtures", [details(1, 3), details(2, 3)], ids="1-2")
    for response in (both, published):
        await load(store, [response], run=None, retention_days=30)
    assert await details_of(store) == {key: {1, 2} for key in BLOCKS}
    version = await load(store, [one], run=None, retention_days=30)
    assert version is not None
    assert await details_of(store) == {key: {2} for key in BLOCKS}
    # One version has a change for every removed record.
    removed = {name: count.removed for name, count in version.counts.items()}
    assert removed == {"fixtures": 1, **{f"fixture_{block}": 1 for block in BLOCKS}}
    # The match is back without details, which are fetched again.
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


async def test_orphaned_details_are_removed_with_next_listing(
    store: Store, settings: Settings
) -> None:
    season = {"league": "39", "season": "2024"}
    for response in (
        api_response("fixtures", [details(1, 3), details(2, 3)], ids="1-2"),
        api_response("fixtures", [fixture(2)], **season),
        api_response("fixtures/events", [_event(3)], fixture="1"),
    ):
        await load(store, [response], run=None, retention_days=30)
    await execute(store, "INSERT INTO football.fixture_told VALUES (1, now(), now())")
    assert (await details_of(store))["events"] == {1, 2}
    await load(
        store, [api_response("fixtures", [fixture(2)], **season)], run=None, retention_days=30
    )
    assert (await details_of(store))["events"] == {2}
    assert results_of(await rebuild(store, settings)) == {"intact"}


async def test_matches_and_details_match_model_live_and_rebuilt(
    store: Store, settings: Settings
) -> None:
    """Compare every step with a simple model, and the rebuilt tables with the last step."""
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
                published = [fixture(number, league=league) for number in some]
                one = api_response("fixtures", published, league=str(league), season="2024")
                for number in [n for n, of in league_of.items() if of == league and n not in some]:
                    del league_of[number]
                    events.pop(number, None)
                league_of |= dict.fromkeys(some, league)
            case 2:
                published = [details(number, *players) for number in some]
                one = api_response("fixtures", published, ids="-".join(map(str, some)))
                league_of |= dict.fromkeys(some, 39)
                events |= {number: set(players) for number in some}
            case _:
                published = [_event(player) for player in players]
                one = api_response("fixtures/events", published, fixture=str(some[0]))
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
    assert results_of(await rebuild(store, settings)) == {"intact"}
    tables = ", ".join(f"core.fixture_{block}" for block in BLOCKS)
    await execute(store, f"TRUNCATE core.fixtures, {tables}")
    await rebuild(store, settings)
    assert await everything(store) == state


async def test_rebuild_needs_raw_responses_only(store: Store, settings: Settings) -> None:
    """Only raw responses were saved: no tables, heads or changes."""
    seasons = [[fixture(1000 * n + number) for number in range(300)] for n in range(9)]
    for number, matches in enumerate(seasons):
        one = api_response("fixtures", matches, league=str(number), season="2024")
        await load(store, [one], run=None, retention_days=30)
    before = await everything(store)
    await execute(store, "TRUNCATE core.fixtures, feed.change, feed.version_dataset, feed.head")
    done = {one.dataset: one for one in (await rebuild(store, settings)).datasets}
    assert (done["fixtures"].how, done["fixtures"].records) == ("new_epoch", 2700)
    after = await everything(store)
    assert [row[:3] for row in after["fixtures"]] == [row[:3] for row in before["fixtures"]]
    assert results_of(await rebuild(store, settings)) == {"intact"}


async def test_rebuild_uses_order_of_receipt_not_clock(store: Store, settings: Settings) -> None:
    """The first response is received again last, after the clock was set back."""
    season = {"league": "39", "season": "2024"}
    first = api_response("fixtures", [fixture(7)], **season)
    for one in (first, api_response("fixtures", [fixture(7, goals=1)], ids="7"), first):
        await load(store, [one], run=None, retention_days=30)
    turned = "UPDATE raw.api_responses SET last_fetched_at = now() - times * interval '1 day'"
    await execute(store, turned)
    before = await everything(store)
    await execute(store, "TRUNCATE core.fixtures")
    await rebuild(store, settings)
    assert await everything(store) == before


async def test_rebuild_without_responses_changes_nothing(store: Store, settings: Settings) -> None:
    await load(
        store, [api_response("fixtures", [fixture(7)], ids="7")], run=None, retention_days=30
    )
    before = await everything(store)
    await execute(store, "DELETE FROM raw.api_responses")
    with pytest.raises(NothingToDoError, match="is empty"):
        await rebuild(store, settings)
    assert await everything(store) == before


async def approved_rebuild(store: Store, settings: Settings) -> dict[str, RebuildResult]:
    """Rebuild with every finding approved; no hold is recorded here, so none can differ."""
    done = await rebuild(store, settings, approving=10**9)
    return {one.dataset: one for one in done.datasets}


async def test_lost_responses_remove_nothing_without_approval(
    store: Store, settings: Settings
) -> None:
    for number in range(1, 4):
        one = api_response("fixtures", [fixture(number)], ids=str(number))
        await load(store, [one], run=None, retention_days=30)
    before = await everything(store)
    await execute(store, """DELETE FROM raw.api_responses WHERE requested_params->>'ids' = '1'""")
    with pytest.raises(GuardError, match=r"fixtures: removed 33\.33 %"):
        await rebuild(store, settings)
    assert await everything(store) == before
    done = await approved_rebuild(store, settings)
    assert (done["fixtures"].how, done["fixtures"].changes.removed) == ("changed", 1)
    # Now the table is damaged, too: consumers must start over.
    await execute(
        store,
        """DELETE FROM raw.api_responses WHERE requested_params->>'ids' = '2'""",
        "DELETE FROM core.fixtures",
    )
    done = await approved_rebuild(store, settings)
    assert (done["fixtures"].how, done["fixtures"].records) == ("new_epoch", 1)
    after = await everything(store)
    assert [row[0] for row in after["fixtures"]] == ["3"]
    [(_, _, epoch, seq, floor, _, records, digest, *_)] = after["head"]
    assert (seq, floor, records, digest) == (4, 4, 1, done["fixtures"].digest)
    assert epoch != before["head"][0][2]
    assert results_of(await rebuild(store, settings)) == {"intact"}


async def move_old_months(store: Store, settings: Settings) -> Outcome:
    return await perform(RETENTION, store, settings)


async def test_old_months_move_to_files_and_are_still_read(
    store: Store, settings: Settings
) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    dice = random.Random(seed)
    await load_random_history(store, dice)
    assert (await move_old_months(store, settings)).kind == "nothing"
    # The order of months and of receipt may differ: an old response may be received again.
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
    with pytest.raises(UnavailableError, match="differs from the file"):
        await rebuild(store, settings)
    assert await everything(store) == before


async def test_month_with_repeated_response_is_not_moved(
    store: Store, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = api_response("fixtures", [fixture(7)], ids="7")
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
