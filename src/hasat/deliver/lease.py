"""Leases: who alone may send to an endpoint for the time being.

A row with an end, judged by the database's clock: it needs no session of its own, so it works
through PgBouncer, and that of a killed process ends by itself.
"""

from uuid import UUID

from hasat.store import Store
from hasat.store.queries import load_query

LEASE_SECONDS = 15.0
"""How long what a killed process was at waits for another, besides what one try may take."""


async def hold(store: Store, name: str, holder: UUID, seconds: float) -> bool:
    """Take the lease, or prolong it; False while another holds it."""
    async with store.connection() as conn:
        taken = await conn.execute(
            load_query("hasat.deliver", "lease_hold"),
            {"name": name, "holder": holder, "seconds": seconds},
        )
        return taken.rowcount == 1


async def let_go(store: Store, holder: UUID) -> None:
    """Give back every lease of this holder, so that others need not wait for their ends."""
    async with store.connection() as conn:
        await conn.execute("DELETE FROM deliver.lease WHERE holder = %s", [holder])
