"""MCP tools for parcels; they read only the mirror, so they use no quota."""

from datetime import datetime
from typing import Annotated, Any

from pydantic import BaseModel, Field
from shapely import Point
from shapely.geometry import shape

from hasat.errors import NotFoundError
from hasat.messages import msg
from hasat.source import Tool, ToolContext
from hasat.store.queries import load_query
from hasat.tools import Limit, Text, ToolResponse, tools


class ParcelResult(ToolResponse):
    key: str
    told_at: datetime = Field(description="Time of the registry's last response.")
    feature: dict[str, Any] = Field(description="The parcel as a GeoJSON Feature.")


class ScanItem(BaseModel):
    """A scan of an area and its progress."""

    id: int
    began_at: datetime
    finished_at: datetime | None
    questions: int
    parcels: int
    last_answer_at: datetime | None
    result: dict[str, Any] | None


class ScanList(ToolResponse):
    items: list[ScanItem]


class TkgmTools:
    """Tools of the source `tkgm`."""

    def __init__(self, context: ToolContext) -> None:
        self._store = context.store

    def all(self) -> tuple[Tool, ...]:
        return tools(self.parcel_at_point, self.get_parcel, self.get_scan_progress)

    async def parcel_at_point(
        self,
        lat: Annotated[float, Field(ge=-90, le=90)],
        lon: Annotated[float, Field(ge=-180, le=180)],
    ) -> ParcelResult:
        """The mirrored parcel at a point (WGS 84); the registry is not queried."""
        box = {"west": lon, "east": lon, "south": lat, "north": lat}
        async with self._store.connection() as conn:
            cursor = await conn.execute(
                load_query("hasat.sources.tkgm", "parcels_in_box"),
                box,
            )
            rows = await cursor.fetchall()
        point = Point(lon, lat)
        for feature, told_at in rows:
            if feature["geometry"] is not None and shape(feature["geometry"]).covers(point):
                return await self._parcel(feature, told_at)
        raise NotFoundError(
            msg("The mirror has no parcel at {lat}, {lon}.", lat=lat, lon=lon),
            remedy=msg("If it was never fetched, `hasat tkgm parcel LAT LON` fetches it."),
        )

    async def get_parcel(self, mahalle_id: int, ada_no: Text, parsel_no: Text) -> ParcelResult:
        """The mirrored parcel with a neighbourhood id, block and parcel number."""
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
                    "If it was never fetched, `hasat tkgm parcel --mahalle ...` fetches it."
                ),
            )
        return await self._parcel(*row)

    async def get_scan_progress(self, limit: Limit = 10) -> ScanList:
        """Scans of areas, newest first: responses so far, parcels found, result."""
        query = load_query("hasat.sources.tkgm", "scan_progress")
        items = await self._store.rows(ScanItem, query, {"limit": limit})
        return ScanList(ts_utc=await self._store.now(), items=items)

    async def _parcel(self, feature: dict[str, Any], told_at: datetime) -> ParcelResult:
        now = await self._store.now()
        return ParcelResult(ts_utc=now, key=feature["id"], told_at=told_at, feature=feature)
