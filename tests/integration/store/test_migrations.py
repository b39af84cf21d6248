"""Migrations on a real database: all or nothing, once, and never silently wrong."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from procrastinate.schema import migrations_path

from hasat.errors import DatabaseError
from hasat.store import MigrationSet
from hasat.store import migrate as migrate_module
from hasat.store.migrate import migrate, read_pending
from hasat.store.store import connect
from hasat.testing.database import throw_away_database

pytestmark = pytest.mark.anyio


@pytest.fixture
async def url(server_url: str) -> AsyncIterator[str]:
    """An empty database."""
    async with throw_away_database(server_url, None) as database:
        yield database.url


@pytest.fixture
def parts(tmp_path: Path) -> MigrationSet:
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts/0001_part.sql").write_text(
        "CREATE TABLE core.part (id int); INSERT INTO core.part VALUES (1);"
    )
    return MigrationSet("parts", tmp_path / "parts")


def _add(parts: MigrationSet, name: str, text: str) -> None:
    Path(str(parts.folder), name).write_text(text)


async def _migrate(url: str, *sets: MigrationSet, **options: Any) -> list[str]:
    async with await connect(url) as connection:
        return await migrate(connection, sets, **options)


async def _one(url: str, question: str) -> Any:
    async with await connect(url) as connection:
        row = await (await connection.execute(question)).fetchone()
        assert row is not None
        return row[0]


async def test_a_fresh_database_gets_everything_once(url: str, parts: MigrationSet) -> None:
    applied = await _migrate(url, parts)
    assert applied[0] == "procrastinate/schema.sql"
    assert applied[1] == "platform/0001_schemas.sql"
    assert applied[-1] == "parts/0001_part.sql"
    assert await _migrate(url, parts) == []
    assert await _one(url, "SELECT count(*) FROM core.part") == 1
    assert await _one(url, "SELECT count(*) FROM procrastinate_jobs") == 0


async def test_a_new_file_is_all_that_is_applied(url: str, parts: MigrationSet) -> None:
    await _migrate(url, parts)
    _add(parts, "0002_more.sql", "ALTER TABLE core.part ADD size int")
    assert await _migrate(url, parts) == ["parts/0002_more.sql"]


async def test_a_broken_file_takes_everything_back(url: str, parts: MigrationSet) -> None:
    _add(parts, "0002_broken.sql", "CREATE TABLE core.part (id int)")
    with pytest.raises(DatabaseError, match=r"parts/0002_broken\.sql failed and nothing was"):
        await _migrate(url, parts)
    assert await _one(url, "SELECT to_regclass('public.hasat_migration') IS NULL")
    assert await _one(url, "SELECT to_regclass('procrastinate_jobs') IS NULL")
    assert await _one(url, "SELECT to_regnamespace('core') IS NULL")


async def test_many_at_once_are_one(url: str, parts: MigrationSet) -> None:
    results = await asyncio.gather(*(_migrate(url, parts) for _ in range(8)))
    assert sorted(map(bool, results)) == [False] * 7 + [True]
    assert await _one(url, "SELECT count(*) FROM core.part") == 1


async def test_a_file_may_not_end_the_transaction(url: str, parts: MigrationSet) -> None:
    _add(parts, "0002_ends.sql", "COMMIT")
    with pytest.raises(DatabaseError, match="ends the transaction"):
        await _migrate(url, parts)


async def test_who_holds_the_lock_is_named(url: str, parts: MigrationSet) -> None:
    key = migrate_module._LOCK_KEY
    async with await connect(f"{url}&application_name=the_slow_one") as holder:
        async with holder.transaction():
            await holder.execute("SELECT pg_advisory_xact_lock(%s)", [key])
            with pytest.raises(DatabaseError) as caught:
                await _migrate(url, parts, wait_seconds=0.2)
        said = caught.value.message
        assert f"the_slow_one (process {holder.info.backend_pid}" in said
        assert "another Hasat that migrates" in said
    assert await _migrate(url, parts)


async def test_who_uses_the_table_is_named(url: str, parts: MigrationSet) -> None:
    await _migrate(url, parts)
    _add(parts, "0002_more.sql", "ALTER TABLE core.part ADD size int")
    reading = await connect(f"{url}&application_name=a_reader")
    async with reading, reading.transaction():
        await reading.execute("SELECT FROM core.part")
        with pytest.raises(DatabaseError, match=r"0002_more\.sql changes.*a_reader \(process"):
            await _migrate(url, parts, wait_seconds=0.2)


async def test_a_later_procrastinate_brings_only_its_new_files(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await _migrate(url)
    shutil.copytree(migrations_path, tmp_path / "later")
    (tmp_path / "later/99.00.00_01_pre_new.sql").write_text("CREATE TABLE procrastinate_new ()")
    monkeypatch.setattr(migrate_module, "migrations_path", tmp_path / "later")
    assert await _migrate(url) == ["procrastinate/99.00.00_01_pre_new.sql"]
    monkeypatch.undo()
    with pytest.raises(DatabaseError, match="newer Hasat"):
        await _migrate(url)


async def test_the_rules_of_the_session_do_not_matter(url: str, parts: MigrationSet) -> None:
    async with await connect(url) as connection:
        await connection.execute("SET search_path = pg_catalog")
        await connection.execute("SET default_transaction_isolation = 'repeatable read'")
        assert await migrate(connection, [parts])
    assert await _one(url, "SELECT to_regclass('public.procrastinate_jobs') IS NOT NULL")


async def test_a_role_without_rights_is_told_what_it_needs(url: str) -> None:
    async with await connect(url) as connection:
        await connection.execute("CREATE ROLE hasat_test_guest")
        try:
            await connection.execute("SET ROLE hasat_test_guest")
            with pytest.raises(DatabaseError, match="may not create") as caught:
                await migrate(connection, [])
            assert "OWNER TO" in str(caught.value)
        finally:
            await connection.execute("RESET ROLE")
            await connection.execute("DROP ROLE hasat_test_guest")


async def test_pending_migrations_are_listed_without_being_applied(
    url: str, parts: MigrationSet
) -> None:
    await _migrate(url, parts)
    _add(parts, "0002_add.sql", "CREATE TABLE core.added (id int);")
    _add(
        parts,
        "0003_drop.sql",
        "-- Stop workers and servers first: it goes.\nDROP TABLE core.added;",
    )
    for _ in range(2):
        async with await connect(url) as connection:
            found = await read_pending(connection, [parts])
        assert [(str(one), one.stop_reason) for one in found] == [
            ("parts/0002_add.sql", None),
            ("parts/0003_drop.sql", "it goes."),
        ]
    await _migrate(url, parts)
    async with await connect(url) as connection:
        assert await read_pending(connection, [parts]) == []
