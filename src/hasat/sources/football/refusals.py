"""What the API refused (a season, a way to ask, the key): remembered, so that it can rest."""

from datetime import datetime

from hasat.store import Store
from hasat.store.queries import load_query


async def note_refusal(
    store: Store, endpoint: str, league: int = 0, season: int = 0, team: int = 0
) -> None:
    async with store.connection() as conn:
        await conn.execute(
            load_query("hasat.sources.football", "note_refused"),
            {"endpoint": endpoint, "league": league, "season": season, "team": team},
        )


async def refusals(store: Store, endpoint: str, since: datetime) -> set[tuple[int, int]]:
    """The leagues and seasons about which an endpoint refused to say anything since then."""
    async with store.connection() as conn:
        cursor = await conn.execute(
            "SELECT league_id, season FROM football.refusal"
            " WHERE endpoint = %s AND refused_at > %s",
            [endpoint, since],
        )
        return {(league, season) for league, season in await cursor.fetchall()}
