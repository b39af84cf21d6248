"""Answers in the mirror, compared with a second, simple notion of what they say."""

import json
import random
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from hasat.sources.football.datasets import DATASETS
from hasat.sources.football.ingest.loader import load
from hasat.sources.football.ingest.raw_store import ApiResponse
from hasat.sources.football.simulator.matches import Tempo
from hasat.sources.football.simulator.world import make_world
from hasat.store import MigrationSet, Store

pytestmark = pytest.mark.anyio

FOOTBALL = MigrationSet("football", files("hasat.sources.football") / "migrations")
SAMPLES = Path(__file__).parents[3].parent / "shared" / "samples" / "football"


@pytest.fixture
def migrations() -> list[MigrationSet]:
    return [FOOTBALL]


def answer(endpoint: str, response: Any, **parameters: str) -> ApiResponse:
    envelope = {
        "get": endpoint,
        "parameters": parameters or [],
        "errors": [],
        "results": len(response),
        "paging": {"current": 1, "total": 1},
        "response": response,
    }
    return ApiResponse(endpoint, parameters, json.dumps(envelope).encode())


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


async def feed(store: Store, *answers: ApiResponse, **options: Any) -> Any:
    return await load(store, answers, run=None, retention_days=30, **options)


async def rows(store: Store, query: Any) -> list[tuple[Any, ...]]:
    async with store.connection() as conn:
        return await (await conn.execute(query)).fetchall()


async def keys(store: Store, dataset: str) -> list[str]:
    return [key for (key,) in await rows(store, f"SELECT key FROM core.{dataset} ORDER BY key")]


async def test_typed_columns_say_what_the_body_says(store: Store) -> None:
    await feed(store, answer("fixtures", [fixture(7, goals=(2, None))], date="2024-01-01"))
    found = await rows(
        store,
        "SELECT fixture_id, league_id, season, status_short, goals_home, goals_away, home_team_id,"
        " extract(epoch FROM date)::bigint, score->'fulltime'->'home' FROM core.fixtures",
    )
    assert found == [(7, 39, 2024, "FT", 2, None, 33, 1700000007, 2)]


@pytest.mark.parametrize("odd", ["two", 1.5, 10**30, True, [], None])
async def test_an_odd_value_stops_nothing(store: Store, odd: Any) -> None:
    await feed(store, answer("fixtures", [fixture(7, goals=(odd, 1))], ids="7"))
    [(body, goals)] = await rows(store, "SELECT body, goals_home FROM core.fixtures")
    assert body["goals"]["home"] == odd
    assert goals in (None, 1)


async def test_the_only_event_of_a_match_can_be_withdrawn(store: Store) -> None:
    world = make_world(5, datetime(2026, 8, 1, tzinfo=UTC), 2, tempo=Tempo(corrected_share=0.5))
    match = next(m for m in world.matches.values() if m.is_corrected and len(m.goals) == 1)
    for days, events in ((1, 1), (3, 0)):
        moment = match.at(match.kick_off + timedelta(days=days))
        told = {**moment.body(), **moment.blocks()}
        await feed(store, answer("fixtures", [told], ids=str(match.id)))
        assert len(await keys(store, "fixture_events")) == len(moment.goals) == events
        # The API has lost its details for a while: that takes nothing away.
        empty: dict[str, Any] = {name: [] for name in moment.blocks()}
        await feed(store, answer("fixtures", [moment.body() | empty], ids=str(match.id)))
        assert len(await keys(store, "fixture_events")) == events
        assert len(await keys(store, "fixture_lineups")) == 2


async def test_a_withdrawn_only_goal_is_seen_where_only_events_are_told(store: Store) -> None:
    blocks: dict[str, Any] = {"lineups": [], "statistics": [], "players": []}
    card = event(9, 3) | {"type": "Card", "detail": "Yellow Card"}
    first = fixture(7, goals=(1, 0), events=[event(5, 2), card], **blocks)
    other = fixture(8, goals=(1, 0), events=[event(5, 2)], **blocks)
    await feed(store, answer("fixtures", [first, other], ids="7-8"))
    nothing = fixture(7, goals=(0, 0), events=[], **blocks)
    lost = fixture(8, goals=(1, 0), events=[], **blocks)
    await feed(store, answer("fixtures", [nothing, lost], ids="7-8"))
    # The score says that there was no goal; of the card, and of the other match, it says nothing.
    assert await keys(store, "fixture_events") == ["7:9:33:Card:3", "8:5:33:Goal:2"]


