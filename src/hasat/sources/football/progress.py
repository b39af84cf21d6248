"""How far backfills are, in core.backfill_progress."""

from dataclasses import dataclass
from datetime import date, datetime

from hasat.store import Store
from hasat.store.queries import load_query

UNREADABLE = "the answer could not be read"
_PACKAGE = "hasat.sources.football"


@dataclass(frozen=True)
class Progress:
    """Everything from `first_date` up to, but not including, `next_date` is in the mirror."""

    first_date: date | None = None
    next_date: date | None = None
    completed: bool = False
    last_error: str | None = None
    updated_at: datetime | None = None

    def reaches(self, start: date | None, end: date | None) -> bool:
        """Whether it still covers a season whose dates may have moved since."""
        early = start is None or (self.first_date is not None and self.first_date <= start)
        late = end is None or (self.next_date is not None and self.next_date > end)
        return early and late


async def load_progress(store: Store, job: str) -> dict[tuple[int, int], Progress]:
    """The progress of a job's backfill, by league and season."""
    async with store.connection() as conn:
        cursor = await conn.execute(
            "SELECT league_id, season, first_date, next_date, completed, last_error, updated_at"
            " FROM core.backfill_progress WHERE job = %s",
            [job],
        )
        return {
            (league, season): Progress(*rest) for league, season, *rest in await cursor.fetchall()
        }


async def save_progress(
    store: Store, job: str, league: int, season: int, progress: Progress
) -> None:
    async with store.connection() as conn:
        await conn.execute(
            load_query(_PACKAGE, "save_progress"),
            {"job": job, "league": league, "season": season, **vars(progress)},
        )
