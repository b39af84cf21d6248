"""Loading of responses into the mirror, compared with a simple model."""

import json
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from hasat.sources.football import source
from hasat.sources.football.endpoints import MIRRORED
from hasat.sources.football.ingest.loader import load
from hasat.sources.football.ingest.raw_store import ApiResponse
from hasat.sources.football.simulator.matches import Tempo
from hasat.sources.football.simulator.world import make_world
from hasat.store import MigrationSet, Store
from support.football_api import api_response
from support.samples import football_samples, sample_folders

pytestmark = pytest.mark.anyio

FOOTBALL = source.FOOTBALL.migration_set


@pytest.fixture
def migrations() -> list[MigrationSet]:
    return [FOOTBALL]


def fixture(
    number: int, *, league: int = 39, goals: tuple[Any, Any] = (0, 0), **blocks: Any
) -> Any:
    return {
        "fixture": {"id": number, "timestamp": 1700000000 + number, "status": {"short": "FT"}},
        "league": {"id": league, "season": 2024, "round": "Regular Season - 1"},
        "teams": {"home": {"id": 33}, "away": {"id": 34}},
        "goals": {"home": goals[0], "away": goals[1]},
        "score": {"fulltime": {"home": goals[0], "away": goals[1]}},
        **blocks,
    }


def event(minute: int, player: int) -> Any:
    return {
        "time": {"elapsed": minute, "extra": None},
        "team": {"id": 33},
        "player": {"id": player, "name": "P"},
        "type": "Goal",
        "detail": "Normal Goal",
    }


def injury(player: int, fixture: int, day: int, league: int = 39) -> Any:
    return {
        "player": {"id": player, "name": "P", "type": "Missing Fixture", "reason": "Knee"},
        "team": {"id": 33},
        "fixture": {"id": fixture, "timestamp": 1700006400 + 86400 * day},
        "league": {"id": league, "season": 2024},
    }


def day(number: int) -> str:
    return f"2023-11-{15 + number}"


async def load_responses(store: Store, *responses: ApiResponse, **options: Any) -> Any:
    return await load(store, responses, run=None, retention_days=30, **options)


async def rows(store: Store, query: Any) -> list[tuple[Any, ...]]:
    async with store.connection() as conn:
        return await (await conn.execute(query)).fetchall()


async def keys(store: Store, dataset: str) -> list[str]:
    return [key for (key,) in await rows(store, f"SELECT key FROM core.{dataset} ORDER BY key")]


async def test_typed_columns_match_body(store: Store) -> None:
    await load_responses(
        store, api_response("fixtures", [fixture(7, goals=(2, None))], date="2024-01-01")
    )
    found = await rows(
        store,
        "SELECT fixture_id, league_id, season, status_short, goals_home, goals_away, home_team_id,"
        " extract(epoch FROM date)::bigint, score->'fulltime'->'home' FROM core.fixtures",
    )
    assert found == [(7, 39, 2024, "FT", 2, None, 33, 1700000007, 2)]


@pytest.mark.parametrize("odd", ["two", 1.5, 10**30, True, [], None])
async def test_unexpected_value_is_mirrored(store: Store, odd: Any) -> None:
    await load_responses(store, api_response("fixtures", [fixture(7, goals=(odd, 1))], ids="7"))
    [(body, goals)] = await rows(store, "SELECT body, goals_home FROM core.fixtures")
    assert body["goals"]["home"] == odd
    assert goals in (None, 1)


async def test_only_event_of_match_can_be_withdrawn(store: Store) -> None:
    world = make_world(5, datetime(2026, 8, 1, tzinfo=UTC), 2, tempo=Tempo(corrected_share=0.5))
    match = next(m for m in world.matches.values() if m.is_corrected and len(m.goals) == 1)
    for days, events in ((1, 1), (3, 0)):
        moment = match.at(match.kick_off + timedelta(days=days))
        published = {**moment.body(), **moment.blocks()}
        published["events"] = [one for one in published["events"] if one["type"] == "Goal"]
        await load_responses(store, api_response("fixtures", [published], ids=str(match.id)))
        assert len(await keys(store, "fixture_events")) == len(moment.goals) == events
        # A response without details removes nothing.
        empty: dict[str, Any] = {name: [] for name in moment.blocks()}
        await load_responses(
            store, api_response("fixtures", [moment.body() | empty], ids=str(match.id))
        )
        assert len(await keys(store, "fixture_events")) == events
        assert len(await keys(store, "fixture_lineups")) == 2


async def test_withdrawn_only_goal_is_removed_by_events_response(store: Store) -> None:
    blocks: dict[str, Any] = {"lineups": [], "statistics": [], "players": []}
    card = event(9, 3) | {"type": "Card", "detail": "Yellow Card"}
    first = fixture(7, goals=(1, 0), events=[event(5, 2), card], **blocks)
    other = fixture(8, goals=(1, 0), events=[event(5, 2)], **blocks)
    await load_responses(store, api_response("fixtures", [first, other], ids="7-8"))
    nothing = fixture(7, goals=(0, 0), events=[], **blocks)
    lost = fixture(8, goals=(1, 0), events=[], **blocks)
    await load_responses(store, api_response("fixtures", [nothing, lost], ids="7-8"))
    # The score proves that there was no goal, but nothing about the card or the other match.
    assert await keys(store, "fixture_events") == ["7:9:33:Card:3", "8:5:33:Goal:2"]