async def test_a_score_corrected_later_is_a_change_and_the_same_again_is_none(
    store: Store,
) -> None:
    await feed(store, answer("fixtures", [fixture(7, goals=(1, 0))], ids="7"))
    again = await feed(store, answer("fixtures", [fixture(7, goals=(1, 0))], date="2024-01-01"))
    assert not again.changed
    corrected = await feed(store, answer("fixtures", [fixture(7, goals=(1, 1))], ids="7"))
    assert corrected.counts["fixtures"].modified == 1
    [(before, after)] = await rows(
        store,
        "SELECT before->'goals', body->'goals' FROM feed.change"
        " WHERE dataset = 'fixtures' AND kind = 2",
    )
    assert (before, after) == ({"home": 1, "away": 0}, {"home": 1, "away": 1})


async def test_an_inserted_event_is_one_change(store: Store) -> None:
    blocks: dict[str, Any] = {"lineups": [], "statistics": [], "players": []}
    first = fixture(7, events=[event(10, 1), event(80, 2)], **blocks)
    await feed(store, answer("fixtures", [first], ids="7"))
    second = fixture(7, events=[event(5, 3), event(10, 1), event(80, 2)], **blocks)
    version = await feed(store, answer("fixtures", [second], ids="7"))
    assert (version.counts["fixture_events"].added, version.counts["fixture_events"].total) == (
        1,
        1,
    )
    withdrawn = fixture(7, events=[event(10, 1), event(80, 2)], **blocks)
    version = await feed(store, answer("fixtures", [withdrawn], ids="7"))
    assert version.counts["fixture_events"].removed == 1
    assert len(await keys(store, "fixture_events")) == 2


async def test_only_tracked_leagues_enter_and_others_are_left_alone(store: Store) -> None:
    everything = [injury(1, 7, 0), injury(2, 8, 0, league=140)]
    await feed(store, answer("injuries", everything, date=day(0)), leagues={39, 140})
    await feed(store, answer("injuries", [], date=day(0)), leagues={39})
    assert await keys(store, "injuries") == ["8:33:2"]


async def test_who_is_told_of_another_league_within_one_load_is_gone(store: Store) -> None:
    both = (
        answer("injuries", [injury(1, 7, 0)], date=day(0)),
        answer("injuries", [injury(1, 7, 0, league=140)], date=day(0)),
    )
    await feed(store, *both, leagues={39})
    assert await keys(store, "injuries") == []


async def test_a_season_that_is_told_again_loses_what_is_no_longer_in_it(store: Store) -> None:
    season = {"league": "39", "season": "2024"}
    other = fixture(9, league=140)
    await feed(store, answer("fixtures", [other], ids="9"))
    await feed(store, answer("fixtures", [fixture(7), fixture(8)], **season))
    await feed(store, answer("fixtures", [fixture(8)], **season))
    assert await keys(store, "fixtures") == ["8", "9"]
    await feed(store, answer("fixtures", [], **season))
    assert await keys(store, "fixtures") == ["8", "9"]


async def test_an_answer_with_fewer_rows_than_it_counts_removes_nobody(store: Store) -> None:
    season = {"league": "39", "season": "2024"}
    await feed(store, answer("fixtures", [fixture(7), fixture(8)], **season))
    cut = answer("fixtures", [fixture(8, goals=(3, 0))], **season)
    told = json.loads(cut.body) | {"results": 2}
    await feed(store, ApiResponse("fixtures", season, json.dumps(told).encode()))
    assert await keys(store, "fixtures") == ["7", "8"]
    assert await rows(store, "SELECT goals_home FROM core.fixtures ORDER BY key") == [(0,), (3,)]


async def test_an_unreadable_element_is_set_aside_and_removes_nobody(store: Store) -> None:
    season = {"league": "39", "season": "2024"}
    await feed(store, answer("fixtures", [fixture(7), fixture(8)], **season))
    await feed(store, answer("fixtures", [fixture(7), {"fixture": {"id": "?"}}], **season))
    assert await keys(store, "fixtures") == ["7", "8"]
    [(source, reason, content)] = await rows(
        store, "SELECT source, reason, content FROM raw.set_aside"
    )
    assert source == "football"
    assert "fixture.id" in reason
    assert json.loads(content) == {"fixture": {"id": "?"}}


async def test_a_partial_answer_fills_and_never_overwrites(store: Store) -> None:
    whole = {"team": {"id": 33}, "formation": "4-4-2", "startXI": [1], "substitutes": [2]}
    part = {"team": {"id": 33}, "startXI": [1]}
    filtered = answer("fixtures/lineups", [part], fixture="7", type="startXI")
    await feed(store, filtered)
    assert await rows(store, "SELECT body FROM core.fixture_lineups") == [(part,)]
    await feed(store, answer("fixtures/lineups", [whole], fixture="7"))
    await feed(store, filtered)
    assert await rows(store, "SELECT body FROM core.fixture_lineups") == [(whole,)]


