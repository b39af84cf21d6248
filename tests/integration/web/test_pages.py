"""The pages over HTTP: HTML and JSON, both languages, forms and permissions."""

import asyncio
import html
import json
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime, timedelta

import httpx2
import pytest
from psycopg.types.json import Jsonb

from hasat.api.keys import create_key, list_keys, revoke_key
from hasat.budget import Budget
from hasat.console.runtime import source_migrations
from hasat.deliver import Event, publish_event
from hasat.deliver.outbox import create_deliveries, list_deliveries, save_failure, subscribe
from hasat.deliver.watchlists.lists import LOCAL, WatchListSpec, create_watchlist
from hasat.deliver.webhook_endpoints import Endpoint
from hasat.demo.scenes import all_scenes
from hasat.jobs.runs import list_runs
from hasat.settings import Settings
from hasat.source.installed import all_sources
from hasat.sources.football.endpoints import DATASETS as FOOTBALL
from hasat.sources.football.settings import FootballSettings, football_upstream
from hasat.sources.gib.datasets import DATASETS
from hasat.store import MigrationSet, Store
from hasat.testing.http import app_client
from hasat.web.site import build_site
from support import feed_toys
from support.complete_app import complete_app
from support.gib_lists import by_identifier, taxpayer_body
from support.parcels import NEIGHBOURHOOD, publish_features, street

pytestmark = [pytest.mark.anyio, pytest.mark.any_server]

OWN = {"Origin": "http://127.0.0.1", "Accept": "text/html"}
HERE = timedelta(hours=3)
BROWSER = {"Accept": "text/html,application/xhtml+xml"}
PATHS = {
    "/watchlists/{name}": "/watchlists/mine",
    "/runs/{run}": "/runs/1",
    "/changes/record": "/changes/record?dataset=einvoice&key=1234567890",
    "/parcels/record": f"/parcels/record?key={NEIGHBOURHOOD}/101/1",
    "/football/leagues/{league}/{season}": "/football/leagues/39/2026",
    "/football/matches/{fixture}": "/football/matches/7",
}
PREVIEW = {
    "measures": [
        {"subject": "einvoice", "what": "removed", "value": 50.0, "limit": 10.0, "exceeded": True}
    ],
    "lists": {"PK": {"users": 5, "rejected": 0, "bytes": 100}},
    "datasets": {"einvoice": {"added": 1, "modified": 2, "removed": 4_321, "total": 4_300}},
    "examples": {"einvoice": {"removed": [{"identifier": "9876543210", "title": "ÇIĞ <i>Ltd"}]}},
}


@pytest.fixture
def migrations() -> Sequence[MigrationSet]:
    return source_migrations()


@pytest.fixture
def settings(settings: Settings) -> Settings:
    leagues = [{"id": 39, "season": 2026, "name": "Premier League"}]
    football = type(settings.section(FootballSettings)).model_validate(
        settings.section(FootballSettings).model_dump() | {"tracked_leagues": leagues}
    )
    return settings.model_copy(update={"football": football})


def remote(settings: Settings) -> Settings:
    """Return settings of a server that requires authentication."""
    return settings.model_copy(
        update={"serve": settings.serve.model_copy(update={"host": "192.0.2.10"})}
    )


@pytest.fixture
async def client(settings: Settings, store: Store) -> AsyncIterator[httpx2.AsyncClient]:
    """A server with some changes, runs and deliveries."""
    await _fill(store)
    spec = WatchListSpec.model_validate(
        {
            "dataset": "einvoice",
            "keys": ["1234567890"],
            "channels": [{"type": "slack", "url": "https://hooks.example/secretpath"}],
        }
    )
    await create_watchlist(store, settings, DATASETS[0], "mine", LOCAL, spec)
    async with app_client(complete_app(settings, store)) as client:
        yield client


