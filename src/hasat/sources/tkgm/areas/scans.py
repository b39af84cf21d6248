"""Delete scans: their responses go, the parcels that they found stay."""

from hasat.errors import ConflictError, NotFoundError
from hasat.messages import msg
from hasat.store import Store
from hasat.store.queries import load_query


async def delete_scan(store: Store, scan: int) -> None:
    """Delete a scan and its stored responses; raise ConflictError while it runs."""
    async with store.connection() as conn:
        cursor = await conn.execute(
            load_query("hasat.sources.tkgm", "scan_to_delete"), {"scan": scan}
        )
        row = await cursor.fetchone()
        if row is None:
            raise NotFoundError(
                msg("There is no scan {scan}.", scan=scan),
                remedy=msg("`hasat tkgm scans` lists them."),
            )
        if row[0]:
            raise ConflictError(
                msg("Scan {scan} is running.", scan=scan),
                remedy=msg("Stop its run first, or wait two minutes after the last response."),
            )
        await conn.execute("DELETE FROM tkgm.scan WHERE id = %s", [scan])
