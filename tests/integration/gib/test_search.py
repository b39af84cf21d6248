"""Search of taxpayers: results, order, and consistency with the mirror."""

import asyncio
import random
from typing import Any

import pytest
from psycopg import AsyncConnection

from hasat.jobs import Catalogue, Worker, run_in_foreground
from hasat.jobs.runs import list_runs
from hasat.settings import Settings
from hasat.sources.gib.datasets import EINVOICE
from hasat.sources.gib.search import (
    SEARCH,
    build_search_index,
    enqueue_search_index,
    load_search_state,
    search,
)
from hasat.store import MigrationSet, Store
from hasat.text import fold
from support.feed_toys import run
from support.gib_lists import MIGRATIONS, by_identifier, load_mirror, taxpayer_body

pytestmark = pytest.mark.anyio

LETTERS = "abcçdefgğhıijklmnoöprsştuüvyzABCÇDEFGĞHIİJKLMNOÖPRSŞTUÜVYZâîûÂÎÛqwxQWX"
FORBID_EXTENSIONS = """
CREATE FUNCTION public.forbid_extensions() RETURNS event_trigger LANGUAGE plpgsql AS $$
BEGIN RAISE insufficient_privilege; END $$;
CREATE EVENT TRIGGER forbid_extensions ON ddl_command_start WHEN TAG IN ('CREATE EXTENSION')
EXECUTE FUNCTION public.forbid_extensions()
"""
ODDITIES = "ßẞæÆøŁéÉñ\u0307\u0327\u00ad\u200b\u00a0\t\n  %_\\'\"&.-0123456789Дд中😀"


@pytest.fixture
def migrations() -> list[MigrationSet]:
    return MIGRATIONS


async def _quiet(_done: float, _total: float | None, _note: str) -> None:
    return


async def _found(store: Store, text: str = "", **query: Any) -> list[str]:
    async with store.connection() as conn:
        found = await search(conn, EINVOICE, text=text, **query)
    return [body["identifier"] for body in found.bodies]


async def _folded(store: Store, texts: list[str]) -> list[str]:
    async with store.connection() as conn:
        cursor = await conn.execute(
            "SELECT core.fold(one) FROM unnest(%s::text[]) WITH ORDINALITY AS t (one, n)"
            " ORDER BY n",
            [texts],
        )
        return [row[0] for row in await cursor.fetchall()]


async def test_python_and_sql_fold_alike(store: Store) -> None:
    # All characters of the first plane and some others, each next to letters that fold.
    points = [chr(n) for n in range(1, 0x10000) if not 0xD800 <= n < 0xE000]
    points += [chr(n) for n in range(0x10000, 0x110000, 251)]
    texts = ["".join(points[n : n + 100]) for n in range(0, len(points), 100)]
    texts += [f"I{point} {point}ş" for point in points[:0x3000]]
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    dice = random.Random(seed)
    pool = LETTERS + ODDITIES
    texts += ["".join(dice.choices(pool, k=dice.randrange(40))) for _ in range(3000)]
    for text, folded in zip(texts, await _folded(store, texts), strict=True):
        assert fold(text) == folded, ascii(text)


@pytest.mark.parametrize("prepared", [False, True])
async def test_a_title_is_found_in_any_case_and_without_turkish_letters(
    store: Store, prepared: bool
) -> None:
    await load_mirror(
        store,
        by_identifier(
            taxpayer_body("1000000001", "IŞIK İNŞAAT LİMİTED ŞİRKETİ"),
            taxpayer_body("1000000002", "Çağdaş  Ölçüm\tAletleri %50_A\\Ş"),
            taxpayer_body("1000000003", None),
        ),
    )
    if prepared:
        await build_search_index(store, _quiet)
    for text in ("ışık", "IŞIK", "Işık", "isik", "ISIK", "İŞİK", "ık i̇nş", "LIMITED", "limited"):
        assert await _found(store, text) == ["1000000001"], text
    for text in ("çağdaş ölçüm aletleri", "CAGDAS OLCUM", "%50_a\\ş", " aletleri  %"):
        assert await _found(store, text) == ["1000000002"], text
    assert await _found(store, "0000000") == ["1000000003", "1000000002", "1000000001"]
    assert await _found(store, "00003") == ["1000000003"]
    # Wildcards do not match, nor do the end of a title and the start of a number together.
    for text in ("%", "i_ik", "sirketi1000", "sirketi 1000"):
        assert await _found(store, text) == (["1000000002"] if text == "%" else []), text