async def _fill(store: Store) -> None:
    before = by_identifier(taxpayer_body("1234567890", "IŞIK <b>A.Ş.</b>", "urn:mail:pk@isik.tr"))
    after = by_identifier(taxpayer_body("1234567890", "IŞIK HOLDİNG", "urn:mail:pk@isik.tr"))
    for state in (before, after):
        await feed_toys.run(store, state, dataset=DATASETS[0])
    await subscribe(store, [Endpoint("http", "https://hooks.example", "http")])
    async with store.connection() as conn:
        await conn.execute(
            "INSERT INTO jobs.run (job, trigger, state, outcome, started_at, finished_at, error)"
            " VALUES ('gib_sync', 'hand', 'finished', 'held', now(), now(), '<i>no</i>'),"
            " ('gone_job', 'hand', 'finished', 'failed', now(), now(), 'no')"
        )
        await conn.execute(
            "INSERT INTO feed.hold (id, job, source, datasets, params, runs, preview)"
            " VALUES (1, 'gib_sync', 'gib', '{einvoice}', '{}', '{1}', %s)",
            [Jsonb(PREVIEW)],
        )
        await conn.execute(
            "INSERT INTO feed.held_input (run, name, path, sha256, size, machine)"
            " SELECT 1, name, name, '', 0, 'attic-1' FROM unnest(ARRAY['PK', 'GB']) AS name"
        )
        await publish_event(conn, Event("SyncCompleted", "Info", "message", {}))
    await create_deliveries(store)


async def _get(client: httpx2.AsyncClient, path: str, **headers: str) -> httpx2.Response:
    return await client.get(path, headers={**BROWSER, **headers})


async def test_every_page_exists_in_both_languages_and_as_json(
    client: httpx2.AsyncClient, store: Store
) -> None:
    match = {"fixture": {"id": 7, "status": {"short": "NS"}}, "league": {"id": 39, "season": 2026}}
    await feed_toys.run(store, {"7": match}, dataset=FOOTBALL["fixtures"])
    await publish_features(store, street(1))
    answer = await client.get("/api/v1/einvoice/1234567890?receipt=true")
    paths = PATHS | {"/receipts/{id}": f"/receipts/{answer.json()['receipt']['id']}"}
    for page in build_site(all_sources()).pages:
        path = paths.get(page.path, page.path)
        english = await _get(client, path)
        assert (english.status_code, english.headers["content-type"]) == (
            200,
            "text/html; charset=utf-8",
        ), path
        assert '<html lang="en">' in english.text
        turkish = await _get(client, path, **{"Accept-Language": "tr"})
        assert '<html lang="tr">' in turkish.text
        bare, _, query = path.partition("?")
        by_path = await client.get(f"{page.name if bare == '/' else bare}.json?{query}")
        by_header = await client.get(path, headers={"Accept": "application/json"})
        assert by_path.status_code == by_header.status_code == 200, path
        assert by_path.json().keys() == by_header.json().keys()
        for text in (english.text, turkish.text):
            # The content security policy forbids inline scripts and styles.
            assert "<script>" not in text
            assert " style=" not in text
            assert "onclick" not in text


async def test_data_is_escaped(client: httpx2.AsyncClient) -> None:
    record = (await _get(client, PATHS["/changes/record"])).text
    assert "IŞIK &lt;b&gt;A.Ş.&lt;/b&gt;" in record
    assert "<b>A.Ş." not in record
    assert "<i>no</i>" not in (await _get(client, "/runs/1")).text


async def test_a_record_shows_its_history_and_similar_keys(
    client: httpx2.AsyncClient, store: Store
) -> None:
    record = (await client.get("/changes/record.json?dataset=einvoice&key=1234567890")).json()
    [field] = record["history"][0]["fields"]
    assert (field["name"], field["before"]) == ("title", "IŞIK <b>A.Ş.</b>")
    assert (field["after"], record["title"]) == ("IŞIK HOLDİNG", "IŞIK HOLDİNG")
    partial = (await client.get("/changes/record.json?dataset=einvoice&key=1234")).json()
    assert (partial["body"], partial["similar"]) == (None, ["1234567890"])
    await feed_toys.run(store, by_identifier(), dataset=DATASETS[0])
    removed = (await client.get("/changes.json?dataset=einvoice")).json()["changes"][0]
    # A list shows a few fields only: texts come first.
    assert [one["name"] for one in removed["fields"]][:2] == ["type", "title"]
    assert removed["fields"][-1]["name"] == "aliases"


