"""Simulate the parcel registry and the endpoints in front of it, with their limits.

The registry is under /megsiswebapi.v3/api and responds by point, by number, with its administrative
lists and with the blocks and units of condominiums, `registry_daily` times a day (without limit if
not given). The official service is under /wfs, for the user `sim` with the password `sim`. The
`endpoints` are under /e1, /e2, ... and serve /parsel/{lat}/{lon} and /batch to callers with the
key, up to `daily` points a day of the simulated clock. `cadastre` names a GeoJSON file; without it
`parcels` of a `kind` are generated.
"""

import asyncio
import json
from collections import Counter
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any, Final
from zoneinfo import ZoneInfo

import numpy as np
import shapely
from starlette.applications import Starlette
from starlette.convertors import Convertor, register_url_convertor
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from hasat.errors import UsageError
from hasat.messages import msg
from hasat.sim import Simulation, Simulator
from hasat.sources.tkgm.simulator import buildings, official
from hasat.sources.tkgm.simulator.cadastre import (
    DECIMALS,
    Cadastre,
    CadastreParcel,
    areal,
    read_cadastre,
)
from hasat.sources.tkgm.simulator.kinds import KINDS, generate_cadastre

API: Final = "/megsiswebapi.v3/api"
KEY: Final = "sim-key"
MAX_BATCH_POINTS: Final = 20
_DAY_LIMIT: Final = "Günlük sorgu limitini aştınız."
_ZONE: Final = ZoneInfo("Europe/Istanbul")

# Each affects all endpoints or, with the option `endpoint`, only that one.
FAULTS: Final = {
    "tail": "responses take `factor` (50) times as long as usual",
    "forbidden": "403 without a reason",
    "day-limit": "403 with the text of the daily limit",
    "busy": "429 with Retry-After: `seconds` (5)",
    "broken": "503",
    "dead": "no response at all",
    "lying": "an empty response for every point",
    "half-list": "an empty response for every parcel with an odd number",
    "unanswerable": "one point in `of` (50) fails at every endpoint",
    "partial": "a third of the points of a batch are errors",
}


class _Degrees(Convertor[float]):
    """Numbers of either sign."""

    regex = r"-?[0-9]+(\.[0-9]+)?"

    def convert(self, value: str) -> float:
        return float(value)

    def to_string(self, value: float) -> str:
        return repr(value)


register_url_convertor("degrees", _Degrees())


class Endpoint:
    """One endpoint with its daily count."""

    def __init__(self, number: int, daily: int) -> None:
        self.number = number
        self.daily = daily
        self.spent: Counter[date] = Counter()

    def take(self, points: int, today: date) -> bool:
        """Count points and return True, or return False if they exceed the daily limit."""
        if self.spent[today] + points > self.daily:
            return False
        self.spent[today] += points
        return True


