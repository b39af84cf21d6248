"""The feed over HTTP: what a follower relies on, in both protocols."""

import asyncio
import random
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI

from hasat.api.app import create_app
from hasat.feed.archive import write_archives
from hasat.jobs import Catalogue
from hasat.settings import Settings
from hasat.source import Source
from hasat.store import Store
from hasat.store.queries import load_query
from support.feed_toys import TOYS, State, make_table, run, state_digest

pytestmark = [pytest.mark.anyio, pytest.mark.any_server]

SHOP = Source("toy_shop", "toys", datasets=(TOYS,))


@pytest.fixture
async def app(settings: Settings, store: Store) -> FastAPI:
    await make_table(store)
    return create_app(settings, store, Catalogue.of([], settings), [SHOP])


async def _changes(client: httpx2.AsyncClient, **query: Any) -> dict[str, Any]:
    answer = await client.get("/api/v1/toys/changes", params=query)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def _apply(replica: State, changes: list[dict[str, Any]]) -> None:
    for change in changes:
        if change["changeType"] == "removed":
            del replica[change["key"]]
        else:
            replica[change["key"]] = change["body"]


async def test_followers_of_both_protocols_end_equal_to_the_server(
    client: httpx2.AsyncClient, store: Store
) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    dice = random.Random(seed)
    truth: State = {f"toy {n}": {"n": n} for n in range(20)}
    await run(store, truth)
    by_cursor, by_time = dict(truth), dict(truth)
    cursor = (await client.get("/api/v1/toys/digest")).json()["cursor"]
    since = (await _changes(client))["changes"] or (
        await client.get("/api/v1/toys/digest")
    ).headers["X-Last-Sync-At"]
    for _ in range(5):
        for _ in range(dice.randrange(12)):
            truth[f"toy {dice.randrange(30)}"] = {"n": dice.randrange(9)}
        truth.pop(f"toy {dice.randrange(30)}", None)
        await run(store, truth)
        while True:
            page = await _changes(client, after=cursor, limit=3)
            _apply(by_cursor, page["changes"])
            cursor = page["next"]
            if page["upToDate"]:
                break
        number = 1
        while True:
            span = await _changes(client, since=since, page=number, pageSize=4)
            _apply(by_time, span["changes"])
            if number >= span["totalPages"]:
                break
            number += 1
        since = span["until"]
        assert by_cursor == by_time == truth
        digest = (await client.get("/api/v1/toys/digest")).json()
        assert digest["digest"] == state_digest(truth).hex()
        assert digest["count"] == len(truth)
        # The same question again has the same answer.
        assert (await _changes(client, since=since))["totalCount"] == 0


async def test_a_waiting_follower_hears_of_a_commit(
    client: httpx2.AsyncClient, store: Store
) -> None:
    await run(store, {"a": {"n": 1}})
    cursor = (await _changes(client))["next"]
    waiting = asyncio.create_task(_changes(client, after=cursor, wait=60))
    await asyncio.sleep(0)
    await run(store, {"a": {"n": 2}})
    page = await waiting
    assert [change["body"] for change in page["changes"]] == [{"n": 2}]


async def test_waiting_for_nothing_ends_with_the_same_cursor(
    client: httpx2.AsyncClient, store: Store
) -> None:
    await run(store, {"a": {"n": 1}})
    cursor = (await _changes(client))["next"]
    page = await _changes(client, after=cursor, wait=0.2)
    assert (page["changes"], page["next"], page["upToDate"]) == ([], cursor, True)


async def test_what_was_before_is_told_on_request(client: httpx2.AsyncClient, store: Store) -> None:
    await run(store, {"a": {"n": 1, "m": 1}, "b": {"n": 1}})
    await run(store, {"a": {"n": 2, "m": 1}})
    changed, removed = (await _changes(client, include="before"))["changes"]
    assert (changed["before"], changed["fields"]) == ({"n": 1, "m": 1}, ["n"])
    assert (removed["body"], removed["before"]) == (None, {"n": 1})
    plain = (await _changes(client))["changes"][0]
    assert "before" not in plain
    story = (await client.get("/api/v1/toys/b/history")).json()["history"]
    assert [entry["changeType"] for entry in story] == ["removed"]


