"""Archives: one snapshot in three forms, published whole or not at all, kept as promised."""

import asyncio
import json
import random
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from hasat.errors import HasatError, UnavailableError
from hasat.feed.archive import Archive, storage_of, write_archives
from hasat.feed.archive.catalog import latest_archive, list_archives, list_deltas
from hasat.feed.archive.manifest import Format
from hasat.feed.archive.snapshot import MirrorDamagedError, write_snapshot
from hasat.feed.archive.storage import MissingError
from hasat.feed.archive.subprocess import run_in_process
from hasat.feed.archive.verification import verify
from hasat.feed.changes import changes_after
from hasat.settings import Settings
from hasat.sources.gib.datasets import EINVOICE
from hasat.store import MigrationSet, Store
from support.archive_tools import (
    GIB,
    files_in,
    peak_of_writing,
    read_ndjson,
    read_parquet,
    read_xml,
    sync,
    taxpayers,
)
from support.feed_toys import TOYS, State, head_of, make_table, mirror, run, state_digest

pytestmark = pytest.mark.anyio


@pytest.fixture
def migrations() -> list[MigrationSet]:
    return [GIB]


def content(settings: Settings, archive: Archive) -> bytes:
    return (settings.home / settings.archives.base_path / archive.path).read_bytes()


def held(settings: Settings, archive: Archive) -> tuple[dict[str, Any], State]:
    """The facts and the records in a file."""
    path = settings.home / settings.archives.base_path / archive.path
    if archive.format == "parquet":
        return read_parquet(path)
    read = read_xml if archive.format == "xml" else read_ndjson
    return read(path.read_bytes())


async def test_all_forms_hold_the_same_state_and_say_so(store: Store, settings: Settings) -> None:
    state = taxpayers(500, random.Random(7))
    await sync(store, state)
    written = await write_archives(store, settings, EINVOICE)
    assert {one.format for one in written} == {"xml", "ndjson", "parquet"}
    for archive in written:
        facts, records = held(settings, archive)
        assert records == state, archive.name
        for name in ("cursor", "epoch", "head", "version", "digest", "count", "committedAt"):
            assert str(facts[name]) == str(archive.as_dict()[name])
        assert (await verify(storage_of(settings), archive)).faults == ()
    assert written[0].digest == state_digest(state)
    facts, _ = held(settings, next(one for one in written if one.format == "xml"))
    assert facts["documentType"] == "Invoice"


async def test_archive_and_later_changes_are_the_state(store: Store, settings: Settings) -> None:
    dice = random.Random(11)
    state = taxpayers(300, dice)
    await sync(store, state)
    archives = await write_archives(store, settings, EINVOICE)
    for _ in range(3):
        for key in dice.sample(sorted(state), 20):
            if dice.random() < 0.3:
                del state[key]
            else:
                state[key] = {**state[key], "title": f"yeni {dice.random()}"}
        await sync(store, state)
    ndjson = next(one for one in archives if one.format == "ndjson")
    _, replica = held(settings, ndjson)
    async with store.connection() as conn:
        page = await changes_after(conn, "einvoice", ndjson.cursor, limit=1000)
    for change in page.changes:
        if change.kind == "removed":
            del replica[change.key]
        else:
            replica[change.key] = change.body
    assert replica == state
    assert state_digest(replica) == (await head_of(store, EINVOICE))["digest"]


async def test_without_a_change_the_old_archive_stays(store: Store, settings: Settings) -> None:
    state = taxpayers(10, random.Random(1))
    await sync(store, state)
    first = await write_archives(store, settings, EINVOICE)
    await sync(store, state)
    assert await write_archives(store, settings, EINVOICE) == []
    assert {one.name for one in await list_archives(store, "einvoice")} == {
        one.name for one in first
    }
    state.popitem()
    await sync(store, state)
    assert len(await write_archives(store, settings, EINVOICE)) == 3


