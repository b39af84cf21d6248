"""An endpoint: answers questions about parcels for whoever has the key, by asking the registry.

GET /parsel/{lat}/{lon}, GET /parsel/{mahalleId}/{adaNo}/{parselNo} and POST /batch, each point paid
for from this machine's own day. 403 means that the day is spent, 429 that it is too much at once.
"""

import asyncio
import hashlib
import hmac
import json
import math
import re
from collections import Counter
from datetime import timedelta
from typing import Any
from urllib.parse import quote

import structlog
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from hasat.clock import ISTANBUL, system_clock
from hasat.errors import HasatError, OutOfQuotaError, UnavailableError, UsageError
from hasat.fetch import FetchResult, Outcome
from hasat.messages import msg
from hasat.settings import Settings
from hasat.sources.tkgm.registry.client import MOST_AT_ONCE, Direct
from hasat.sources.tkgm.registry.lookup import point_at
from hasat.sources.tkgm.registry.outcomes import message_of
from hasat.sources.tkgm.registry.wire import Point, parse_object, read_storable

log = structlog.get_logger(__name__)

JOB = "tkgm_endpoint"
_DAY_IS_SPENT = "Günlük sorgu limitini aştınız."
_DEGREES = re.compile(r"-?[0-9]{1,3}(\.[0-9]{1,20})?")
_LARGEST_BODY = 20_000
# The asker waits so long and no longer; what is answered after that was paid for in vain.
_SHARE_OF_PATIENCE = 0.8


def endpoint_app(direct: Direct, settings: Settings, key: str) -> Starlette:
    """The endpoint over a registry that may be asked."""
    endpoint = _Endpoint(direct, settings)
    return Starlette(
        routes=[
            Route("/parsel/{lat}/{lon}", endpoint.by_point),
            Route("/parsel/{mahalle}/{ada}/{parsel}", endpoint.by_number),
            Route("/batch", endpoint.batch, methods=["POST"]),
        ],
        middleware=[Middleware(_KeyHolders, key)],
        exception_handlers={HasatError: _refusal},
    )


class _KeyHolders:
    """Lets only those pass who have the key; how near a guess was cannot be measured."""

    def __init__(self, app: ASGIApp, key: str) -> None:
        self._app = app
        self._digest = hashlib.sha256(key.encode()).digest()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            shown = next((v for name, v in scope["headers"] if name == b"x-api-key"), b"")
            if not hmac.compare_digest(hashlib.sha256(shown).digest(), self._digest):
                answer = JSONResponse({"error": "X-API-Key is missing or wrong."}, 401)
                await answer(scope, receive, send)
                return
        await self._app(scope, receive, send)


class _Endpoint:
    def __init__(self, direct: Direct, settings: Settings) -> None:
        self._direct = direct
        tkgm = settings.tkgm
        self._single = tkgm.single_timeout.total_seconds() * _SHARE_OF_PATIENCE
        self._batch = tkgm.batch_timeout.total_seconds() * _SHARE_OF_PATIENCE

    async def by_point(self, request: Request) -> Response:
        lat, lon = (_degrees(request.path_params[name]) for name in ("lat", "lon"))
        return _told(await self._ask(_path(point_at(lat, lon)), self._single))

    async def by_number(self, request: Request) -> Response:
        parts = (request.path_params[name] for name in ("mahalle", "ada", "parsel"))
        path = "/".join(quote(part, safe="") for part in parts)
        return _told(await self._ask(f"/parsel/{path}", self._single))

    async def batch(self, request: Request) -> Response:
        """Point after point. Those that cannot be had any more are errors, as long as one can."""
        points = await _coordinates(request)
        results: list[dict[str, Any]] = []
        trouble: HasatError | None = None
        ends_at = asyncio.get_running_loop().time() + self._batch
        for point in points:
            patience = ends_at - asyncio.get_running_loop().time()
            result = None
            if trouble is None and patience > 0 and not await request.is_disconnected():
                try:
                    result = _result(await self._ask(_path(point), patience))
                except (OutOfQuotaError, UnavailableError) as error:
                    trouble = error
                except HasatError as error:
                    log.warning("a point was not answered", reason=str(error))
            results.append(result or {"status": "error", "coord": vars(point)})
        counts = Counter(one["status"] for one in results)
        if trouble is not None and counts["error"] == len(results):
            raise trouble
        stats = {name: counts[name] for name in ("found", "empty", "error")}
        return JSONResponse({"results": results, "stats": {**stats, "total": len(results)}})

    async def _ask(self, path: str, patience: float) -> FetchResult:
        try:
            async with asyncio.timeout(patience):
                return await self._direct.ask(path, JOB, patience=patience)
        except TimeoutError:
            raise UnavailableError(
                msg("The registry did not answer {path} in time.", path=path)
            ) from None


async def _coordinates(request: Request) -> list[Point]:
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > _LARGEST_BODY:
            raise UsageError(msg("The body is too large for 20 coordinates."))
    try:
        given = json.loads(body)["coordinates"]
        points = [point_at(_degrees(one["lat"]), _degrees(one["lon"])) for one in given]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise UsageError(
            msg('The body must be {{"coordinates": [{{"lat": ..., "lon": ...}}]}}.')
        ) from None
    if not 1 <= len(points) <= MOST_AT_ONCE:
        raise UsageError(
            msg(
                "A batch has 1 to {most_at_once} coordinates, not {count}.",
                most_at_once=MOST_AT_ONCE,
                count=len(points),
            )
        )
    return points


def _degrees(told: Any) -> float:
    if isinstance(told, bool) or (isinstance(told, str) and not _DEGREES.fullmatch(told)):
        raise UsageError(msg("{told!r} is not a number of degrees.", told=told))
    return float(told)


def _path(point: Point) -> str:
    # Never in the form 1e-05; a nanodegree is a tenth of a millimetre.
    return f"/parsel/{point.lat:.9f}/{point.lon:.9f}"


def _told(fetched: FetchResult) -> Response:
    """The parcel as the registry wrote it; or that there is none, with its own words if it had."""
    if fetched.verdict.outcome is Outcome.OK:
        return Response(fetched.body, media_type="application/json")
    message = message_of(fetched.body) or "Parsel Bulunamadı"
    return JSONResponse({"Message": message}, status_code=404)


def _result(fetched: FetchResult) -> dict[str, Any]:
    if fetched.verdict.outcome is Outcome.OK:
        return {"status": "found", "data": read_storable(parse_object(fetched.body))}
    return {"status": "empty", "data": None}


async def _refusal(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HasatError)
    if not isinstance(error, OutOfQuotaError):
        if error.status >= 500:
            log.warning("a question was not answered", reason=str(error))
        return JSONResponse({"error": str(error)}, status_code=error.status)
    now = system_clock()
    next_day = (now.astimezone(ISTANBUL) + timedelta(days=1)).replace(
        hour=0, minute=0, second=0, microsecond=0
    )
    # Without a time it is the registry's own word that the day is over.
    until = error.until or next_day
    wait = {"Retry-After": str(max(1, math.ceil((until - now).total_seconds())))}
    if until >= next_day:
        return JSONResponse({"Message": _DAY_IS_SPENT, "error": str(error)}, 403, wait)
    return JSONResponse({"error": str(error)}, 429, wait)
