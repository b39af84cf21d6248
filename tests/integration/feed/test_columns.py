"""Declared columns: their tables and indexes, and what becomes of hostile values."""

from dataclasses import replace
from datetime import UTC, date, datetime
from typing import Any

import pytest
from psycopg import sql

from hasat.errors import SettingsError
from hasat.feed.columns import Column
from hasat.feed.dataset import Dataset
from hasat.feed.records import Selection, list_records, project_bodies
from hasat.source import Source
from hasat.store import Store
from hasat.store.migrate import migrate
from hasat.store.store import connect
from support.feed_toys import head_of, run

pytestmark = [pytest.mark.anyio, pytest.mark.any_server]

COLUMNS = (
    Column("title"),
    Column("pieces", "integer", "box.pieces"),
    Column("price", "number"),
    Column("sold", "boolean"),
    Column("made_on", "date"),
    Column("seen_at", "timestamp", zone="Europe/Istanbul"),
    Column("shop", "integer", key_part=("/", 1)),
)
THINGS = Dataset("things", "toy_shop", "things, for tests", columns=COLUMNS)
INDEXED = replace(THINGS, columns=tuple(replace(one, indexed=True) for one in COLUMNS))


async def declare(store: Store, dataset: Dataset) -> list[str]:
    source = Source("toy_shop", "toys", datasets=(dataset,))
    async with await connect(store.url) as connection:
        return await migrate(connection, [source.migration_set])


async def indexes(store: Store) -> list[str]:
    async with store.connection() as conn:
        found = await conn.execute(
            "SELECT indexname FROM pg_indexes WHERE schemaname = 'core' AND tablename = 'things'"
            " ORDER BY 1"
        )
        return [name for (name,) in await found.fetchall()]


@pytest.fixture
async def declared(store: Store) -> Store:
    await declare(store, INDEXED)
    return store


async def test_the_table_of_a_declared_dataset_is_made_once(store: Store) -> None:
    assert await declare(store, THINGS) == ["toy_shop/things"]
    assert await declare(store, THINGS) == []
    await run(store, {"1/a": {"title": "ball"}}, dataset=THINGS)
    assert (await head_of(store, THINGS))["records"] == 1


async def test_a_table_that_a_migration_made_keeps_its_data_and_epoch(store: Store) -> None:
    async with store.connection() as conn:
        await conn.execute(
            "CREATE TABLE core.things (LIKE feed.record INCLUDING ALL,"
            " CONSTRAINT things_pkey PRIMARY KEY (key))"
        )
    await run(store, {"1/a": {"title": "ball"}}, dataset=THINGS)
    await run(store, {"1/a": {"title": "kite"}}, dataset=THINGS)
    before = await head_of(store, THINGS)
    made = await declare(store, INDEXED)
    assert "toy_shop/things" not in made
    assert await head_of(store, THINGS) == before


async def test_indexes_follow_the_declaration(store: Store) -> None:
    await declare(store, THINGS)
    assert await indexes(store) == ["things_pkey"]
    await declare(store, INDEXED)
    assert len(await indexes(store)) == 1 + len(COLUMNS)
    moved = replace(INDEXED.columns[1], path="crate.pieces")
    await declare(store, replace(THINGS, columns=(moved,)))
    assert await indexes(store) == sorted([moved.index_name("things"), "things_pkey"])
    assert await declare(store, replace(THINGS, columns=(moved,))) == []


async def test_lists_can_use_the_indexes(declared: Store) -> None:
    async with declared.connection() as conn:
        await conn.execute("SET LOCAL enable_seqscan = off")
        for column in INDEXED.columns:
            query = sql.SQL("EXPLAIN SELECT FROM core.things AS m ORDER BY {} LIMIT 1").format(
                column.sorted("m")
            )
            plan = await (await conn.execute(query)).fetchall()
            assert column.index_name("things") in str(plan), column