async def test_a_record_without_a_story_is_not_a_record_that_never_was(
    client: httpx2.AsyncClient, store: Store
) -> None:
    await run(store, {"a": {"n": 1}})
    assert (await client.get("/api/v1/toys/a/history")).json()["history"] == []
    assert (await client.get("/api/v1/toys/b/history")).status_code == 404


async def test_an_expired_cursor_is_a_problem_that_names_the_way_back(
    client: httpx2.AsyncClient, store: Store, settings: Settings
) -> None:
    await run(store, {"a": {"n": 1}})
    cursor = (await _changes(client))["next"]
    since = (await client.get("/api/v1/toys/digest")).headers["X-Last-Sync-At"]
    await write_archives(store, settings, TOYS)
    async with store.connection() as conn:
        await conn.execute(load_query("hasat.store", "new_epoch").encode())
    for place in ({"after": cursor}, {"after": cursor, "format": "ndjson"}, {"since": since}):
        pending = await client.get("/api/v1/toys/changes", params=place)
        assert pending.status_code == 503, "410 would lead to an archive that is not there"
        assert pending.json()["code"] == "archive-pending"
        assert int(pending.headers["Retry-After"]) > 0
    await write_archives(store, settings, TOYS)
    answer = await client.get("/api/v1/toys/changes", params={"after": cursor})
    assert answer.status_code == 410
    assert (await client.get("/api/v1/toys/archives/latest")).status_code == 200
    assert answer.json()["code"] == "feed-expired"
    assert "/api/v1/toys/archives/latest" in answer.json()["remedy"]
    assert answer.headers["Cache-Control"] == "no-store"


@pytest.mark.parametrize(
    "query",
    [
        {"after": "nonsense"},
        {"since": "yesterday"},
        {"since": "2026-02-19T10:00:00", "until": "2026-02-19T10:00:00"},
        {"since": "2026-02-19T10:00:00", "after": "x"},
    ],
)
async def test_a_question_that_makes_no_sense_is_a_400(
    client: httpx2.AsyncClient, store: Store, query: dict[str, str]
) -> None:
    await run(store, {"a": {"n": 1}})
    answer = await client.get("/api/v1/toys/changes", params=query)
    assert answer.status_code == 400
    assert answer.headers["content-type"] == "application/problem+json"


async def test_times_are_read_in_all_usual_forms(client: httpx2.AsyncClient, store: Store) -> None:
    await run(store, {"a": {"n": 1}})
    until = (await _changes(client, since="2126-02-19T10:00:00"))["until"]
    assert until.count(":") == 2
    same_moment = [until, until.replace("T", " "), f"{until}+03:00", f"{until} 03:00"]
    await run(store, {"a": {"n": 2}})
    for text in same_moment:
        assert (await _changes(client, since=text))["totalCount"] == 1, text


async def test_the_published_record_comes_along_on_request(
    client: httpx2.AsyncClient, store: Store
) -> None:
    await run(store, {"a": {"n": 1}, "b": {"n": 1}})
    await run(store, {"a": {"n": 2}})
    changed, removed = (await _changes(client, include="record,before"))["changes"]
    assert (changed["key"], changed["body"], changed["before"]) == ("a", {"n": 2}, {"n": 1})
    assert (removed["key"], removed["body"], removed["before"]) == ("b", None, {"n": 1})
    refused = await client.get("/api/v1/toys/changes", params={"include": "after"})
    assert refused.status_code == 422
    story = (await client.get("/api/v1/toys/a/history")).json()["history"]
    assert [(one["before"], one["after"], one["fields"]) for one in story] == [
        ({"n": 1}, {"n": 2}, ["n"])
    ]


