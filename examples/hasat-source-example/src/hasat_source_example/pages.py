"""The page of the dashboard."""

from importlib.resources import files
from typing import Any

from hasat.source import NavigationEntry, Page, PageRequest, SourcePages


async def load_rates(request: PageRequest) -> list[dict[str, Any]]:
    async with request.store.connection() as conn:
        cursor = await conn.execute("SELECT key, body FROM core.example_rates ORDER BY key")
        return [{"code": code, **body} for code, body in await cursor.fetchall()]


PAGES = SourcePages(
    (Page("/example", "rates", load_rates, "example"),),
    files("hasat_source_example") / "templates",
    (NavigationEntry("example", "Exchange rates", "/example"),),
)
