"""Views are for reading: no write through one deletes changes past the floor."""

from collections.abc import Sequence

import psycopg
import pytest
from psycopg import sql

from hasat.console.runtime import source_migrations
from hasat.store import MigrationSet, Store

pytestmark = pytest.mark.anyio

_VIEWS = """
    SELECT n.nspname, c.relname,
           (SELECT attname FROM pg_attribute WHERE attrelid = c.oid AND attnum = 1)
      FROM pg_class AS c
      JOIN pg_namespace AS n ON n.oid = c.relnamespace
     WHERE c.relkind = 'v' AND n.nspname NOT IN ('pg_catalog', 'information_schema')
"""
_WRITES = (
    "INSERT INTO {view} DEFAULT VALUES",
    "UPDATE {view} SET {column} = {column}",
    "DELETE FROM {view}",
    "DELETE FROM {view} WHERE false",
)


@pytest.fixture
def migrations() -> Sequence[MigrationSet]:
    return source_migrations()


async def test_every_view_rejects_writes_with_a_reason(store: Store) -> None:
    async with store.connection() as conn:
        views = await (await conn.execute(_VIEWS)).fetchall()
        assert {"gib_user_changelog", "e_invoice_gib_users", "e_despatch_gib_users"} <= {
            name for _, name, _ in views
        }
        for schema, name, column in views:
            for write in _WRITES:
                statement = sql.SQL(write).format(
                    view=sql.Identifier(schema, name), column=sql.Identifier(column)
                )
                with pytest.raises(psycopg.Error) as raised:
                    async with conn.transaction():
                        await conn.execute(statement)
                text = f"{raised.value}"
                assert f"the view {schema}.{name} is read-only" in text, f"{write}: {text}"
                assert "Copy the rows" in text