async def test_only_a_list_may_be_given_more_than_once(
    client: httpx2.AsyncClient, store: Store
) -> None:
    await run(store, {})
    await run(store, {"a": {"n": 1}, "b": {"n": 1}, "c": {"n": 1}})
    assert [c["key"] for c in (await _changes(client, only=["a", "c"]))["changes"]] == ["a", "c"]
    refused = await client.get("/api/v1/toys/changes?limit=1&limit=2")
    assert refused.status_code == 422
    assert refused.json()["detail"] == "query.limit: is given more than once."


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("changes?sinse=2026-02-19T10:00:00", "`sinse`; did you mean 'since'?"),
        ("changes?pagesize=3", "`pagesize`; did you mean 'pageSize'?"),
        ("changes?league=39", "`league`"),
        ("changes?until=2026-02-19T10:00:00", "`until`"),
        ("changes?after=&since=2026-02-19T10:00:00", ""),
        ("changes?limit=3&since=2026-02-19T10:00:00", "`limit`"),
        ("changes?wait=3&since=2026-02-19T10:00:00", "`wait`"),
        ("changes?format=ndjson&since=2026-02-19T10:00:00", "`format`"),
        ("changes?format=events&limit=3", "`limit`"),
        ("changes/stream?since=2026-02-19T10:00:00", "`since`"),
        ("changes/stream?wait=3", "`wait`"),
        ("digest?format=json", "`format`"),
        ("a/history?limit=3", "`limit`"),
    ],
)
async def test_a_parameter_without_effect_is_a_400(
    client: httpx2.AsyncClient, store: Store, query: str, says: str
) -> None:
    await run(store, {"a": {"n": 1}})
    answer = await client.get(f"/api/v1/toys/{query}")
    assert answer.status_code == 400, answer.text
    assert says in answer.json()["detail"]


@pytest.mark.parametrize(
    "query", ["only=a", "since=x", "sinse=x", "page=2", "format=events&wait=1"]
)
async def test_a_parameter_without_effect_is_a_400_beside_a_body(
    client: httpx2.AsyncClient, store: Store, query: str
) -> None:
    await run(store, {"a": {"n": 1}})
    answer = await client.post(f"/api/v1/toys/changes?{query}", json={"only": ["a"]})
    assert answer.status_code == 400, answer.text


async def test_an_unknown_field_of_a_body_is_refused(
    client: httpx2.AsyncClient, store: Store
) -> None:
    await run(store, {"a": {"n": 1}})
    answer = await client.post("/api/v1/toys/changes", json={"only": ["a"], "since": "x"})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"] == "since"


async def test_a_long_watch_list_fits_into_a_body(client: httpx2.AsyncClient, store: Store) -> None:
    await run(store, {})
    await run(store, {f"{n:04}": {"n": n} for n in range(50)})
    wanted = [f"{n:04}" for n in range(0, 9000, 7)]
    seen, after = [], None
    while True:
        answer = await client.post(
            "/api/v1/toys/changes",
            params={"limit": 3, **({"after": after} if after else {})},
            json={"only": wanted},
        )
        page = answer.json()
        seen += [change["key"] for change in page["changes"]]
        after = page["next"]
        if page["upToDate"]:
            break
    assert seen == [f"{n:04}" for n in range(0, 50, 7)]
    refused = await client.post("/api/v1/toys/changes", json={"only": ["x"] * 10_001})
    assert refused.status_code == 422


@pytest.mark.parametrize("route", ["digest", "changes"])
async def test_what_a_caller_has_already_is_not_sent_again(
    client: httpx2.AsyncClient, store: Store, settings: Settings, route: str
) -> None:
    await run(store, {"a": {"n": 1}})
    path = f"/api/v1/toys/{route}"
    first = await client.get(path)
    known = {"If-None-Match": f'"other", {first.headers["ETag"]}'}
    again = await client.get(path, headers=known)
    assert (again.status_code, again.content) == (304, b"")
    assert again.headers["X-Last-Sync-At"] == first.headers["X-Last-Sync-At"]
    await run(store, {"a": {"n": 2}})
    assert (await client.get(path, headers=known)).status_code == 200
    # A cursor that is no longer good is never "not modified".
    after = {"after": first.json().get("next") or first.json()["cursor"]}
    page = await client.get("/api/v1/toys/changes", params=after)
    async with store.connection() as conn:
        await conn.execute("UPDATE feed.head SET epoch = gen_random_uuid()")
    await write_archives(store, settings, TOYS)
    gone = await client.get(
        "/api/v1/toys/changes", params=after, headers={"If-None-Match": page.headers["ETag"]}
    )
    assert gone.status_code == 410
    assert "ETag" not in gone.headers
    assert gone.headers["Cache-Control"] == "no-store"
    waited = await client.get("/api/v1/toys/changes", params={"wait": 0.01})
    assert "ETag" not in waited.headers