class SimulatedRegistry:
    """The registry and its endpoints over one cadastre."""

    def __init__(self, simulation: Simulation) -> None:
        options = simulation.options
        self._sim = simulation
        self.cadastre = _cadastre(simulation)
        self._delay = float(options.get("latency_ms", 0)) / 1000
        count = int(options.get("endpoints", 6))
        daily = int(options.get("daily", 2000))
        self.endpoints = [Endpoint(number, daily) for number in range(1, count + 1)]
        limit = options.get("registry_daily")
        self.direct = None if limit is None else Endpoint(0, int(limit))
        self.points: Counter[tuple[float, float]] = Counter()

    def workers_json(self, address: str, **more: Any) -> dict[str, Any]:
        """Return a workers.json for the endpoints served at an address."""
        workers = [
            {"url": f"{address}/e{one.number}", "daily": one.daily, **more}
            for one in self.endpoints
        ]
        return {"api_key": KEY, "workers": workers}

    def merge_two(self) -> set[str]:
        """Merge two neighbours into a parcel with a new number; return the keys that are gone."""
        first, second = _neighbours(self.cadastre.parcels)
        last = max(int(one.parsel) for one in self.cadastre.parcels if one.ada == first.ada)
        ground = areal(shapely.union_all([first.ground, second.ground]))
        outline = shapely.transform(ground, lambda xy: np.round(xy, DECIMALS))
        size = first.square_metres + second.square_metres
        merged = CadastreParcel(first.mahalle_id, first.ada, str(last + 1), ground, outline, size)
        others = [one for one in self.cadastre.parcels if one not in (first, second)]
        self.cadastre = Cadastre([*others, merged])
        return {"/".join(map(str, one.key)) for one in (first, second)}

    # The registry itself

    async def by_point(self, request: Request) -> Response:
        if self.direct is not None and not self.direct.take(1, self._today()):
            return JSONResponse({"Message": _DAY_LIMIT}, status_code=403)
        lat, lon = request.path_params["lat"], request.path_params["lon"]
        return self._response(self._at(lat, lon), lat, lon)

    async def by_number(self, request: Request) -> Response:
        where = request.path_params
        found = self.cadastre.numbered(where["mahalle"], where["ada"], where["parsel"])
        return _numbered(found)

    async def places(self, request: Request) -> Response:
        """Return provinces, districts or neighbourhoods, of which there is one each."""
        area = self.cadastre.area()
        number, name = {"ilListe": (56, "İstanbul"), "ilceListe": (521, "Kadıköy")}.get(
            request.path_params["list"], (self.cadastre.parcels[0].mahalle_id, "Tuğlacı Başı")
        )
        feature = {
            "type": "Feature",
            "geometry": json.loads(shapely.to_geojson(area)),
            "properties": {"id": number, "text": name},
        }
        return JSONResponse({"type": "FeatureCollection", "features": [feature]})

    async def blocks(self, request: Request) -> Response:
        if self.direct is not None and not self.direct.take(1, self._today()):
            return JSONResponse({"Message": _DAY_LIMIT}, status_code=403)
        where = request.path_params
        found = self.cadastre.numbered(where["mahalle"], where["ada"], where["parsel"])
        rows = [] if found is None else buildings.blocks_of(found)
        if not rows:
            return JSONResponse({"Message": "Blok Bulunamadı"}, status_code=404)
        return JSONResponse(buildings.collection(rows))

    async def units(self, request: Request) -> Response:
        if self.direct is not None and not self.direct.take(1, self._today()):
            return JSONResponse({"Message": _DAY_LIMIT}, status_code=403)
        where = request.path_params
        found = self.cadastre.numbered(where["mahalle"], where["ada"], where["parsel"])
        block = "" if where["block"] == "0" else where["block"]
        known = [] if found is None else [one["blok"] for one in buildings.blocks_of(found)]
        if found is None or block not in known:
            return JSONResponse({"Message": "Bağımsız Bölüm Bulunamadı"}, status_code=404)
        return JSONResponse(buildings.collection(buildings.units_of(found, block)))

    async def official(self, request: Request) -> Response:
        """Return a page of the web feature service."""
        if not official.is_permitted(request.headers.get("authorization")):
            return Response("Unauthorized", status_code=401)
        given = {name.upper(): value for name, value in request.query_params.items()}
        try:
            found = official.select(
                self.cadastre.parcels,
                given["CQL_FILTER"],
                int(given.get("STARTINDEX", 0)),
                int(given["MAXFEATURES"]),
            )
        except (ValueError, KeyError) as error:
            return Response(official.exception_report(str(error)), media_type="text/xml")
        return Response(official.feature_collection(found), media_type="text/xml")

    # The endpoints

    async def parcel(self, request: Request) -> Response:
        refusal = await self._refusal(request, 1)
        if refusal is not None:
            return refusal
        lat, lon = request.path_params["lat"], request.path_params["lon"]
        if self._is_unanswerable(lat, lon, request):
            return Response("upstream failed", status_code=503)
        found = None if self._fault("lying", request) else self._at(lat, lon)
        return self._response(found, lat, lon)

    async def parcel_by_number(self, request: Request) -> Response:
        refusal = await self._refusal(request, 1)
        return await self.by_number(request) if refusal is None else refusal

    async def batch(self, request: Request) -> Response:
        try:
            body = await request.json()
            points = [(float(one["lat"]), float(one["lon"])) for one in body["coordinates"]]
        except (ValueError, KeyError, TypeError):
            return JSONResponse({"error": "coordinates are needed"}, status_code=400)
        if not 1 <= len(points) <= MAX_BATCH_POINTS:
            return JSONResponse({"error": "at most 20 coordinates"}, status_code=400)
        refusal = await self._refusal(request, len(points))
        if refusal is not None:
            return refusal
        lying = self._fault("lying", request)
        partial = self._fault("partial", request)
        results: list[dict[str, Any]] = []
        for number, (lat, lon) in enumerate(points):
            found = None if lying else self._at(lat, lon)
            if (partial and number % 3 == 2) or self._is_unanswerable(lat, lon, request):
                results.append({"status": "error", "coord": {"lat": lat, "lon": lon}})
            elif found is None:
                results.append({"status": "empty", "data": None})
            else:
                results.append({"status": "found", "data": found.feature()})
        counts = Counter(one["status"] for one in results)
        stats = {name: counts[name] for name in ("found", "empty", "error")}
        return JSONResponse({"results": results, "stats": {**stats, "total": len(results)}})

    async def _refusal(self, request: Request, points: int) -> Response | None:
        """Return the response of an endpoint that rejects a request, or None."""
        number = request.path_params["endpoint"]
        if not 1 <= number <= len(self.endpoints):
            return Response("Not Found", status_code=404)
        if request.headers.get("x-api-key") != KEY:
            return JSONResponse({"error": "Unauthorized"}, status_code=401)
        if self._fault("dead", request):
            await asyncio.sleep(3600)
        slow = self._fault("tail", request)
        await asyncio.sleep(self._delay * (float(slow.options.get("factor", 50)) if slow else 1))
        if fault := self._fault("busy", request):
            seconds = str(fault.options.get("seconds", 5))
            return JSONResponse({"error": "busy"}, 429, {"Retry-After": seconds})
        if self._fault("broken", request):
            return Response("upstream failed", status_code=503)
        if self._fault("forbidden", request):
            return JSONResponse({"error": "Forbidden"}, status_code=403)
        endpoint = self.endpoints[number - 1]
        if self._fault("day-limit", request) or not endpoint.take(points, self._today()):
            return JSONResponse({"Message": _DAY_LIMIT}, status_code=403)
        return None

    def _today(self) -> date:
        return self._sim.clock().astimezone(_ZONE).date()

    def _fault(self, name: str, request: Request) -> Any:
        for fault in self._sim.faults.on:
            wanted = fault.options.get("endpoint")
            if fault.name == name and wanted in (None, request.path_params["endpoint"]):
                return self._sim.faults.strikes(name)
        return None

    def _is_unanswerable(self, lat: float, lon: float, request: Request) -> bool:
        fault = self._fault("unanswerable", request)
        return bool(fault) and hash((lat, lon)) % int(fault.options.get("of", 50)) == 0

    def _at(self, lat: float, lon: float) -> CadastreParcel | None:
        self.points[lat, lon] += 1
        found = self.cadastre.at(lat, lon)
        is_odd = found is not None and found.parsel[-1:] in "13579"
        return None if is_odd and self._sim.faults.strikes("half-list") else found

    def _response(self, found: CadastreParcel | None, lat: float, lon: float) -> Response:
        if found is not None:
            return JSONResponse(found.feature())
        where = f"Enlem = {lat} - Boylam={lon}".replace(".", ",")
        return JSONResponse({"Message": f"Parsel Bulunamadı: {where}"}, status_code=404)