async def test_the_first_dataset_shown_stays_while_others_change(
    client: httpx2.AsyncClient,
) -> None:
    page = (await _get(client, "/changes")).text
    assert 'data-live="/changes?dataset=einvoice"' in page
    page = (await _get(client, "/changes?dataset=edespatch&before=3")).text
    assert 'data-live="/changes?dataset=edespatch&amp;before=3"' in page


async def test_details_are_counted_for_finished_matches_only(
    client: httpx2.AsyncClient, store: Store
) -> None:
    """Line-ups are published before kick-off."""
    league = {"id": 39, "season": 2026}
    matches = {
        str(number): {"fixture": {"id": number, "status": {"short": status}}, "league": league}
        for number, status in ((1, "FT"), (2, "FT"), (3, "NS"))
    }
    await feed_toys.run(store, matches, dataset=FOOTBALL["fixtures"])
    async with store.connection() as conn:
        await conn.execute(
            "INSERT INTO football.fixture_told (fixture_id, told_at, details_at)"
            " VALUES (1, now(), now()), (3, now(), now())"
        )
    [league_row] = (await client.get("/football.json")).json()["leagues"]
    assert (league_row["matches"], league_row["finished"], league_row["detailed"]) == (3, 2, 1)


async def test_the_quota_shows_its_target_and_manual_runs(
    client: httpx2.AsyncClient, settings: Settings, store: Store
) -> None:
    assert (
        "on course to leave 67,500 of the 90% target unused" in (await _get(client, "/quota")).text
    )
    turkish = (await _get(client, "/quota", **{"Accept-Language": "tr"})).text
    assert "bu hızla %90 hedefinden 67.500 istek kullanılmadan kalır" in turkish
    async with Budget(store, football_upstream(settings)) as budget:
        await budget.acquire("finalise", job="stale_live_refresh")
        await budget.acquire("daily", job="fixtures_backfill_league_season")
    spenders = (await client.get("/quota.json")).json()["upstreams"][0]["spenders"]
    assert {one["lane"]: one["isManual"] for one in spenders} == {"finalise": False, "daily": True}
    assert "Manual runs wait for the per-minute limit only" in (await _get(client, "/quota")).text


async def test_the_bar_shows_the_limit_that_the_upstream_stated(
    client: httpx2.AsyncClient, settings: Settings, store: Store
) -> None:
    async with Budget(store, football_upstream(settings)) as budget:
        await budget.acquire("daily", job="bootstrap_leagues")
    async with store.connection() as conn:
        await conn.execute("UPDATE budget.day SET plan = 100 WHERE upstream = 'football'")
    [line] = [
        one["line"]
        for one in (await client.get("/quota.json")).json()["upstreams"]
        if one["windows"]["upstream"] == "football"
    ]
    assert (line["limit"], line["spent"], line["remaining"]) == (100, 1, 99)
    # 90 of 100 may be spent, and 10 are the reserve.
    assert line["unused"] <= 90


async def test_the_overview_shows_scenes_in_the_demo_only(
    client: httpx2.AsyncClient, settings: Settings, store: Store
) -> None:
    assert (await client.get("/overview.json")).json()["scenes"] == []
    nine = datetime(2026, 11, 16, 9, tzinfo=UTC)
    demo = settings.demo.model_copy(update={"began": nine, "started": nine})
    app = complete_app(settings.model_copy(update={"demo": demo}), store)
    async with app_client(app) as client:
        page = (await _get(client, "/")).text
        scenes = (await client.get("/overview.json")).json()["scenes"]
    assert len(scenes) == len(all_scenes())
    for one in scenes:
        assert one["scene"]["title"] in html.unescape(page)
        assert one["at"] is None or f"{datetime.fromisoformat(one['at']) + HERE:%H:%M}" in page