async def test_corrected_score_is_a_change_and_repeated_body_is_none(
    store: Store,
) -> None:
    await load_responses(store, api_response("fixtures", [fixture(7, goals=(1, 0))], ids="7"))
    again = await load_responses(
        store, api_response("fixtures", [fixture(7, goals=(1, 0))], date="2024-01-01")
    )
    assert not again.changed
    corrected = await load_responses(
        store, api_response("fixtures", [fixture(7, goals=(1, 1))], ids="7")
    )
    assert corrected.counts["fixtures"].modified == 1
    [(before, after)] = await rows(
        store,
        "SELECT before->'goals', body->'goals' FROM feed.change"
        " WHERE dataset = 'fixtures' AND kind = 2",
    )
    assert (before, after) == ({"home": 1, "away": 0}, {"home": 1, "away": 1})


async def test_inserted_event_is_one_change(store: Store) -> None:
    blocks: dict[str, Any] = {"lineups": [], "statistics": [], "players": []}
    first = fixture(7, events=[event(10, 1), event(80, 2)], **blocks)
    await load_responses(store, api_response("fixtures", [first], ids="7"))
    second = fixture(7, events=[event(5, 3), event(10, 1), event(80, 2)], **blocks)
    version = await load_responses(store, api_response("fixtures", [second], ids="7"))
    assert (version.counts["fixture_events"].added, version.counts["fixture_events"].total) == (
        1,
        1,
    )
    withdrawn = fixture(7, events=[event(10, 1), event(80, 2)], **blocks)
    version = await load_responses(store, api_response("fixtures", [withdrawn], ids="7"))
    assert version.counts["fixture_events"].removed == 1
    assert len(await keys(store, "fixture_events")) == 2


async def test_only_followed_leagues_are_loaded(store: Store) -> None:
    everything = [injury(1, 7, 0), injury(2, 8, 0, league=140)]
    await load_responses(
        store, api_response("injuries", everything, date=day(0)), leagues={39, 140}
    )
    await load_responses(store, api_response("injuries", [], date=day(0)), leagues={39})
    assert await keys(store, "injuries") == ["8:33:2"]


async def test_record_moved_to_other_league_in_one_load_is_removed(store: Store) -> None:
    both = (
        api_response("injuries", [injury(1, 7, 0)], date=day(0)),
        api_response("injuries", [injury(1, 7, 0, league=140)], date=day(0)),
    )
    await load_responses(store, *both, leagues={39})
    assert await keys(store, "injuries") == []


async def test_relisted_season_loses_missing_records(store: Store) -> None:
    season = {"league": "39", "season": "2024"}
    other = fixture(9, league=140)
    await load_responses(store, api_response("fixtures", [other], ids="9"))
    await load_responses(store, api_response("fixtures", [fixture(7), fixture(8)], **season))
    await load_responses(store, api_response("fixtures", [fixture(8)], **season))
    assert await keys(store, "fixtures") == ["8", "9"]
    await load_responses(store, api_response("fixtures", [], **season))
    assert await keys(store, "fixtures") == ["8", "9"]


async def test_response_with_missing_rows_removes_nothing(store: Store) -> None:
    season = {"league": "39", "season": "2024"}
    await load_responses(store, api_response("fixtures", [fixture(7), fixture(8)], **season))
    cut = api_response("fixtures", [fixture(8, goals=(3, 0))], **season)
    published = json.loads(cut.body) | {"results": 2}
    await load_responses(store, ApiResponse("fixtures", season, json.dumps(published).encode()))
    assert await keys(store, "fixtures") == ["7", "8"]
    assert await rows(store, "SELECT goals_home FROM core.fixtures ORDER BY key") == [(0,), (3,)]


async def test_unreadable_element_is_quarantined_and_removes_nothing(store: Store) -> None:
    season = {"league": "39", "season": "2024"}
    await load_responses(store, api_response("fixtures", [fixture(7), fixture(8)], **season))
    await load_responses(
        store, api_response("fixtures", [fixture(7), {"fixture": {"id": "?"}}], **season)
    )
    assert await keys(store, "fixtures") == ["7", "8"]
    [(source, reason, content)] = await rows(
        store, "SELECT source, reason, content FROM raw.set_aside"
    )
    assert source == "football"
    assert "fixture.id" in reason
    assert json.loads(content) == {"fixture": {"id": "?"}}


async def test_partial_response_adds_and_never_overwrites(store: Store) -> None:
    whole = {"team": {"id": 33}, "formation": "4-4-2", "startXI": [1], "substitutes": [2]}
    part = {"team": {"id": 33}, "startXI": [1]}
    filtered = api_response("fixtures/lineups", [part], fixture="7", type="startXI")
    await load_responses(store, filtered)
    assert await rows(store, "SELECT body FROM core.fixture_lineups") == [(part,)]
    await load_responses(store, api_response("fixtures/lineups", [whole], fixture="7"))
    await load_responses(store, filtered)
    assert await rows(store, "SELECT body FROM core.fixture_lineups") == [(whole,)]


