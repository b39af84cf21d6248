"""Lists and lookups of a declared dataset over HTTP, in every format."""

import csv
import io
import json
import random
from datetime import date, datetime
from typing import Any

import httpx2
import openpyxl
import pyarrow.parquet
import pytest
from fastapi import FastAPI

from hasat.api.app import create_app
from hasat.clock import local_time
from hasat.feed.columns import Column
from hasat.feed.dataset import Dataset
from hasat.feed.records import Place, parse_selection
from hasat.jobs import Catalogue
from hasat.settings import Settings
from hasat.source import Source
from hasat.store import Store
from hasat.store.migrate import migrate
from hasat.store.store import connect
from hasat.testing.http import app_client
from support.feed_toys import State, run

pytestmark = [pytest.mark.anyio, pytest.mark.any_server]

KITES = Dataset(
    "kites",
    "toy_shop",
    "kites, for tests",
    columns=(
        Column("title", summary="What is on the box"),
        Column("pieces", "integer", "box.pieces", indexed=True),
        Column("price", "number"),
        Column("sold", "boolean"),
        Column("made_on", "date"),
    ),
)
PLAIN = Dataset("plain", "toy_shop", "a dataset without columns")
SHOP = Source("toy_shop", "toys", datasets=(KITES, PLAIN))


@pytest.fixture
async def app(settings: Settings, store: Store) -> FastAPI:
    async with await connect(store.url) as connection:
        await migrate(connection, [SHOP.migration_set])
    return create_app(settings, store, Catalogue.of([], settings), [SHOP])


async def commit(store: Store, state: State, dataset: Dataset = KITES) -> None:
    await run(store, state, dataset=dataset)