async def test_who_is_told_elsewhere_and_then_no_more_is_gone(store: Store) -> None:
    """Both in one load: the mirror has the record where neither answer was about."""
    await feed(store, answer("injuries", [injury(1, 7, 0)], date=day(0)))
    moved = answer("injuries", [injury(1, 7, 1)], date=day(1))
    await feed(store, moved, answer("injuries", [], date=day(1)))
    assert await keys(store, "injuries") == []


async def test_a_part_fills_what_went_in_the_same_load(store: Store) -> None:
    home, away = ({"team": {"id": team}, "formation": "4-4-2"} for team in (33, 34))
    part = {"team": {"id": 33}, "startXI": [1]}
    await feed(store, answer("fixtures/lineups", [home, away], fixture="7"))
    gone = answer("fixtures/lineups", [away], fixture="7")
    await feed(store, gone, answer("fixtures/lineups", [part], fixture="7", type="startXI"))
    assert await rows(store, "SELECT body FROM core.fixture_lineups ORDER BY key") == [
        (part,),
        (away,),
    ]


async def test_the_same_answer_is_kept_once_and_another_beside_it(store: Store) -> None:
    first = answer("fixtures", [fixture(7)], ids="7")
    second = answer("fixtures", [fixture(7, goals=(1, 0))], ids="7")
    for one in (first, first, second, first):
        await feed(store, one)
    kept = await rows(
        store,
        "SELECT endpoint, requested_params, times, body->'results', last_fetched_at >= fetched_at"
        " FROM raw.api_responses ORDER BY fetched_at",
    )
    assert kept == [("/fixtures", {"ids": "7"}, times, 1, True) for times in (2, 1, 1)]


async def test_an_answer_with_errors_is_kept_and_changes_nothing(store: Store) -> None:
    await feed(store, answer("fixtures", [fixture(7)], league="39", season="2024"))
    body = json.dumps({"get": "fixtures", "errors": {"plan": "no"}, "response": []}).encode()
    refused = ApiResponse("fixtures", {"league": "39", "season": "2024"}, body)
    assert await feed(store, refused) is None
    assert await keys(store, "fixtures") == ["7"]
    [(errors,)] = await rows(
        store, "SELECT errors FROM raw.api_responses WHERE errors <> '{}'::jsonb"
    )
    assert errors == {"plan": "no"}


async def test_any_order_and_grouping_of_answers_gives_the_same_mirror(store: Store) -> None:
    """Injuries told by day, by season and by match, in random steps, against a plain model."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    dice = random.Random(seed)
    truth: dict[str, Any] = {}
    waiting: list[ApiResponse] = []
    for _ in range(150):
        match dice.choice(["day", "fixture"] * 5 + ["season"]):
            case "day":
                number = dice.randrange(3)
                told = [injury(p, dice.randrange(4), number) for p in _some(dice)]
                mine = [k for k, v in truth.items() if v["fixture"]["timestamp"] == _at(number)]
                waiting.append(answer("injuries", told, date=day(number)))
            case "season":
                told = [injury(p, dice.randrange(4), dice.randrange(3)) for p in _some(dice)]
                mine = list(truth)
                waiting.append(answer("injuries", told, league="39", season="2024"))
            case _:
                match_ = dice.randrange(4)
                told = [injury(p, match_, dice.randrange(3)) for p in _some(dice)]
                mine = [k for k, v in truth.items() if v["fixture"]["id"] == match_]
                waiting.append(answer("injuries", told, fixture=str(match_)))
        for key in mine:
            del truth[key]
        truth |= {f"{one['fixture']['id']}:33:{one['player']['id']}": one for one in told}
        if dice.random() < 0.3:
            await feed(store, *waiting)
            waiting.clear()
            assert dict(await rows(store, "SELECT key, body FROM core.injuries")) == truth


def _some(dice: random.Random) -> list[int]:
    return dice.sample(range(1, 6), dice.randint(0, 4))


def _at(number: int) -> int:
    return 1700006400 + 86400 * number


@pytest.mark.skipif(
    not SAMPLES.is_dir(), reason="the recorded answers are kept beside the repository, not in it"
)
async def test_every_recorded_answer_goes_through_raw_to_core(store: Store) -> None:
    paths = [p for p in sorted(SAMPLES.glob("*/*.json")) if not p.name.startswith("_")]
    for path in paths:
        told = json.loads(path.read_bytes())
        parameters = told["parameters"] if isinstance(told["parameters"], dict) else {}
        await feed(store, ApiResponse(told["get"], parameters, path.read_bytes()))
    [(kept,)] = await rows(store, "SELECT sum(times) FROM raw.api_responses")
    assert kept == len(paths)
    assert await rows(store, "SELECT * FROM raw.set_aside") == []
    for name in DATASETS:
        [(count,)] = await rows(store, f"SELECT count(*) FROM core.{name}")
        assert count, name