async def test_matches_are_listed_by_local_day(client: httpx2.AsyncClient, store: Store) -> None:
    """Local midnight is three hours before that of UTC."""
    matches = {
        str(number): {
            "fixture": {"id": number, "timestamp": datetime.fromisoformat(at).timestamp()}
        }
        for number, at in (
            (1, "2026-11-15T20:59:59Z"),
            (2, "2026-11-15T21:00:00Z"),
            (3, "2026-11-16T20:59:59Z"),
            (4, "2026-11-16T21:00:00Z"),
        )
    }
    await feed_toys.run(store, matches, dataset=FOOTBALL["fixtures"])
    matches_found = (await client.get("/football.json?day=2026-11-16")).json()["matches"]
    assert [one["fixtureId"] for one in matches_found] == [2, 3]
    for day in ("0001-01-01", "9999-12-31"):
        assert "No matches on this date." in (await _get(client, f"/football?day={day}")).text
        for path in (f"fixtures?date={day}", f"fixtures?from={day}&to={day}"):
            assert (await client.get(f"/api/v1/football/{path}")).json()["items"] == [], path


async def test_taxpayers_are_found_by_number_title_and_alias(client: httpx2.AsyncClient) -> None:
    for query in ("q=1234567890", "q=isik", "alias=PK@isik.tr"):
        found = (await client.get(f"/taxpayers.json?{query}")).json()["found"][0]
        assert (found["dataset"], found["total"]) == ("einvoice", 1), query
    assert (await client.get("/taxpayers.json?q=is")).json()["tooShort"]


async def test_pasted_identifiers_are_checked(client: httpx2.AsyncClient, store: Store) -> None:
    await feed_toys.run(store, {}, dataset=DATASETS[1])
    pasted = "1234567890\r\n864387\t4540536920, 123 456 78 90;10000000146 1234567890 <b>"
    found = (await client.get("/check.json", params={"q": pasted})).json()
    identifiers = ["1234567890", "4540536920", "10000000146"]
    assert [one["identifier"] for one in found["items"]] == identifiers
    assert [(one["input"], one["likely"]) for one in found["malformed"]] == [
        ("864387", "0000864387"),
        ("123 456 78 90", "1234567890"),
        ("<b>", None),
    ]
    page = (await client.get("/check", params={"q": pasted}, headers=BROWSER)).text
    for text in ("urn:mail:pk@isik.tr", "e-Arşiv", "/check?q=0000864387", "&lt;b&gt;"):
        assert text in page, text
    turkish = {**BROWSER, "Accept-Language": "tr"}
    page = (await client.get("/check", params={"q": "864387"}, headers=turkish)).text
    assert "6 haneli, 10 veya 11 değil" in page
    assert (await _get(client, f"/check?q={'1' * 5001}")).status_code == 400


async def test_a_search_is_paged_over_both_datasets(
    client: httpx2.AsyncClient, store: Store
) -> None:
    """121 in one list, 15 in the other; seven pages, and no eighth."""
    for dataset, count in zip(DATASETS, (121, 15), strict=True):
        found = [taxpayer_body(f"{1_000_000_000 + n}", f"DENİZ {n:03}") for n in range(count)]
        await feed_toys.run(store, by_identifier(*found), dataset=dataset)
    second = (await _get(client, "/taxpayers?q=deniz&page=2")).text
    assert "15 results" in second
    assert "All results are on earlier pages." in second
    assert "No results" not in second
    last = (await _get(client, "/taxpayers?q=deniz&page=999")).text
    assert "Page 7 of 7" in last
    assert "DENİZ 120" in last
    assert "No results" in (await _get(client, "/taxpayers?q=nobody")).text
    # Shown for a lookup of one number, not in search results.
    assert "invalid checksum" in (await _get(client, "/taxpayers?q=1000000001")).text
    for query in ("q=deniz+120", "q=deniz"):
        assert "invalid checksum" not in (await _get(client, f"/taxpayers?{query}")).text