async def test_pages_are_stable_and_complete(store: Store) -> None:
    titles = ["ZEKİ", "ali", "ALİ", "Çınar", "cinar", "DENİZ", "veli"]
    state = by_identifier(
        *(taxpayer_body(f"{3000000000 + n}", title) for n, title in enumerate(titles))
    )
    await run(store, state, dataset=EINVOICE)
    expected = sorted(state, key=lambda key: (fold(state[key]["title"]), key))
    paged = []
    for page in (1, 2, 3, 4):
        async with store.connection() as conn:
            found = await search(conn, EINVOICE, page=page, size=3)
        assert found.total == len(state)
        paged += [body["identifier"] for body in found.bodies]
    assert paged == expected


async def test_an_alias_finds_all_its_taxpayers(store: Store) -> None:
    await run(
        store,
        by_identifier(
            taxpayer_body("4000000001", "A", "urn:mail:defaultpk@x.com", "urn:mail:DefaultPK"),
            taxpayer_body("4000000002", "B", "defaultpk"),
            taxpayer_body("4000000003", "C", "urn:pk:9999999999", 'od"d\\urn:mail:x'),
            taxpayer_body("4000000004", "D"),
        ),
        dataset=EINVOICE,
    )
    for alias in ("defaultpk", "urn:mail:defaultpk", "URN:MAIL:DEFAULTPK", " defaultpk "):
        assert await _found(store, alias=alias) == ["4000000001", "4000000002"], alias
    assert await _found(store, "b", alias="defaultpk") == ["4000000002"]
    assert await _found(store, alias="urn:pk:9999999999") == ["4000000003"]
    assert await _found(store, alias="default") == []
    assert await _found(store, alias="urn:mail:") == []


async def test_personal_numbers_can_be_excluded(store: Store) -> None:
    state = by_identifier(
        taxpayer_body("10000000146", "AYŞE", "pk"), taxpayer_body("5000000001", "AYŞE LTD", "pk")
    )
    await run(store, state, dataset=EINVOICE)
    assert await _found(store, "ayse") == ["10000000146", "5000000001"]
    assert await _found(store, "ayse", personal=False) == ["5000000001"]
    assert await _found(store, alias="pk", personal=False) == ["5000000001"]


async def test_the_search_is_always_consistent_with_the_mirror(store: Store) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    dice = random.Random(seed)

    def numbered(n: int) -> dict[str, Any]:
        title = "".join(dice.choices(LETTERS + ODDITIES, k=dice.randrange(1, 12)))
        return taxpayer_body(f"{6000000000 + n}", title, f"urn:mail:{dice.randrange(5)}@x")

    truth = by_identifier(*map(numbered, range(40)))
    await load_mirror(store, truth)
    for step in range(6):
        if step == 3:
            await build_search_index(store, _quiet)
        for n in dice.sample(range(60), 8):
            if dice.random() < 0.3:
                truth.pop(f"{6000000000 + n}", None)
            else:
                truth |= by_identifier(numbered(n))
        await run(store, truth, dataset=EINVOICE)
        wanted = dice.choice(LETTERS)
        hits = [k for k, body in truth.items() if fold(wanted) in fold(body["title"])]
        hits.sort(key=lambda key: (fold(truth[key]["title"]), key))
        assert await _found(store, wanted, size=100) == hits, (step, wanted)
        holders = {k for k, b in truth.items() if b["aliases"][0]["alias"] == "urn:mail:3@x"}
        assert set(await _found(store, alias="3@X", size=100)) == holders
    async with store.connection() as conn:
        cursor = await conn.execute("SELECT identifier FROM gib.search_einvoice")
        assert {row[0] for row in await cursor.fetchall()} == truth.keys()