async def test_a_lost_or_cut_file_is_made_up_for(store: Store, settings: Settings) -> None:
    await sync(store, taxpayers(10, random.Random(1)))
    first = await write_archives(store, settings, EINVOICE)
    folder = settings.home / settings.archives.base_path
    (folder / first[0].path).unlink()
    second = await write_archives(store, settings, EINVOICE)
    assert len(second) == 3
    (folder / second[1].path).write_bytes(b"cut")
    assert len(await write_archives(store, settings, EINVOICE)) == 3
    latest = await latest_archive(store, storage_of(settings), "einvoice", second[1].format)
    assert latest.batch not in (first[0].batch, second[1].batch)


async def test_an_archive_too_old_for_the_time_protocol_is_written_anew(
    store: Store, settings: Settings
) -> None:
    await sync(store, taxpayers(5, random.Random(1)))
    await write_archives(store, settings, EINVOICE)
    async with store.connection() as conn:
        await conn.execute("UPDATE feed.head SET floor_at = committed_at + interval '1 second'")
    assert len(await write_archives(store, settings, EINVOICE)) == 3


async def test_after_a_restore_archives_of_the_life_before_are_not_the_latest(
    store: Store, settings: Settings
) -> None:
    await sync(store, taxpayers(5, random.Random(1)))
    await write_archives(store, settings, EINVOICE)
    async with store.connection() as conn:
        await conn.execute("UPDATE feed.head SET epoch = gen_random_uuid()")
    with pytest.raises(HasatError, match="no archive"):
        await latest_archive(store, storage_of(settings), "einvoice", "ndjson")
    written = await write_archives(store, settings, EINVOICE)
    latest = await latest_archive(store, storage_of(settings), "einvoice", "ndjson")
    assert latest in written


async def test_empty_datasets_have_archives_too(store: Store, settings: Settings) -> None:
    await sync(store, {})
    for archive in await write_archives(store, settings, EINVOICE):
        assert held(settings, archive)[1] == {}
        assert (await verify(storage_of(settings), archive)).faults == ()


async def test_a_dataset_without_forms_of_its_own(store: Store, settings: Settings) -> None:
    await make_table(store)
    state: State = {
        "b\n\x01\x02": {"n": 1.5, "deep": [{"x": None}, 'ü\\"']},
        "a": {"big": 1e15, "small": 1e-7, "whole": 10**18, "zero": 0.0, "on": True},
        "": {},
    }
    await run(store, state)
    written = await write_archives(store, settings, TOYS)
    assert {one.format for one in written} == {"ndjson", "parquet"}
    for archive in written:
        assert held(settings, archive)[1] == await mirror(store)
        assert archive.name.startswith("toys_records_")


TYPED = """
ALTER TABLE core.toys
    ADD price double precision GENERATED ALWAYS AS ((body ->> 'price')::double precision) STORED,
    ADD "Number of; wheels" bigint GENERATED ALWAYS AS ((body ->> 'wheels')::bigint) STORED,
    ADD sold boolean GENERATED ALWAYS AS ((body ->> 'sold')::boolean) STORED,
    ADD name text GENERATED ALWAYS AS (body ->> 'name') STORED,
    ADD parts jsonb GENERATED ALWAYS AS (body -> 'parts') STORED,
    ADD weight numeric GENERATED ALWAYS AS ((body ->> 'weight')::numeric) STORED,
    ADD made_at timestamptz,
    ADD made_on date
"""