async def test_problems_are_pages_for_browsers_and_json_for_programs(
    client: httpx2.AsyncClient,
) -> None:
    page = await _get(client, "/runs/99", **{"Accept-Language": "tr"})
    assert (page.status_code, "text/html" in page.headers["content-type"]) == (404, True)
    assert "Bulunamadı" in page.text
    assert page.headers["content-security-policy"].startswith("default-src 'self'")
    problem = await client.get("/runs/99")
    assert (problem.status_code, problem.json()["code"]) == (404, "not-found")
    for path in ("/runs?before=x", "/changes?dataset=none", "/football?day=x", "/runs/x"):
        assert (await _get(client, path)).status_code in {400, 404}, path
    for path in ("/runs/x", "/runs/-", "/runs/1.5", "/runs/²"):
        assert "is not a number" in (await client.get(path)).json()["detail"], path
    for path in ("/runs/0", "/runs/-1", f"/runs/{10**20}", "/taxpayers?page=0", "/runs?before=-5"):
        assert "is out of range" in (await client.get(path)).json()["detail"], path


async def test_a_timeline_without_runs_is_explained(client: httpx2.AsyncClient) -> None:
    assert "No runs in the last 1 h." in (await _get(client, "/runs?hours=1&job=housekeeping")).text


async def test_a_run_can_be_started_retried_and_stopped(
    client: httpx2.AsyncClient, store: Store
) -> None:
    page = (await _get(client, "/runs")).text
    assert "Run housekeeping now" in page
    # A scan needs an area, so it is started on the parcels page.
    assert "Run tkgm_scan now" not in page
    queued = await client.post("/runs", data={"job": "housekeeping"}, headers=OWN)
    assert queued.status_code == 303
    again = await client.post("/runs/1/retry", headers=OWN)
    assert again.status_code == 303
    newest = await list_runs(store, limit=2)
    assert [(run.job, run.trigger) for run in newest] == [
        ("gib_sync", "retry"),
        ("housekeeping", "hand"),
    ]
    assert again.headers["location"] == f"/runs/{newest[0].id}"
    waiting = f"/runs/{newest[1].id}"
    assert f'action="{waiting}/stop"' in (await _get(client, waiting)).text
    assert (await client.post(f"{waiting}/stop", headers=OWN)).headers["location"] == waiting
    page = (await _get(client, waiting)).text
    assert "Stopped manually while queued." in page
    assert f'action="{waiting}/stop"' not in page


async def test_runs_in_close_succession_are_one_bar_but_failures_stay_visible(
    client: httpx2.AsyncClient, store: Store
) -> None:
    async with store.connection() as conn:
        await conn.execute(
            "INSERT INTO jobs.run (job, trigger, started_at, finished_at, state, outcome)"
            " SELECT 'often', 'hand', now() - n * interval '1 minute',"
            "        now() - n * interval '1 minute', 'finished',"
            "        CASE n WHEN 2000 THEN 'failed' ELSE 'done' END FROM generate_series(1, 4000) n"
        )
    for hours, max_spans in ((72, 2), (1, 60)):
        path = f"/runs.json?job=often&hours={hours}"
        spans = (await client.get(path)).json()["timeline"]
        assert len(spans) <= max_spans
        ran = {
            status: sum(one["runs"] for one in spans if one["status"] == status)
            for status in ("done", "failed")
        }
        assert ran == ({"done": 3999, "failed": 1} if hours == 72 else {"done": 59, "failed": 0})
    # The last span is drawn on top.
    assert (await client.get("/runs.json?job=often&hours=72")).json()["timeline"][-1][
        "status"
    ] == "failed"
    assert "3,999 runs · often · Done" in (await _get(client, "/runs?job=often&hours=72")).text


async def test_a_superseded_hold_leads_to_the_newer_one(
    client: httpx2.AsyncClient, store: Store
) -> None:
    async with store.connection() as conn:
        await conn.execute(
            "UPDATE feed.hold SET state = 'superseded', decided_at = now() WHERE id = 1"
        )
        await conn.execute(
            "INSERT INTO feed.hold (id, job, source, datasets, params, runs, preview)"
            " VALUES (2, 'gib_sync', 'gib', '{einvoice}', '{}', '{2}', '{}')"
        )
    page = (await _get(client, "/runs/1")).text
    assert "A newer run was held in place of this one." in page
    assert '<a href="/runs/2">Review run 2</a>' in page