async def test_a_mass_change_is_left_to_the_job(store: Store) -> None:
    await load_mirror(store, by_identifier(taxpayer_body("9000000001", "IŞIK")))
    await build_search_index(store, _quiet)
    async with store.connection() as conn:
        await conn.execute(
            "INSERT INTO core.einvoice (key, body, digest) SELECT n::text, jsonb_build_object("
            "'identifier', n::text, 'title', 'GÜNEŞ ' || n, 'aliases', '[]'::jsonb), ''"
            " FROM generate_series(1, 50001) AS n"
        )
        assert (await load_search_state(conn)).unready == ("einvoice",)
    assert await _found(store, "güneş 50001") == ["50001"]
    await build_search_index(store, _quiet)
    async with store.connection() as conn:
        assert (await load_search_state(conn)).unready == ()
        await conn.execute("DELETE FROM core.einvoice WHERE length(key) < 10")
        cursor = await conn.execute("SELECT identifier FROM gib.search_einvoice")
        assert await cursor.fetchall() == [("9000000001",)]


async def test_a_change_during_the_build_is_not_lost(store: Store) -> None:
    await load_mirror(store, by_identifier(taxpayer_body("9000000001", "IŞIK")))
    async with store.connection() as conn:
        await conn.execute(
            "UPDATE core.einvoice SET body = jsonb_set(body, '{title}', '\"GÜNEŞ\"')"
        )
        preparing = asyncio.create_task(build_search_index(store, _quiet))
        async with asyncio.timeout(60):
            while not await _is_waiting(conn):  # noqa: ASYNC110 - PostgreSQL knows
                await asyncio.sleep(0.02)
    await preparing
    assert await _found(store, "güneş") == ["9000000001"]
    assert await _found(store, "ışık") == []


async def test_the_first_sync_queues_the_index_and_a_worker_builds_it(
    store: Store, settings: Settings
) -> None:
    await load_mirror(store, by_identifier(taxpayer_body("7000000001", "IŞIK")))
    await enqueue_search_index(store)
    await enqueue_search_index(store)
    assert await _ordered(store) == 1
    async with store.connection() as conn:
        state = await load_search_state(conn)
    assert state.unready == ("edespatch", "einvoice")
    assert "gib_search" in (state.remark() or "")
    catalogue = Catalogue.of([SEARCH], settings)
    worker = Worker(catalogue, store, settings, poll_seconds=0.1)
    working = asyncio.create_task(worker.run())
    async with asyncio.timeout(60):
        while (await list_runs(store, job=SEARCH.name, limit=1))[0].state != "finished":  # noqa: ASYNC110 - another task's work
            await asyncio.sleep(0.05)
    worker.drain()
    await working
    async with store.connection() as conn:
        state = await load_search_state(conn)
    assert (state.missing, state.remark()) == ((), None)
    again = await run_in_foreground(catalogue, store, settings, SEARCH.name)
    assert again.outcome == "nothing"
    assert await _found(store, "isik") == ["7000000001"]


async def test_without_pg_trgm_the_search_works_and_reports_it(store: Store) -> None:
    async with store.connection() as conn:
        assert (await load_search_state(conn)).remark() is None
    await load_mirror(store, by_identifier(taxpayer_body("8000000001", "IŞIK")))
    async with store.connection() as conn:
        await conn.execute(FORBID_EXTENSIONS)
    await build_search_index(store, _quiet)
    assert await _found(store, "isik") == ["8000000001"]
    async with store.connection() as conn:
        state = await load_search_state(conn)
        assert state.missing == ()
        assert "CREATE EXTENSION pg_trgm" in (state.remark() or "")
        # After an administrator installs it, the job builds the indexes.
        await conn.execute("DROP EVENT TRIGGER forbid_extensions")
        await conn.execute("CREATE EXTENSION pg_trgm")
        assert (await load_search_state(conn)).missing == ("einvoice", "edespatch")
    await build_search_index(store, _quiet)
    async with store.connection() as conn:
        assert (await load_search_state(conn)).remark() is None
    assert await _found(store, "isik") == ["8000000001"]


async def _ordered(store: Store) -> int:
    async with store.connection() as conn:
        cursor = await conn.execute("SELECT FROM jobs.run WHERE job = %s", [SEARCH.name])
    return cursor.rowcount


async def _is_waiting(conn: AsyncConnection[Any]) -> bool:
    cursor = await conn.execute(
        "SELECT FROM pg_locks WHERE NOT granted AND relation = 'gib.search_einvoice'::regclass"
    )
    return cursor.rowcount > 0
