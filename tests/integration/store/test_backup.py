"""A backup brings everything back; a bad one changes nothing."""

import os
from pathlib import Path

import pytest

from hasat.errors import (
    ConflictError,
    DatabaseError,
    GoneError,
    NothingToDoError,
    UsageError,
)
from hasat.feed.changes import changes_after, changes_between, record_as_of
from hasat.settings import Settings
from hasat.store import Store, open_store
from hasat.store.backup import Client, back_up, restore
from hasat.store.store import connect, reach
from hasat.testing.database import throw_away_database
from support.feed_toys import TOYS, make_table, run

pytestmark = pytest.mark.anyio


async def _back_up(settings: Settings, file: Path) -> int:
    async with reach(settings) as reached:
        return await back_up(reached, file, None)


async def _restore(settings: Settings, file: Path, *, replace: bool = False) -> None:
    async with reach(settings) as reached:
        await restore(reached, file, None, replace=replace)


async def _write(settings: Settings, *statements: str) -> None:
    async with open_store(settings) as store, store.connection() as connection:
        for text in statements:
            await connection.execute(text)


async def _names(settings: Settings) -> set[str]:
    async with open_store(settings) as store, store.connection() as connection:
        cursor = await connection.execute("SELECT name FROM core.thing")
        return {row[0] for row in await cursor.fetchall()}


def _modes(folder: Path) -> dict[str, int]:
    return {file.name: file.stat().st_mode & 0o777 for file in folder.glob("*.dump*")}


@pytest.fixture
async def backup(settings: Settings, tmp_path: Path) -> Path:
    await _write(
        settings,
        "CREATE TABLE core.thing (name text PRIMARY KEY)",
        "INSERT INTO core.thing VALUES ('ağaç'), ('ığdır')",
    )
    assert await _back_up(settings, tmp_path / "a b.dump") > 0
    return tmp_path / "a b.dump"


async def test_the_backup_is_private_and_complete_or_absent(backup: Path) -> None:
    assert _modes(backup.parent) == {backup.name: 0o600}


async def test_a_backup_comes_back_in_an_empty_database(
    backup: Path, server_url: str, tmp_path: Path
) -> None:
    async with throw_away_database(server_url, None) as empty:
        other = empty.settings(tmp_path)
        await _restore(other, backup)
        assert await _names(other) == {"ağaç", "ığdır"}


async def test_a_follower_of_the_life_before_a_restore_must_start_over(
    settings: Settings, tmp_path: Path
) -> None:
    async with open_store(settings) as store:
        await make_table(store)
        first = await run(store, {"a": {"n": 1}})
        await run(store, {"a": {"n": 2}})
        async with store.connection() as connection:
            cursor = (await changes_after(connection, "toys", None, limit=9)).next
    await _back_up(settings, tmp_path / "f.dump")
    await _restore(settings, tmp_path / "f.dump", replace=True)
    async with open_store(settings) as store, store.connection() as connection:
        with pytest.raises(GoneError):
            await changes_after(connection, "toys", cursor, limit=9)
        with pytest.raises(GoneError):
            await changes_between(connection, "toys", first.committed_at, None, page=1, size=9)
        fresh = await changes_after(connection, "toys", None, limit=9)
    async with open_store(settings) as store:
        await run(store, {"a": {"n": 3}})
        async with store.connection() as connection:
            page = await changes_after(connection, "toys", fresh.next, limit=9)
    assert [(change.seq, change.body) for change in page.changes] == [(2, {"n": 3})]


async def test_what_was_committed_after_the_backup_is_refused_not_guessed(
    settings: Settings, tmp_path: Path
) -> None:
    async with open_store(settings) as store:
        await make_table(store)
        last = await run(store, {"a": {"n": 1}})
    await _back_up(settings, tmp_path / "f.dump")
    async with open_store(settings) as store:
        lost = await run(store, {"a": {"n": 2}})
    await _restore(settings, tmp_path / "f.dump", replace=True)
    async with open_store(settings) as store, store.connection() as connection:
        with pytest.raises(GoneError, match="was lost when a backup was restored"):
            await record_as_of(connection, TOYS, "a", lost.committed_at)
        for known in (last.committed_at, await store.now()):
            assert (await record_as_of(connection, TOYS, "a", known)).body == {"n": 1}