async def test_a_run_that_changed_records_offers_its_undo(
    client: httpx2.AsyncClient, store: Store
) -> None:
    async with store.connection() as conn:
        cursor = await conn.execute(
            "INSERT INTO jobs.run (job, trigger, state, outcome, started_at, finished_at,"
            " rows_changed)"
            " SELECT 'gib_sync', 'hand', 'finished', 'done', now(), now(), rows"
            " FROM unnest(ARRAY[5, 0]) AS rows RETURNING id"
        )
        (changed,), (same,) = await cursor.fetchall()
        await conn.execute(
            "INSERT INTO feed.version (run, source, scope, committed_at)"
            " VALUES (%s, 'gib', '{}', now())",
            [changed],
        )
    assert f'action="/runs/{changed}/undo"' in (await _get(client, f"/runs/{changed}")).text
    assert "Prepare undo" not in (await _get(client, f"/runs/{same}")).text


async def test_a_held_run_shows_its_preview_and_is_decided_once(
    client: httpx2.AsyncClient, store: Store
) -> None:
    page = (await _get(client, "/runs/1")).text
    assert "Over limit" in page
    assert "4,321" in page
    assert "ÇIĞ &lt;i&gt;Ltd" in page
    overview = (await _get(client, "/")).text
    assert "Your approval is needed" in overview
    assert '<a href="/runs/1">Review run 1' in overview
    async with store.connection() as conn:
        await conn.execute(
            "INSERT INTO feed.hold (id, job, source, datasets, params, runs, preview)"
            " VALUES (2, 'gib_sync', 'gib', '{edespatch}', '{}', '{2}', '{}')"
        )
    assert "Your approval is needed for 2 runs" in (await _get(client, "/")).text
    assert (await _get(client, "/overview.json")).json()["held"] == [2, 1]
    assert "8,620 → 4,300 records" in page
    assert page.index('id="guard"') < page.index('id="state"')
    assert page.index("/runs/1/reject") < page.index("/runs/1/approve")
    # Without the number of removals or a reason, nothing is decided.
    for given in ({}, {"reason": "checked"}, {"confirm": "4321"}, {"reason": "a", "confirm": "1"}):
        assert (await client.post("/runs/1/approve", data=given, headers=OWN)).status_code == 400, (
            given
        )
    assert (await client.post("/runs/1/reject", headers=OWN)).status_code == 400
    decision = {"reason": "checked", "confirm": "4.321"}
    approved = await client.post("/runs/1/approve", data=decision, headers=OWN)
    assert approved.status_code == 303
    [approval] = await list_runs(store, limit=1)
    assert approval.params == {"approve": 1}
    rejected = await client.post("/runs/1/reject", data={"reason": "half"}, headers=OWN)
    assert rejected.status_code == 303
    decided = (await _get(client, "/runs/1")).text
    assert "Rejected" in decided
    assert "then approve or reject" not in decided
    # A decided hold needs no attention.
    for path in ("/runs/1", "/runs"):
        assert 'class="mark warning">Held' not in (await _get(client, path)).text
    for verb in ("approve", "reject"):
        assert (await client.post(f"/runs/1/{verb}", headers=OWN)).status_code == 409
    # An approval cannot be repeated.
    async with store.connection() as conn:
        await conn.execute(
            "UPDATE jobs.run SET state = 'finished', outcome = 'failed', started_at = now(),"
            " finished_at = now() WHERE id = %s",
            [approval.id],
        )
    assert "Run again with" not in (await _get(client, f"/runs/{approval.id}")).text
    assert "Run again with" in (await _get(client, "/runs/1")).text


async def test_dead_letters_are_resent(
    client: httpx2.AsyncClient, store: Store, settings: Settings
) -> None:
    await save_failure(store, 1, settings.webhooks, error="no", pause_seconds=0, final=True)
    assert "Dead letter" in (await _get(client, "/delivery")).text
    sent = await client.post("/delivery/replay", data={"delivery": "1"}, headers=OWN)
    assert sent.headers["location"] == "/delivery?replayed=1"
    assert [one.state for one in await list_deliveries(store)] == ["waiting"]