async def test_record_moved_to_other_scope_and_then_missing_is_removed(store: Store) -> None:
    """In one load, with the mirrored record in a third scope."""
    await load_responses(store, api_response("injuries", [injury(1, 7, 0)], date=day(0)))
    moved = api_response("injuries", [injury(1, 7, 1)], date=day(1))
    await load_responses(store, moved, api_response("injuries", [], date=day(1)))
    assert await keys(store, "injuries") == []


async def test_partial_response_restores_record_removed_in_same_load(store: Store) -> None:
    home, away = ({"team": {"id": team}, "formation": "4-4-2"} for team in (33, 34))
    part = {"team": {"id": 33}, "startXI": [1]}
    await load_responses(store, api_response("fixtures/lineups", [home, away], fixture="7"))
    gone = api_response("fixtures/lineups", [away], fixture="7")
    await load_responses(
        store, gone, api_response("fixtures/lineups", [part], fixture="7", type="startXI")
    )
    assert await rows(store, "SELECT body FROM core.fixture_lineups ORDER BY key") == [
        (part,),
        (away,),
    ]


async def test_identical_responses_share_one_row(store: Store) -> None:
    first = api_response("fixtures", [fixture(7)], ids="7")
    second = api_response("fixtures", [fixture(7, goals=(1, 0))], ids="7")
    for one in (first, first, second, first):
        await load_responses(store, one)
    kept = await rows(
        store,
        "SELECT endpoint, requested_params, times, body->'results', last_fetched_at >= fetched_at"
        " FROM raw.api_responses ORDER BY fetched_at",
    )
    assert kept == [("/fixtures", {"ids": "7"}, times, 1, True) for times in (2, 1, 1)]


async def test_error_response_is_stored_and_changes_nothing(store: Store) -> None:
    await load_responses(store, api_response("fixtures", [fixture(7)], league="39", season="2024"))
    body = json.dumps({"get": "fixtures", "errors": {"plan": "no"}, "response": []}).encode()
    refused = ApiResponse("fixtures", {"league": "39", "season": "2024"}, body)
    assert await load_responses(store, refused) is None
    assert await keys(store, "fixtures") == ["7"]
    [(errors,)] = await rows(
        store, "SELECT errors FROM raw.api_responses WHERE errors <> '{}'::jsonb"
    )
    assert errors == {"plan": "no"}


async def test_mirror_is_independent_of_grouping_of_responses(store: Store) -> None:
    """Load injuries by day, season and match in random steps, and compare with a model."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    dice = random.Random(seed)
    truth: dict[str, Any] = {}
    waiting: list[ApiResponse] = []
    for _ in range(150):
        match dice.choice(["day", "fixture"] * 5 + ["season"]):
            case "day":
                number = dice.randrange(3)
                published = [injury(p, dice.randrange(4), number) for p in _some(dice)]
                mine = [k for k, v in truth.items() if v["fixture"]["timestamp"] == _at(number)]
                waiting.append(api_response("injuries", published, date=day(number)))
            case "season":
                published = [injury(p, dice.randrange(4), dice.randrange(3)) for p in _some(dice)]
                mine = list(truth)
                waiting.append(api_response("injuries", published, league="39", season="2024"))
            case _:
                match_ = dice.randrange(4)
                published = [injury(p, match_, dice.randrange(3)) for p in _some(dice)]
                mine = [k for k, v in truth.items() if v["fixture"]["id"] == match_]
                waiting.append(api_response("injuries", published, fixture=str(match_)))
        for key in mine:
            del truth[key]
        truth |= {f"{one['fixture']['id']}:33:{one['player']['id']}": one for one in published}
        if dice.random() < 0.3:
            await load_responses(store, *waiting)
            waiting.clear()
            assert dict(await rows(store, "SELECT key, body FROM core.injuries")) == truth


def _some(dice: random.Random) -> list[int]:
    return dice.sample(range(1, 6), dice.randint(0, 4))


def _at(number: int) -> int:
    return 1700006400 + 86400 * number


@pytest.mark.parametrize("folder", sample_folders("football"), ids=lambda path: path.parent.name)
async def test_recorded_responses_are_stored_and_mirrored(store: Store, folder: Path) -> None:
    paths = [path for path in football_samples() if path.is_relative_to(folder)]
    for path in paths:
        published = json.loads(path.read_bytes())
        parameters = published["parameters"] if isinstance(published["parameters"], dict) else {}
        await load_responses(store, ApiResponse(published["get"], parameters, path.read_bytes()))
    [(stored,)] = await rows(store, "SELECT sum(times) FROM raw.api_responses")
    assert stored == len(paths)
    assert await rows(store, "SELECT * FROM raw.set_aside") == []
    for name in (endpoint.dataset.name for endpoint in MIRRORED):
        [(count,)] = await rows(store, f"SELECT count(*) FROM core.{name}")
        assert count, name