async def test_parquet_has_the_typed_columns_of_the_table_beside_the_body(
    store: Store, settings: Settings
) -> None:
    await make_table(store)
    async with store.connection() as conn:
        await conn.execute(TYPED)
    state: State = {
        'a","body":1': {"price": 1.5, "wheels": 2**62, "sold": True, "name": 'ü"\n', "parts": [1]},
        "b": {"price": "NaN", "weight": 10**30, "huge": 10**400},
        "c": {"price": "-Infinity"},
    }
    await run(store, state)
    moment = datetime(2026, 2, 19, 15, 4, 12, 345678, tzinfo=UTC)
    async with store.connection() as conn:
        await conn.execute("UPDATE core.toys SET made_at = %s, made_on = %s", [moment, moment])
        await conn.execute(
            "UPDATE core.toys SET made_at = 'infinity', made_on = '-infinity' WHERE key = 'c'"
        )
    written = await write_archives(store, settings, TOYS)
    parquet = next(one for one in written if one.format == "parquet")
    table = pq.read_table(settings.home / settings.archives.base_path / parquet.path)
    types = {field.name: str(field.type) for field in table.schema}
    assert types == {
        "key": "string",
        "price": "double",
        "Number of; wheels": "int64",
        "sold": "bool",
        "name": "string",
        "parts": "string",
        "weight": "string",
        "made_at": "timestamp[us, tz=UTC]",
        "made_on": "date32[day]",
        "body": "string",
    }
    rows = table.to_pylist()
    assert {row["key"]: json.loads(row["body"]) for row in rows} == await mirror(store)
    first, second, third = ({**row, "key": None, "body": None} for row in rows)
    none = dict.fromkeys(types)
    assert first == none | {
        "price": 1.5,
        "Number of; wheels": 2**62,
        "sold": True,
        "name": 'ü"\n',
        "parts": "[1]",
        "made_at": moment,
        "made_on": moment.date(),
    }
    assert second == none | {
        "weight": "1000000000000000000000000000000",
        "made_at": moment,
        "made_on": moment.date(),
    }
    assert third == none, "what Parquet cannot hold is null"
    for archive in written:
        assert (await verify(storage_of(settings), archive)).faults == ()


async def test_a_dataset_never_filled_has_none(store: Store, settings: Settings) -> None:
    with pytest.raises(UnavailableError, match="has no data yet"):
        await write_archives(store, settings, EINVOICE)
    assert files_in(settings) == set()


async def test_a_mirror_that_is_not_what_its_head_says_is_not_handed_out(
    store: Store, settings: Settings
) -> None:
    await sync(store, taxpayers(50, random.Random(3)))
    before = await write_archives(store, settings, EINVOICE)
    async with store.connection() as conn:
        # The digest in the row still fits: only the body itself is damaged.
        await conn.execute(
            "UPDATE core.einvoice SET body = jsonb_set(body, '{title}', '\"başka\"')"
            " WHERE key = '0000000007'"
        )
    with pytest.raises(MirrorDamagedError, match="its head says"):
        await write_archives(store, settings, EINVOICE, force=True)
    assert {one.name for one in await list_archives(store, "einvoice")} == {
        one.name for one in before
    }
    deltas = await list_deltas(store, "einvoice")
    assert files_in(settings) == {one.path for one in (*before, *deltas)}


async def test_one_snapshot_while_runs_commit(store: Store, settings: Settings) -> None:
    dice = random.Random(5)
    states = [taxpayers(3000, dice) for _ in range(2)]
    await sync(store, states[0])
    done = asyncio.Event()

    async def keep_committing() -> int:
        runs = 0
        while not done.is_set():
            runs += 1
            await sync(store, states[runs % 2])
        return runs

    committing = asyncio.create_task(keep_committing())
    for _ in range(3):
        written = await write_archives(store, settings, EINVOICE, force=True)
        found = [held(settings, one)[1] for one in written]
        assert found[0] == found[1] == found[2]
        assert found[0] in states
        assert state_digest(found[0]) == written[0].digest
        assert len({(one.seq, one.version) for one in written}) == 1
    done.set()
    assert await committing > 0


async def test_archives_expire_but_never_the_newest(store: Store, settings: Settings) -> None:
    dice = random.Random(9)
    batches = []
    for size in (5, 6, 7):
        await sync(store, taxpayers(size, dice))
        batches.append(await write_archives(store, settings, EINVOICE))
    async with store.connection() as conn:
        await conn.execute("UPDATE feed.archive SET created_at = created_at - interval '8 days'")
    assert await write_archives(store, settings, EINVOICE) == []
    kept = {one.path for one in await list_archives(store, "einvoice")}
    assert kept == {one.path for one in batches[-1]}
    deltas = await list_deltas(store, "einvoice")
    assert files_in(settings) == kept | {one.path for one in deltas}