HOSTILE: list[Any] = [
    None, True, 0, -1, 1.5, 1e15, 10**17, 10**30, 1e-320, "", " ", "x" * 5000, "true", "12", "+7",
    "1e400", "1e9", "NaN", "Infinity", "9999-99-99", "2026-02-29", "2024-02-29", "0000-01-01",
    "2026-01-01T25:00:00", "2026-01-01T23:59:60Z", "2026-01-01T00:00:00+99:99", "infinity", "now",
    "2026-01-01 10:00", "2026-01-01T10:00:00.123456789Z", "9999-12-31T23:59:59-12", [], [1], {},
    {"pieces": 1}, {"a": {"b": None}}, "\u0001", "ı", "🪁", "'; DROP TABLE core.things; --",
]  # fmt: skip


async def test_no_value_stops_a_run(declared: Store) -> None:
    names = ("title", "price", "sold", "made_on", "seen_at")
    state = {
        f"{number}/x": {**dict.fromkeys(names, value), "box": {"pieces": value}}
        for number, value in enumerate(HOSTILE)
    }
    state |= {
        key: {"box": value, "title": "odd"}
        for key, value in {"no number/x": [], "99999999999999999999/x": "text", "/": None}.items()
    }
    await run(declared, state, dataset=INDEXED)
    async with declared.snapshot() as conn:
        rows = await list_records(conn, INDEXED, Selection(), limit=1000)
    assert len(rows) == len(state)
    for row in rows:
        for column, value in zip(COLUMNS, row.values, strict=True):
            kinds = {
                "text": str, "integer": int, "number": float,
                "boolean": bool, "date": date, "timestamp": datetime,
            }  # fmt: skip
            assert value is None or type(value) is kinds[column.type], (row.key, column)


async def test_numbers_that_only_numeric_can_store_are_null(declared: Store) -> None:
    async with declared.connection() as conn:
        rows = await project_bodies(
            conn,
            THINGS,
            [
                ("1/a", '{"price": 1e400, "box": {"pieces": 1e400}, "seen_at": 1e400}'),
                ("2/a", '{"price": 1e-400, "box": {"pieces": 1.0}, "seen_at": 0}'),
                ("3/a", None),
            ],
        )
    nothing = (None, None, None, None, None, None)
    assert rows[0] == (*nothing, 1)
    assert rows[1] == (None, 1, 0.0, None, None, datetime(1970, 1, 1, tzinfo=UTC), 2)
    assert rows[2] == (*nothing, 3)


@pytest.mark.parametrize(
    ("column", "value", "expected"),
    [
        ("title", "007", "007"),
        ("title", 7, "7"),
        ("title", ["x"], None),
        ("pieces", "12", 12),
        ("pieces", 1.5, None),
        ("price", "3.25", 3.25),
        ("price", "3,25", None),
        ("sold", "TRUE", True),
        ("sold", 1, None),
        ("made_on", "2024-02-29", date(2024, 2, 29)),
        ("made_on", "2026-02-29", None),
        ("made_on", "2026-11-18T09:00:00", date(2026, 11, 18)),
        ("seen_at", "2026-11-18T09:00:00", datetime(2026, 11, 18, 6, tzinfo=UTC)),
        ("seen_at", "2026-11-18T09:00:00+01:30", datetime(2026, 11, 18, 7, 30, tzinfo=UTC)),
        ("seen_at", "2026-11-18T09:00-0130", datetime(2026, 11, 18, 10, 30, tzinfo=UTC)),
        ("seen_at", "2026-11-18T09:00:00.5Z", datetime(2026, 11, 18, 9, 0, 0, 500000, tzinfo=UTC)),
        ("seen_at", 1_800_000_000, datetime(2027, 1, 15, 8, tzinfo=UTC)),
        ("seen_at", "18.11.2026", None),
    ],
)
async def test_a_value_is_read_by_its_type(
    declared: Store, column: str, value: Any, expected: Any
) -> None:
    body = {column: value, "box": {"pieces": value}}
    await run(declared, {"1/a": body}, dataset=INDEXED)
    async with declared.snapshot() as conn:
        [row] = await list_records(conn, INDEXED, Selection(), limit=1)
    found = dict(zip((one.name for one in COLUMNS), row.values, strict=True))[column]
    assert (found, type(found)) == (expected, type(expected))


async def test_names_that_mean_something_else_are_rejected() -> None:
    for name in ("limit", "key", "changedAt", "No", "a-b", ""):
        with pytest.raises(SettingsError):
            Dataset("things", "toy_shop", "", columns=(Column(name),))