async def get(client: httpx2.AsyncClient, path: str = "", **query: Any) -> Any:
    answer = await client.get(f"/api/v1/kites{path}", params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def keys(client: httpx2.AsyncClient, **query: Any) -> list[str]:
    return [item["key"] for item in (await get(client, **query))["items"]]


def kite(title: Any = "x", pieces: Any = 1, **more: Any) -> dict[str, Any]:
    return {"title": title, "box": {"pieces": pieces}, **more}


async def test_a_list_is_filtered_by_columns_of_every_type(
    client: httpx2.AsyncClient, store: Store
) -> None:
    state = {
        "a": kite("Red", 1, price=2.5, sold=True, made_on="2026-01-31"),
        "b": kite("Rot", 20, price=10, sold=False, made_on="2026-02-01"),
        "c/1": kite("ROT", 3, price="no", sold="no", made_on="9999-99-99"),
        "d": kite(["nested"], "many"),
    }
    await commit(store, state)
    assert await keys(client) == ["a", "b", "c/1", "d"]
    assert await keys(client, title="Rot") == ["b"]
    assert await keys(client, **{"title.prefix": "R"}) == ["a", "b", "c/1"]
    assert await keys(client, **{"pieces.gte": 3}) == ["b", "c/1"]
    assert await keys(client, **{"pieces.gte": 2, "pieces.lte": 3}) == ["c/1"]
    assert await keys(client, **{"price.lte": 9.5}) == ["a"]
    assert await keys(client, sold="true") == ["a"]
    assert await keys(client, **{"made_on.lte": "2026-01-31"}) == ["a"]
    assert await keys(client, key="c/1") == ["c/1"]
    assert await keys(client, **{"key.prefix": "c/"}) == ["c/1"]
    assert await keys(client, **{"changedAt.gte": "2020-01-01"}) == ["a", "b", "c/1", "d"]
    assert await keys(client, **{"changedAt.lte": "2020-01-01"}) == []
    listed = await get(client, title="Red", total="true")
    assert listed["total"] == 1
    assert listed["next"] is None
    assert listed["items"][0]["body"] == state["a"]
    # Nulls are last in both orders.
    assert await keys(client, sort="pieces") == ["a", "c/1", "b", "d"]
    assert await keys(client, sort="-pieces") == ["b", "c/1", "a", "d"]
    assert await keys(client, sort="-key") == ["d", "c/1", "b", "a"]


@pytest.mark.parametrize(
    ("query", "hint"),
    [
        ({"titel": "x"}, "title"),
        ({"sold.gte": "true"}, "sold"),
        ({"sort": "piecs"}, "pieces"),
        ({"pieces": "many"}, "integer"),
        ({"pieces": str(2**70)}, "integer"),
        ({"pieces": "1_0"}, "integer"),
        ({"price": "nan"}, "number"),
        ({"made_on": "2026-02-30"}, "date"),
        ({"title": "a\0b"}, "text"),
        ({"after": "nonsense"}, "after"),
    ],
)
async def test_a_wrong_parameter_is_refused_with_a_hint(
    client: httpx2.AsyncClient, store: Store, query: dict[str, str], hint: str
) -> None:
    await commit(store, {"a": kite()})
    answer = await client.get("/api/v1/kites", params=query)
    assert answer.status_code == 400, answer.text
    assert hint in answer.json()["detail"]


async def test_a_cursor_of_another_list_is_refused(
    client: httpx2.AsyncClient, store: Store
) -> None:
    await commit(store, {key: kite() for key in "abc"})
    after = (await get(client, limit=1, title="x"))["next"]
    assert await keys(client, limit=1, title="x", after=after) == ["b"]
    answer = await client.get("/api/v1/kites", params={"after": after, "title": "y"})
    assert answer.status_code == 400


@pytest.mark.parametrize(
    ("sort", "value", "key"),
    [
        ("pieces", "many", "a"),
        ("pieces", [1], "a"),
        ("pieces", str(2**70), "a"),
        ("made_on", "9999999-01-01", "a"),
        ("title", "\ud800", "a"),
        ("key", None, 5),
        ("key", None, "a\0b"),
    ],
)
async def test_a_forged_cursor_is_refused(
    client: httpx2.AsyncClient, store: Store, sort: str, value: Any, key: Any
) -> None:
    await commit(store, {key: kite() for key in "abc"})
    after = Place(value, key).cursor(KITES, parse_selection(KITES, {}, sort))
    answer = await client.get("/api/v1/kites", params={"after": after, "sort": sort})
    assert (answer.status_code, "cursor" in answer.json()["detail"]) == (400, True)


@pytest.mark.parametrize("sort", ["key", "-key", "pieces", "-pieces", "title", "-price", "sold"])
async def test_pages_have_every_lasting_record_once_while_runs_commit(
    client: httpx2.AsyncClient, store: Store, sort: str
) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    dice = random.Random(seed)

    def body() -> dict[str, Any]:
        numbers = [None, 1, 2, 3, "x"]
        return kite(
            dice.choice(["a", "b", None, {}]),
            dice.choice(numbers),
            price=dice.choice(numbers),
            sold=dice.choice([True, False, None]),
        )

    lasting = {f"lasting {n}": body() for n in range(40)}
    await commit(store, {**lasting, **{f"passing {n}": body() for n in range(20)}})
    seen: list[str] = []
    after: dict[str, str] = {}
    while True:
        page = await get(client, sort=sort, limit=dice.randrange(1, 9), **after)
        seen += [item["key"] for item in page["items"]]
        if page["next"] is None:
            break
        after = {"after": page["next"]}
        await commit(store, {**lasting, f"passing {dice.randrange(40)}": body()})
    found = [key for key in seen if key in lasting]
    assert sorted(found) == sorted(lasting)

    name = sort.removeprefix("-")
    if name != "key":
        values = [_value(lasting[key], name) for key in found]
        present = [value for value in values if value is not None]
        assert values == [*present, *[None] * (len(values) - len(present))]
        assert present == sorted(present, reverse=sort.startswith("-"))


def _value(body: dict[str, Any], name: str) -> Any:
    value = body["box"]["pieces"] if name == "pieces" else body[name]
    types = {"pieces": int, "price": int, "title": str, "sold": bool}
    return value if type(value) is types[name] else None


async def test_as_of_and_history_equal_a_replay(client: httpx2.AsyncClient, store: Store) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    dice = random.Random(seed)
    state: State = {"a": kite(0), "b/c": kite(0)}
    moments: list[tuple[str, State]] = []
    for step in range(12):
        for key in ("a", "b/c", "d"):
            if dice.random() < 0.4:
                state[key] = kite(step)
            elif dice.random() < 0.3:
                state.pop(key, None)
        state["always"] = kite(step)
        await commit(store, dict(state))
        moments.append((local_time(await store.now()), dict(state)))
    for at, then in moments:
        for key in ("a", "b/c", "d", "always"):
            answer = await client.get(f"/api/v1/kites/{key}", params={"asOf": at})
            if key in then:
                assert answer.json() == {"key": key, "body": then[key]}
            else:
                assert answer.status_code == 404
    for key in ("a", "b/c", "d", "always"):
        answer = await client.get(f"/api/v1/kites/{key}")
        assert (answer.json()["body"] if answer.status_code == 200 else None) == state.get(key)
        states = [moments[0][1].get(key)]
        for _, then in moments[1:]:
            if then.get(key) != states[-1]:
                states.append(then.get(key))
        answer = await client.get(f"/api/v1/kites/{key}/history")
        if answer.status_code == 404:
            assert states == [None]
        else:
            assert [change["after"] for change in answer.json()["history"]] == states[1:]


HOSTILE = {
    "007": kite("007", 2**59, price=0.1, sold=True, made_on="2026-01-31"),
    "=1+1": kite("=cmd|' /C calc'!A0", -5, price=-1.5, sold=False, made_on="1850-01-01"),
    "b": kite('a "quoted"\r\nline; ş🪁', None),
    "c": kite("@SUM(A1)", "x"),
}
_EXPECTED = {
    "007": ("007", 2**59, 0.1, True, date(2026, 1, 31)),
    "=1+1": ("=cmd|' /C calc'!A0", -5, -1.5, False, date(1850, 1, 1)),
    "b": ('a "quoted"\r\nline; ş🪁', None, None, None, None),
    "c": ("@SUM(A1)", None, None, None, None),
}


async def test_every_format_reads_back_equal(client: httpx2.AsyncClient, store: Store) -> None:
    await commit(store, HOSTILE)

    async def load(format_: str, path: str = "") -> bytes:
        answer = await client.get(f"/api/v1/kites{path}", params={"format": format_})
        assert answer.status_code == 200, answer.text
        return answer.content

    rows = list(csv.DictReader(io.StringIO((await load("csv")).decode(), newline="")))
    assert [row["key"] for row in rows] == ["007", "'=1+1", "b", "c"]
    assert [row["title"] for row in rows] == [
        "007", "'=cmd|' /C calc'!A0", 'a "quoted"\r\nline; ş🪁', "'@SUM(A1)",
    ]  # fmt: skip
    assert [row["pieces"] for row in rows] == [str(2**59), "-5", "", ""]
    assert [row["sold"] for row in rows] == ["true", "false", "", ""]

    table = pyarrow.parquet.read_table(io.BytesIO(await load("parquet"))).to_pylist()
    assert {row["key"]: tuple(row.values())[1:6] for row in table} == _EXPECTED
    assert {row["key"]: json.loads(row["body"]) for row in table} == HOSTILE
    assert all(isinstance(row["changedAt"], datetime) for row in table)

    lines = (await load("ndjson")).decode().splitlines()
    assert {one["key"]: one["body"] for one in map(json.loads, lines)} == HOSTILE

    sheet = openpyxl.load_workbook(io.BytesIO(await load("xlsx"))).active
    header, *cells = sheet.iter_rows()
    assert [cell.value for cell in header] == [
        "key", "title", "pieces", "price", "sold", "made_on", "firstSeenAt", "changedAt",
    ]  # fmt: skip
    assert [row[0].value for row in cells] == list(HOSTILE)
    assert {cell.data_type for row in cells for cell in row[:2]} == {"s"}
    assert [row[2].value for row in cells] == [str(2**59), -5, None, None]
    assert cells[0][5].value == datetime(2026, 1, 31)  # noqa: DTZ001 - a workbook has no zones
    assert cells[1][5].value == "1850-01-01"

    one = pyarrow.parquet.read_table(io.BytesIO(await load("parquet", "/007"))).to_pylist()
    assert [tuple(row.values())[1:6] for row in one] == [_EXPECTED["007"]]


async def test_tables_of_changes_are_filtered_by_type_and_field(
    client: httpx2.AsyncClient, store: Store
) -> None:
    await commit(store, {"a": kite(), "b": kite(), "c": kite()})
    await commit(store, {"a": kite(pieces=2), "b": kite("new")})
    for given, seqs in (
        ({"changeType": "removed"}, ["3"]),
        ({"field": "box.pieces"}, ["1", "3"]),
        ({"field": "title", "changeType": "modified"}, ["2"]),
        ({"field": "title.none"}, []),
    ):
        answer = await client.get("/api/v1/kites/changes", params={"format": "csv", **given})
        assert [row["seq"] for row in _rows(answer.content, "csv")] == seqs, given
    for format_ in ("json", "ndjson"):
        query = {"format": format_, "field": "title"}
        answer = await client.get("/api/v1/kites/changes", params=query)
        assert (answer.status_code, "field" in answer.json()["detail"]) == (400, True), format_


async def test_changes_and_history_are_tables_too(client: httpx2.AsyncClient, store: Store) -> None:
    await commit(store, {"a": kite("old"), "b": kite()})
    await commit(store, {"a": kite("=new", 7)})
    await commit(store, {"a": kite("newest", "x")})
    expected = [
        (1, "modified", "a", "=new", 7),
        (2, "removed", "b", None, None),
        (3, "modified", "a", "newest", None),
    ]
    for path, rows in {
        "/changes": expected,
        "/a/history": [row for row in expected if row[2] == "a"],
    }.items():
        for format_ in ("csv", "xlsx", "parquet"):
            answer = await client.get(f"/api/v1/kites{path}", params={"format": format_})
            assert answer.status_code == 200, answer.text
            found = [
                (int(row["seq"]), row["changeType"], row["key"], row["title"], row["pieces"])
                for row in _rows(answer.content, format_)
            ]
            if format_ == "csv":
                texts = [
                    (*row[:3], (row[3] or "").replace("=", "'="), str(row[4] or "")) for row in rows
                ]
                assert found == texts
            else:
                assert found == rows
    answer = await client.get("/api/v1/kites/a/history", params={"format": "ndjson"})
    assert [json.loads(line)["seq"] for line in answer.text.splitlines()] == [1, 3]
    first = (
        await client.get("/api/v1/kites/changes", params={"format": "csv", "limit": 1})
    ).content
    [row] = _rows(first, "csv")
    rest = await client.get(
        "/api/v1/kites/changes", params={"format": "csv", "after": row["cursor"]}
    )
    assert [row["seq"] for row in _rows(rest.content, "csv")] == ["2", "3"]


async def test_accept_chooses_the_format(client: httpx2.AsyncClient, store: Store) -> None:
    await commit(store, {"a": kite()})
    for path in ("", "/a"):
        answer = await client.get(f"/api/v1/kites{path}", headers={"Accept": "text/csv, */*"})
        assert answer.headers["content-type"].startswith("text/csv")
        assert answer.headers["vary"] == "Accept"
        assert 'filename="kites.csv"' in answer.headers["content-disposition"]


async def test_a_file_has_all_pages_and_a_limited_one_its_cursor(
    client: httpx2.AsyncClient, store: Store
) -> None:
    await commit(store, {f"{n:05}": kite(str(n), n % 7) for n in range(2500)})
    for sort in ("key", "-pieces"):
        for format_ in ("csv", "parquet", "xlsx", "ndjson"):
            query = {"format": format_, "sort": sort}
            answer = await client.get("/api/v1/kites", params=query)
            assert "X-Next-Cursor" not in answer.headers
            assert len(_keys(answer.content, format_)) == len(set(_keys(answer.content, format_)))
            assert len(_keys(answer.content, format_)) == 2500
    query = {"format": "csv", "limit": "10"}
    answer = await client.get("/api/v1/kites", params=query)
    after = answer.headers["X-Next-Cursor"]
    answer = await client.get("/api/v1/kites", params={**query, "after": after})
    assert _keys(answer.content, "csv") == [f"{n:05}" for n in range(10, 20)]


def _keys(content: bytes, format_: str) -> list[str]:
    return [row["key"] for row in _rows(content, format_)]


def _rows(content: bytes, format_: str) -> list[dict[str, Any]]:
    if format_ == "csv":
        return list(csv.DictReader(io.StringIO(content.decode(), newline="")))
    if format_ == "ndjson":
        return [json.loads(line) for line in content.splitlines()]
    if format_ == "parquet":
        found: list[dict[str, Any]] = pyarrow.parquet.read_table(io.BytesIO(content)).to_pylist()
        return found
    sheet = openpyxl.load_workbook(io.BytesIO(content), read_only=True).active
    header, *rows = sheet.iter_rows(values_only=True)
    return [dict(zip(header, row, strict=True)) for row in rows]


async def test_a_dataset_without_columns_has_its_body(
    client: httpx2.AsyncClient, store: Store
) -> None:
    await commit(store, {"a": {"n": [1]}}, PLAIN)
    answer = await client.get("/api/v1/plain", params={"format": "csv"})
    [row] = csv.DictReader(io.StringIO(answer.text, newline=""))
    assert json.loads(row["body"]) == {"n": [1]}


async def test_an_unchanged_list_is_not_sent_again(
    client: httpx2.AsyncClient, store: Store
) -> None:
    await commit(store, {"a": kite()})
    for path in ("/api/v1/kites", "/api/v1/kites/a"):
        tag = (await client.get(path)).headers["ETag"]
        assert (await client.get(path, headers={"If-None-Match": tag})).status_code == 304
    await commit(store, {"a": kite("new")})
    answer = await client.get(path, headers={"If-None-Match": tag})
    assert answer.json()["body"] == kite("new")


async def test_the_document_lists_the_filters(client: httpx2.AsyncClient) -> None:
    paths = (await client.get("/openapi.json")).json()["paths"]
    named = {one["name"] for one in paths["/api/v1/kites"]["get"]["parameters"]}
    assert {"title", "title.prefix", "pieces.gte", "sort", "limit", "after", "total"} <= named
    assert "text/csv" in paths["/api/v1/kites/{key}"]["get"]["responses"]["200"]["content"]


async def test_a_route_of_the_source_wins(settings: Settings, store: Store) -> None:
    from fastapi import APIRouter

    router = APIRouter(prefix="/kites")

    @router.get("")
    async def own() -> dict[str, str]:
        return {"own": "list"}

    @router.get("/{number}")
    async def own_lookup(number: str) -> dict[str, str]:
        return {"own": number}

    shop = Source("toy_shop", "toys", datasets=(KITES,), routers=lambda: (router,))
    app = create_app(settings, store, Catalogue.of([], settings), [shop])
    async with app_client(app) as client:
        assert (await client.get("/api/v1/kites")).json() == {"own": "list"}
        assert (await client.get("/api/v1/kites/7")).json() == {"own": "7"}
        paths = (await client.get("/openapi.json")).json()["paths"]
        assert "/api/v1/kites/{key}" not in paths