def _neighbours(parcels: Sequence[CadastreParcel]) -> tuple[CadastreParcel, CadastreParcel]:
    for first in parcels:
        for second in parcels:
            alike = first.ada == second.ada and first is not second
            if alike and first.ground.intersection(second.ground).length > 0:
                return first, second
    raise UsageError(msg("No two parcels of this cadastre touch."))


def _numbered(found: CadastreParcel | None) -> Response:
    """Return the response by number, which formats areas the Turkish way and keeps the ı."""
    if found is None:
        return JSONResponse({"Message": "Parsel Bulunamadı"}, status_code=404)
    feature = found.feature()
    properties = feature["properties"]
    properties["alan"] = properties["alan"].translate(str.maketrans(",.", ".,"))
    properties |= {"ilAd": "İstanbul", "ilceAd": "Kadıköy", "mahalleAd": "Tuğlacı Başı"}
    properties |= {"ozet": f"Tuğlacı Başı-{found.ada}/{found.parsel}"}
    properties |= {"gittigiParselListe": "", "gittigiParselSebep": ""}
    return JSONResponse(feature)


def _cadastre(simulation: Simulation) -> Cadastre:
    options = simulation.options
    if file := options.get("cadastre"):
        path = Path(str(file))
        if not path.is_file():
            raise UsageError(
                msg("There is no cadastre {path}.", path=path), remedy=msg("Name a GeoJSON file.")
            )
        return read_cadastre(path, simulation.seed)
    kind = str(options.get("kind", "town"))
    if kind not in KINDS:
        raise UsageError(
            msg("There is no kind {kind!r}.", kind=kind),
            remedy=msg("Use {kinds}.", kinds=", ".join(sorted(KINDS))),
        )
    return generate_cadastre(kind, int(options.get("parcels", 500)), simulation.seed)


def _build(simulation: Simulation) -> Starlette:
    registry = simulation.inside = SimulatedRegistry(simulation)
    return Starlette(
        routes=[
            Route(f"{API}/parsel/{{lat:degrees}}/{{lon:degrees}}", registry.by_point),
            Route(f"{API}/parsel/{{lat:degrees}}/{{lon:degrees}}/", registry.by_point),
            Route(f"{API}/parsel/{{mahalle:int}}/{{ada}}/{{parsel}}", registry.by_number),
            Route(f"{API}/parsel/blok/{{mahalle:int}}/{{ada}}/{{parsel}}", registry.blocks),
            Route(
                f"{API}/parsel/bagimsizbolum/{{mahalle:int}}/{{ada}}/{{parsel}}/{{block}}",
                registry.units,
            ),
            Route("/wfs", registry.official),
            Route(f"{API}/idariYapi/{{list}}", registry.places),
            Route(f"{API}/idariYapi/{{list}}/{{of:int}}", registry.places),
            Route("/e{endpoint:int}/parsel/{lat:degrees}/{lon:degrees}", registry.parcel),
            Route(
                "/e{endpoint:int}/parsel/{mahalle:int}/{ada}/{parsel}", registry.parcel_by_number
            ),
            Route("/e{endpoint:int}/batch", registry.batch, methods=["POST"]),
        ]
    )


TKGM = Simulator("tkgm", msg("the parcel registry and its endpoints"), _build, FAULTS)
