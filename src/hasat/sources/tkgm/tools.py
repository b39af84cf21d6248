"""What assistants may ask about parcels: only what the mirror has, so no question is spent."""

from datetime import datetime
from typing import Annotated, Any

from pydantic import BaseModel, Field
from shapely import Point
from shapely.geometry import shape

from hasat.errors import NotFoundError
from hasat.messages import msg
from hasat.sources.registry import Tool, ToolContext
from hasat.sources.tools import Limit, Text, ToolResponse, tools
from hasat.store.queries import load_query


class ParcelTold(ToolResponse):
    key: str
    told_at: datetime = Field(description="When the registry last told of it.")
    feature: dict[str, Any] = Field(description="The parcel as a GeoJSON Feature.")


class ScanTold(BaseModel):
    """A scan of an area, and how far it is."""

    id: int
    began_at: datetime
    finished_at: datetime | None
    questions: int
    parcels: int
    last_answer_at: datetime | None
    result: dict[str, Any] | None


class ScansTold(ToolResponse):
    items: list[ScanTold]


class TkgmTools:
    """The tools of this source."""

    def __init__(self, context: ToolContext) -> None:
        self._store = context.store

    def all(self) -> tuple[Tool, ...]:
        return tools(self.parcel_at_point, self.get_parcel, self.get_scan_progress)

    async def parcel_at_point(
        self,
        lat: Annotated[float, Field(ge=-90, le=90)],
        lon: Annotated[float, Field(ge=-180, le=180)],
    ) -> ParcelTold:
        """The mirrored parcel at a point (WGS 84); nobody is asked, so only collected ones."""
        box = {"west": lon, "east": lon, "south": lat, "north": lat}
        async with self._store.connection() as conn:
            cursor = await conn.execute(
                load_query("hasat.sources.tkgm", "known_parcels"),
                box,
            )
            rows = await cursor.fetchall()
        point = Point(lon, lat)
        for feature, told_at in rows:
            if feature["geometry"] is not None and shape(feature["geometry"]).covers(point):
                return await self._parcel(feature, told_at)
        raise NotFoundError(
            msg("The mirror has no parcel at {lat}, {lon}.", lat=lat, lon=lon),
            remedy=msg("Perhaps nobody asked there yet: `hasat tkgm parcel LAT LON` asks."),
        )

    async def get_parcel(self, mahalle_id: int, ada_no: Text, parsel_no: Text) -> ParcelTold:
        """The mirrored parcel of a neighbourhood's id, block and parcel number."""
        key = f"{mahalle_id}/{ada_no}/{parsel_no}"
        async with self._store.connection() as conn:
            cursor = await conn.execute(
                "SELECT p.body, coalesce(t.told_at, p.changed_at) FROM core.parcels AS p"
                " LEFT JOIN tkgm.parcel_told AS t USING (key) WHERE p.key = %s",
                [key],
            )
            row = await cursor.fetchone()
        if row is None:
            raise NotFoundError(
                msg("The mirror has no parcel {key}.", key=key),
                remedy=msg(
                    "Perhaps nobody asked for it yet: `hasat tkgm parcel --mahalle ...` asks."
                ),
            )
        return await self._parcel(*row)

    async def get_scan_progress(self, limit: Limit = 10) -> ScansTold:
        """Scans of areas, newest first: questions answered so far, parcels found, the result."""
        query = load_query("hasat.sources.tkgm", "scan_progress")
        items = await self._store.rows(ScanTold, query, {"limit": limit})
        return ScansTold(ts_utc=await self._store.now(), items=items)

    async def _parcel(self, feature: dict[str, Any], told_at: datetime) -> ParcelTold:
        now = await self._store.now()
        return ParcelTold(ts_utc=now, key=feature["id"], told_at=told_at, feature=feature)