async def test_leftovers_of_others_are_left_alone_for_a_day(
    store: Store, settings: Settings
) -> None:
    await sync(store, taxpayers(5, random.Random(1)))
    folder = settings.home / settings.archives.base_path / "einvoice"
    folder.mkdir(parents=True)
    for name in ("theirs.xml.gz", ".theirs.xml.gz.part", "strange.txt"):
        (folder / name).write_bytes(b"x")
    async with store.connection() as conn:
        await conn.execute(
            "INSERT INTO feed.archive_leftover (batch, dataset, names, seat)"
            " VALUES ('t', 'einvoice', '{theirs.xml.gz}', 'elsewhere')"
        )
    await write_archives(store, settings, EINVOICE)
    assert (folder / "theirs.xml.gz").exists()
    async with store.connection() as conn:
        await conn.execute("UPDATE feed.archive_leftover SET since = since - interval '25 hours'")
    await write_archives(store, settings, EINVOICE)
    assert not (folder / "theirs.xml.gz").exists()
    assert not (folder / ".theirs.xml.gz.part").exists()
    assert (folder / "strange.txt").exists(), "what Hasat did not write is not its to remove"


async def test_a_batch_taken_for_a_leftover_is_not_published(
    store: Store, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    await sync(store, taxpayers(5, random.Random(1)))
    place = storage_of(settings)
    publish = type(place).publish

    async def publish_late(self: Any, path: str) -> None:
        await publish(self, path)
        async with store.connection() as conn:
            await conn.execute("DELETE FROM feed.archive_leftover")

    monkeypatch.setattr(type(place), "publish", publish_late)
    with pytest.raises(HasatError, match="leftovers"):
        await write_archives(store, settings, EINVOICE)
    assert await list_archives(store, "einvoice") == []


async def test_damage_is_found(store: Store, settings: Settings) -> None:
    await sync(store, taxpayers(50, random.Random(2)))
    place = storage_of(settings)
    for archive in await write_archives(store, settings, EINVOICE):
        file = settings.home / settings.archives.base_path / archive.path
        whole = file.read_bytes()
        file.write_bytes(whole[:-9] + bytes([whole[-9] ^ 1]) + whole[-8:])
        assert (await verify(place, archive)).faults
        file.unlink()
        with pytest.raises(MissingError, match="not in the folder"):
            await verify(place, archive)


async def test_a_full_disk_is_told(store: Store, tmp_path: Path) -> None:
    await sync(store, taxpayers(12_000, random.Random(2)))
    full: dict[Format, Path] = {
        "xml": tmp_path / "x",
        "ndjson": Path("/dev/full"),
        "parquet": tmp_path / "p",
    }
    with pytest.raises(HasatError, match=r"is full: the archive of einvoice could not be written"):
        await asyncio.to_thread(write_snapshot, store.url, EINVOICE, full)


async def test_two_writers_at_once_write_one_batch(store: Store, settings: Settings) -> None:
    await sync(store, taxpayers(50, random.Random(2)))
    both = await asyncio.gather(*(write_archives(store, settings, EINVOICE) for _ in range(2)))
    assert sorted(map(len, both)) == [0, 3]


async def test_memory_does_not_grow_with_the_dataset(store: Store, tmp_path: Path) -> None:
    await sync(store, taxpayers(10, random.Random(4)))
    small = await run_in_process(peak_of_writing, store.url, tmp_path)
    async with store.connection() as conn:
        await conn.execute(
            "INSERT INTO core.einvoice (key, body, digest)"
            " SELECT '9' || n, jsonb_set(body, '{title}', to_jsonb(repeat('UZUN ', 2000))), digest"
            " FROM core.einvoice, generate_series(1, 8000) AS n WHERE key = '0000000000'"
        )
    large = await run_in_process(peak_of_writing, store.url, tmp_path)
    # 80 MB of JSON, twice that when read; what waits of it is a group of Parquet rows, 32 MB.
    assert large - small < 110