async def test_a_nats_stream_that_rejects_changes_is_shown(
    client: httpx2.AsyncClient, store: Store
) -> None:
    assert (await client.get("/delivery.json")).json()["streams"] == []
    async with store.connection() as conn:
        await conn.execute("INSERT INTO deliver.sink (name) VALUES ('nats')")
        await conn.execute(
            "INSERT INTO deliver.sink_failure (sink, dataset, error)"
            " VALUES ('nats', 'einvoice', 'NATS <b>is full</b>.')"
        )
    (stream,) = (await client.get("/delivery.json")).json()["streams"]
    assert (stream["dataset"], stream["lag"]) == ("einvoice", 1)
    page = (await _get(client, "/delivery")).text
    assert "NATS stream einvoice: 1 behind" in page
    assert "NATS &lt;b&gt;is full" in page


async def test_consumers_with_a_key_are_listed_with_their_lag(
    settings: Settings, store: Store
) -> None:
    await _fill(store)
    _, token = await create_key(store, "the shop", "operate")
    async with app_client(complete_app(remote(settings), store)) as client:
        client.headers["Authorization"] = f"Bearer {token}"
        assert (await client.get("/delivery.json")).json()["consumers"] == []
        cursor = (await client.get("/api/v1/einvoice/digest")).json()["cursor"]
        await client.get("/api/v1/einvoice/changes", params={"after": cursor})
        async with asyncio.timeout(60):
            while not (found := (await client.get("/delivery.json")).json()["consumers"]):  # noqa: ASYNC110 - no event to wait for
                await asyncio.sleep(0.1)
        assert [(one["name"], one["dataset"], one["lag"]) for one in found] == [
            ("the shop", "einvoice", 0)
        ]
        await feed_toys.run(store, by_identifier(), dataset=DATASETS[0])
        found = (await client.get("/delivery.json")).json()["consumers"]
        assert found[0]["lag"] == 1


async def test_forms_of_other_sites_are_refused(client: httpx2.AsyncClient, store: Store) -> None:
    for headers in (
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:9999"},
        {},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ):
        refused = await client.post("/runs", data={"job": "housekeeping"}, headers=headers)
        assert refused.status_code == 403, headers
    assert len(await list_runs(store)) == 2


async def _log_in(client: httpx2.AsyncClient, key: str, to: str = "/runs") -> httpx2.Response:
    return await client.post("/login", data={"key": key, "to": to}, headers=OWN)


async def test_a_key_logs_in_and_its_revocation_ends_the_session(
    settings: Settings, store: Store
) -> None:
    made, key = await create_key(store, "ops", "operate")
    async with app_client(complete_app(remote(settings), store)) as client:
        sent_away = await _get(client, "/runs?bad=1")
        assert (sent_away.status_code, sent_away.headers["location"]) == (
            303,
            "/login?to=/runs%3Fbad%3D1",
        )
        assert (await client.get("/runs")).status_code == 401
        assert (await _get(client, "/login")).status_code == 200
        wrong = await _log_in(client, "hsk_aaaaaaaaaa_" + "x" * 43)
        assert (wrong.status_code, "set-cookie" in wrong.headers) == (401, False)
        for trap in ("https://evil.example", "//evil.example", "/\\evil.example"):
            assert (await _log_in(client, key, trap)).headers["location"] == "/"
        client.cookies.clear()
        entered = await _log_in(client, key)
        assert (entered.status_code, entered.headers["location"]) == (303, "/runs")
        cookie = entered.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=lax" in cookie
        assert key.rpartition("_")[2] not in cookie
        assert "ops" in (await _get(client, "/runs")).text
        assert (await client.post("/runs", data={"job": "housekeeping"}, headers=OWN)).is_redirect
        # A cookie without an Origin is refused: another site may have sent it.
        assert (await client.post("/runs", data={"job": "housekeeping"})).status_code == 403
        assert (await client.post("/api/v1/dead-letters/replay")).status_code == 403
        assert [one.id for one in await list_keys(store)] == [made.id]
        await revoke_key(store, made.id)
    async with app_client(complete_app(remote(settings), store), cookies=client.cookies) as later:
        assert (await later.get("/runs")).json()["code"] == "key-revoked"


