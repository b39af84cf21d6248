"""The parcel registry, and the endpoints through which it may be asked, with their limits.

Two faces over one cadastre: the registry itself under /megsiswebapi.v3/api, as it answers by point,
by number and with its administrative lists; and `endpoints` proxies under /e1, /e2, ... that answer
/parsel/{lat}/{lon} and /batch for whoever sends the key, each up to `daily` points a day of the
simulated clock. The registry itself answers `registry_daily` questions a day, or any number without
that option. `cadastre` names a GeoJSON file; without it `parcels` of a `kind` are generated.
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
from hasat.sources.tkgm.simulator.cadastre import (
    DECIMALS,
    Cadastre,
    CadastreParcel,
    areal,
    read_cadastre,
)
from hasat.sources.tkgm.simulator.townscape import KINDS, generate_cadastre

API: Final = "/megsiswebapi.v3/api"
KEY: Final = "sim-key"
MOST_AT_ONCE: Final = 20
_DAY_LIMIT: Final = "Günlük sorgu limitini aştınız."
_ZONE: Final = ZoneInfo("Europe/Istanbul")

# Each concerns every endpoint or, with the option `endpoint`, that one alone.
FAULTS: Final = {
    "tail": "the answer waits `factor` (50) times as long as usual",
    "forbidden": "403 without a reason",
    "day-limit": "403 with the text of the daily limit",
    "busy": "429 with Retry-After: `seconds` (5)",
    "broken": "503",
    "dead": "nothing is ever answered",
    "lying": "an empty answer whatever is there",
    "unanswerable": "one point in `of` (50) is never answered by anybody",
    "partial": "a batch leaves a third of its points unanswered",
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
    """One proxy: its own count of the day, its own troubles."""

    def __init__(self, number: int, daily: int) -> None:
        self.number = number
        self.daily = daily
        self.spent: Counter[date] = Counter()

    def take(self, points: int, today: date) -> bool:
        """Whether so many more points may be asked today; refused ones are not counted."""
        if self.spent[today] + points > self.daily:
            return False
        self.spent[today] += points
        return True


class Registry:
    """Everything behind both faces."""

    def __init__(self, simulation: Simulation) -> None:
        options = simulation.options
        self._sim = simulation
        self.cadastre = _cadastre(simulation)
        self._delay = float(options.get("latency_ms", 0)) / 1000
        count = int(options.get("endpoints", 6))
        daily = int(options.get("daily", 2000))
        self.endpoints = [Endpoint(number, daily) for number in range(1, count + 1)]
        limit = options.get("registry_daily")
        self.itself = None if limit is None else Endpoint(0, int(limit))
        self.points: Counter[tuple[float, float]] = Counter()

    def workers_json(self, address: str, **more: Any) -> dict[str, Any]:
        """The file that names the endpoints of a registry served at this address."""
        workers = [
            {"url": f"{address}/e{one.number}", "daily": one.daily, **more}
            for one in self.endpoints
        ]
        return {"api_key": KEY, "workers": workers}

    def merge_two(self) -> set[str]:
        """Two neighbours become one parcel with a new number; the keys that are no more."""
        first, second = _neighbours(self.cadastre.parcels)
        last = max(int(one.parsel) for one in self.cadastre.parcels if one.ada == first.ada)
        ground = areal(shapely.union_all([first.ground, second.ground]))
        outline = shapely.transform(ground, lambda xy: np.round(xy, DECIMALS))
        size = first.square_metres + second.square_metres
        heir = CadastreParcel(first.mahalle_id, first.ada, str(last + 1), ground, outline, size)
        others = [one for one in self.cadastre.parcels if one not in (first, second)]
        self.cadastre = Cadastre([*others, heir])
        return {"/".join(map(str, one.key)) for one in (first, second)}

    # The registry itself

    async def by_point(self, request: Request) -> Response:
        if self.itself is not None and not self.itself.take(1, self._today()):
            return JSONResponse({"Message": _DAY_LIMIT}, status_code=403)
        lat, lon = request.path_params["lat"], request.path_params["lon"]
        return self._told(self._at(lat, lon), lat, lon)

    async def by_number(self, request: Request) -> Response:
        where = request.path_params
        found = self.cadastre.numbered(where["mahalle"], where["ada"], where["parsel"])
        return _numbered(found)

    async def places(self, request: Request) -> Response:
        """Provinces, districts or neighbourhoods; there is one of each."""
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

    # The endpoints

    async def parcel(self, request: Request) -> Response:
        refused = await self._refusal(request, 1)
        if refused is not None:
            return refused
        lat, lon = request.path_params["lat"], request.path_params["lon"]
        if self._is_unanswerable(lat, lon, request):
            return Response("upstream failed", status_code=503)
        found = None if self._strikes("lying", request) else self._at(lat, lon)
        return self._told(found, lat, lon)

    async def parcel_by_number(self, request: Request) -> Response:
        refused = await self._refusal(request, 1)
        return await self.by_number(request) if refused is None else refused

    async def batch(self, request: Request) -> Response:
        try:
            told = await request.json()
            points = [(float(one["lat"]), float(one["lon"])) for one in told["coordinates"]]
        except (ValueError, KeyError, TypeError):
            return JSONResponse({"error": "coordinates are needed"}, status_code=400)
        if not 1 <= len(points) <= MOST_AT_ONCE:
            return JSONResponse({"error": "at most 20 coordinates"}, status_code=400)
        refused = await self._refusal(request, len(points))
        if refused is not None:
            return refused
        lying = self._strikes("lying", request)
        partial = self._strikes("partial", request)
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
        """Why an endpoint does not answer, if it does not."""
        number = request.path_params["endpoint"]
        if not 1 <= number <= len(self.endpoints):
            return Response("Not Found", status_code=404)
        if request.headers.get("x-api-key") != KEY:
            return JSONResponse({"error": "Unauthorized"}, status_code=401)
        if self._strikes("dead", request):
            await asyncio.sleep(3600)
        slow = self._strikes("tail", request)
        await asyncio.sleep(self._delay * (float(slow.options.get("factor", 50)) if slow else 1))
        if fault := self._strikes("busy", request):
            seconds = str(fault.options.get("seconds", 5))
            return JSONResponse({"error": "busy"}, 429, {"Retry-After": seconds})
        if self._strikes("broken", request):
            return Response("upstream failed", status_code=503)
        if self._strikes("forbidden", request):
            return JSONResponse({"error": "Forbidden"}, status_code=403)
        endpoint = self.endpoints[number - 1]
        if self._strikes("day-limit", request) or not endpoint.take(points, self._today()):
            return JSONResponse({"Message": _DAY_LIMIT}, status_code=403)
        return None

    def _today(self) -> date:
        return self._sim.clock().astimezone(_ZONE).date()

    def _strikes(self, name: str, request: Request) -> Any:
        for fault in self._sim.faults.on:
            wanted = fault.options.get("endpoint")
            if fault.name == name and wanted in (None, request.path_params["endpoint"]):
                return self._sim.faults.strikes(name)
        return None

    def _is_unanswerable(self, lat: float, lon: float, request: Request) -> bool:
        fault = self._strikes("unanswerable", request)
        return bool(fault) and hash((lat, lon)) % int(fault.options.get("of", 50)) == 0

    def _at(self, lat: float, lon: float) -> CadastreParcel | None:
        self.points[lat, lon] += 1
        return self.cadastre.at(lat, lon)

    def _told(self, found: CadastreParcel | None, lat: float, lon: float) -> Response:
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
    """By number the registry writes areas the Turkish way, and keeps its ı."""
    if found is None:
        return JSONResponse({"Message": "Parsel Bulunamadı"}, status_code=404)
    feature = found.feature()
    told = feature["properties"]
    told["alan"] = told["alan"].translate(str.maketrans(",.", ".,"))
    told |= {"ilAd": "İstanbul", "ilceAd": "Kadıköy", "mahalleAd": "Tuğlacı Başı"}
    told |= {"ozet": f"Tuğlacı Başı-{found.ada}/{found.parsel}"}
    told |= {"gittigiParselListe": "", "gittigiParselSebep": ""}
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
    registry = simulation.inside = Registry(simulation)
    return Starlette(
        routes=[
            Route(f"{API}/parsel/{{lat:degrees}}/{{lon:degrees}}", registry.by_point),
            Route(f"{API}/parsel/{{lat:degrees}}/{{lon:degrees}}/", registry.by_point),
            Route(f"{API}/parsel/{{mahalle:int}}/{{ada}}/{{parsel}}", registry.by_number),
            Route(f"{API}/idariYapi/{{list}}", registry.places),
            Route(f"{API}/idariYapi/{{list}}/{{of:int}}", registry.places),
            Route("/e{endpoint:int}/parsel/{lat:degrees}/{lon:degrees}", registry.parcel),
            Route(
                "/e{endpoint:int}/parsel/{mahalle:int}/{ada}/{parsel}", registry.parcel_by_number
            ),
            Route("/e{endpoint:int}/batch", registry.batch, methods=["POST"]),
        ]
    )


TKGM = Simulator("tkgm", "the parcel registry and its endpoints", _build, FAULTS)
