"""Geometries of the parcels where the database has PostGIS; nothing needs them.

The schema `tkgm_gis` is made when the store opens and the extension is there. Triggers keep it up
to date. It is not part of backups: the next start makes it again.
"""

from collections.abc import Sequence

from psycopg import AsyncConnection, sql
from psycopg.rows import TupleRow

from hasat.store.migrate import Step
from hasat.store.queries import load_query

_PACKAGE = "hasat.sources.tkgm"


async def missing_geometries(connection: AsyncConnection[TupleRow]) -> Sequence[Step]:
    """Return the statement that makes the geometries if PostGIS is there and they are not."""
    cursor = await connection.execute(load_query(_PACKAGE, "postgis_without_geometries"))
    row = await cursor.fetchone()
    if row is None:
        return []
    statement = sql.SQL(load_query(_PACKAGE, "make_geometries"))
    return [Step("tkgm_gis", statement.format(postgis=sql.Identifier(row[0])))]
