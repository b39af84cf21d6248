"""A proxy in front of a registry that behaves like the published worker of the original."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from hasat.sources.tkgm.simulator.cadastre import Cadastre
from support.faulty_server import FaultyServer, ReceivedRequest, Reply, faulty_server

KEY = "your-secret-api-key"


@dataclass
class PublishedWorker:
    """Pass on the status of the registry, also where it means "no parcel here".

    `registry` counts how often each point was asked there. While `limited`, the registry has
    returned 403 for the day, which a batch shows as an error of each point.
    """

    cadastre: Cadastre
    registry: Counter[tuple[float, float]] = field(default_factory=Counter)
    limited: bool = False

    async def __call__(self, request: ReceivedRequest, reply: Reply) -> None:
        if request.headers.get("x-api-key") != KEY:
            await reply.json(401, {"error": "Unauthorized - Invalid API Key"})
        elif request.path == "/batch":
            points = json.loads(request.body)["coordinates"][:20]
            results = [self._result(one["lat"], one["lon"]) for one in points]
            counts = Counter(one["status"] for one in results)
            stats = {name: counts[name] for name in ("found", "empty", "error")}
            await reply.json(200, {"results": results, "stats": {**stats, "total": len(results)}})
        else:
            _, _, lat, lon = request.path.split("/")
            await reply.json(*self._ask(float(lat), float(lon)))

    def _ask(self, lat: float, lon: float) -> tuple[int, Any]:
        self.registry[lat, lon] += 1
        if self.limited:
            return 403, {"Message": "Günlük sorgu limitini aştınız."}
        found = self.cadastre.at(lat, lon)
        if found is None:
            return 404, {"error": "Not found"}
        return 200, found.feature()

    def _result(self, lat: float, lon: float) -> dict[str, Any]:
        status, content = self._ask(lat, lon)
        coord = {"lat": lat, "lon": lon}
        if status == 200:
            return {"status": "found", "data": content, "coord": coord}
        return {"status": "error", "error": status, "data": None, "coord": coord}


async def hang(_request: ReceivedRequest, _reply: Reply) -> None:
    """Never respond."""
    await asyncio.Event().wait()


@asynccontextmanager
async def workers(handlers: Sequence[Any]) -> AsyncIterator[list[FaultyServer]]:
    """Serve a worker for each handler."""
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(faulty_server(one)) for one in handlers]