async def test_logging_out_ends_the_session_on_the_server(settings: Settings, store: Store) -> None:
    _, key = await create_key(store, "ops", "operate")
    async with app_client(complete_app(remote(settings), store)) as client:
        await _log_in(client, key)
        cookies = dict(client.cookies)
        assert (await client.post("/logout", headers=OWN)).headers["location"] == "/login"
        assert (await _get(client, "/runs")).status_code == 303
    async with app_client(complete_app(remote(settings), store), cookies=cookies) as thief:
        assert (await thief.get("/runs")).status_code == 401
        assert (await _log_in(thief, next(iter(cookies.values())))).status_code == 401


async def test_a_read_only_key_sees_no_buttons_and_cannot_use_them(
    settings: Settings, store: Store
) -> None:
    _, key = await create_key(store, "reader")
    async with app_client(complete_app(remote(settings), store)) as client:
        await _log_in(client, key)
        page = (await _get(client, "/runs")).text
        assert "housekeeping" in page
        assert 'href="/doctor"' not in page
        assert 'method="post" action="/runs"' not in page
        refused = await client.post("/runs", data={"job": "housekeeping"}, headers=OWN)
        assert refused.status_code == 403
        assert (await _get(client, "/doctor")).status_code == 403


async def test_an_open_page_receives_updates(settings: Settings, store: Store) -> None:
    """Two readers of one page share one rendering, and both receive it."""
    app = complete_app(settings, store)
    async with app_client(app) as client:
        page = await _get(client, "/runs")
        assert 'data-live="/runs"' in page.text
    live = app.state.live
    readers = [live.events(live.open("/runs", "en", may_operate=True)) for _ in range(2)]
    try:
        for reader in readers:
            assert "housekeeping" in await _next(reader)
        assert len(live.open_pages) == 1
        async with app_client(app) as client:
            await client.post("/runs", data={"job": "housekeeping"}, headers=OWN)
        for reader in readers:
            assert "/runs/1" in await _next(reader)
    finally:
        for reader in readers:
            await reader.aclose()
    assert not live.open_pages


async def _next(reader: AsyncIterator[bytes]) -> str:
    """Return the next rendering of a stream."""
    async for event in reader:
        if event.startswith(b"data: "):
            parts: str = json.loads(event.removeprefix(b"data: "))
            return parts
    raise AssertionError("the stream ended")


async def test_a_watch_list_is_made_and_changed_by_forms(client: httpx2.AsyncClient) -> None:
    own = {"Origin": "http://127.0.0.1"}
    form = {
        "name": "müşteriler 2",
        "dataset": "einvoice",
        "keys": "1234567890\n 10000000146 \n",
        "webhook": "https://erp.example/hasat?token=verysecret",
        "secret": "whsec_c2VjcmV0",
        "mode": "daily",
    }
    made = await client.post("/watchlists", data=form, headers=own)
    assert made.status_code == 303, made.text
    address = made.headers["location"]
    shown = await client.get(address, headers=BROWSER)
    assert shown.status_code == 200
    assert "10000000146" in shown.text
    assert "verysecret" not in shown.text
    assert "c2VjcmV0" not in shown.text
    path = address.partition("?")[0]
    for words, more in (("keys", {"keys": "1234567891"}), ("keys/remove", {"key": "1234567890"})):
        assert (await client.post(f"{path}/{words}", data=more, headers=own)).status_code == 303
    listed = (await client.get(f"{path}.json")).json()
    assert listed["keys"] == ["10000000146", "1234567891"]
    wrong = await client.post("/watchlists", data={**form, "keys": ""}, headers=own)
    assert wrong.status_code == 400
    assert (await client.post(f"{path}/delete", data={}, headers=own)).status_code == 303
    assert (await client.get(f"{path}.json")).status_code == 404