async def test_existing_data_is_replaced_only_when_told(settings: Settings, backup: Path) -> None:
    await _write(settings, "INSERT INTO core.thing VALUES ('later')")
    with pytest.raises(UsageError, match="is not empty") as caught:
        await _restore(settings, backup)
    assert "--yes" in str(caught.value)
    assert "later" in await _names(settings)
    await _restore(settings, backup, replace=True)
    assert await _names(settings) == {"ağaç", "ığdır"}


async def test_what_later_migrations_made_goes_away_and_strangers_tables_stay(
    settings: Settings, backup: Path
) -> None:
    await _write(
        settings,
        "CREATE TABLE core.of_a_later_hasat (thing text REFERENCES core.thing)",
        "CREATE TABLE public.of_another_program (id int)",
        "INSERT INTO hasat_migration VALUES ('gone', '0001_later.sql', 'x', '9.9')",
    )
    await _restore(settings, backup, replace=True)
    async with reach(settings) as reached, await connect(reached.url) as connection:
        cursor = await connection.execute(
            "SELECT to_regclass('core.of_a_later_hasat') IS NULL,"
            " to_regclass('public.of_another_program') IS NOT NULL,"
            " NOT EXISTS (SELECT FROM hasat_migration WHERE set_name = 'gone')"
        )
        assert await cursor.fetchone() == (True, True, True)
    assert await _names(settings) == {"ağaç", "ığdır"}


async def test_a_backup_that_was_cut_off_changes_nothing(
    settings: Settings, backup: Path, tmp_path: Path
) -> None:
    async with open_store(settings) as store, store.connection() as connection:
        await connection.execute(
            "CREATE TABLE core.bulk AS SELECT md5(i::text) FROM generate_series(1, 50000) i"
        )
    await _back_up(settings, tmp_path / "big.dump")
    whole = (tmp_path / "big.dump").read_bytes()
    (tmp_path / "cut.dump").write_bytes(whole[: len(whole) // 2])
    await _write(settings, "INSERT INTO core.thing VALUES ('later')")
    with pytest.raises(DatabaseError, match="as it was before"):
        await _restore(settings, tmp_path / "cut.dump", replace=True)
    assert await _names(settings) == {"ağaç", "ığdır", "later"}


@pytest.mark.parametrize("content", [b"", b"not a backup", b"PGDMP but not really"])
async def test_a_file_that_is_no_backup_is_refused_first(
    settings: Settings, tmp_path: Path, content: bytes
) -> None:
    (tmp_path / "x").write_bytes(content)
    with pytest.raises((UsageError, DatabaseError)):
        await _restore(settings, tmp_path / "x", replace=True)
    with pytest.raises(UsageError, match="Cannot read"):
        await _restore(settings, tmp_path / "missing", replace=True)


async def test_restoring_under_a_working_hasat_is_refused(
    settings: Settings, backup: Path, store: Store
) -> None:
    async with await connect(f"{store.url}&application_name=hasat%2042%40elsewhere"):
        with pytest.raises(ConflictError, match="hasat 42@elsewhere"):
            await _restore(settings, backup, replace=True)


async def test_an_empty_database_is_nothing_to_back_up(server_url: str, tmp_path: Path) -> None:
    async with throw_away_database(server_url, None) as empty:
        with pytest.raises(NothingToDoError):
            await _back_up(empty.settings(tmp_path), tmp_path / "x")
    assert not (tmp_path / "x").exists()


async def test_a_place_that_cannot_be_written_is_said(settings: Settings, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="No such file or directory"):
        await _back_up(settings, tmp_path / "no folder" / "x")


def test_the_password_is_not_in_the_process_list() -> None:
    url = "postgresql://elif:gizli@127.0.0.1/x"
    client = Client(url, None, 15)
    assert "gizli" not in client.database
    assert client.environment["PGPASSWORD"] == "gizli"
    assert "PGPASSWORD" not in os.environ
