"""`hasat tkgm endpoint`: forward queries of key holders to the registry.

GET /parsel/{lat}/{lon}, GET /parsel/{mahalleId}/{adaNo}/{parselNo} and POST /batch; each point is
paid for from this machine's daily budget. 403 means that the day is spent, 429 too many at once.
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
from hasat.sources.tkgm.registry.client import MAX_BATCH_POINTS, DirectClient
from hasat.sources.tkgm.registry.lookup import check_point
from hasat.sources.tkgm.registry.wire import Point, check_storable, parse_message, parse_object
from hasat.sources.tkgm.settings import TkgmSettings

log = structlog.get_logger(__name__)

JOB = "tkgm_endpoint"
_DAY_IS_SPENT = "Günlük sorgu limitini aştınız."
_DEGREES = re.compile(r"-?[0-9]{1,3}(\.[0-9]{1,20})?")
_MAX_BODY_BYTES = 20_000
# Share of the caller's time-out; a later response would be paid for and not used.
_TIMEOUT_SHARE = 0.8


def endpoint_app(direct: DirectClient, settings: Settings, key: str) -> Starlette:
    """Build the application of an endpoint over a direct client of the registry."""
    endpoint = _Endpoint(direct, settings)
    return Starlette(
        routes=[
            Route("/parsel/{lat}/{lon}", endpoint.by_point),
            Route("/parsel/{mahalle}/{ada}/{parsel}", endpoint.by_number),
            Route("/batch", endpoint.batch, methods=["POST"]),
        ],
        middleware=[Middleware(_KeyCheck, key)],
        exception_handlers={HasatError: _refusal},
    )


class _KeyCheck:
    """Reject requests without the key, comparing in constant time."""

    def __init__(self, app: ASGIApp, key: str) -> None:
        self._app = app
        self._digest = hashlib.sha256(key.encode()).digest()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            shown = next((v for name, v in scope["headers"] if name == b"x-api-key"), b"")
            if not hmac.compare_digest(hashlib.sha256(shown).digest(), self._digest):
                response = JSONResponse({"error": "X-API-Key is missing or wrong."}, 401)
                await response(scope, receive, send)
                return
        await self._app(scope, receive, send)


class _Endpoint:
    def __init__(self, direct: DirectClient, settings: Settings) -> None:
        self._direct = direct
        tkgm = settings.section(TkgmSettings)
        self._single = tkgm.single_timeout.total_seconds() * _TIMEOUT_SHARE
        self._batch = tkgm.batch_timeout.total_seconds() * _TIMEOUT_SHARE

    async def by_point(self, request: Request) -> Response:
        lat, lon = (_degrees(request.path_params[name]) for name in ("lat", "lon"))
        return _response(await self._fetch(_path(check_point(lat, lon)), self._single))

    async def by_number(self, request: Request) -> Response:
        parts = (request.path_params[name] for name in ("mahalle", "ada", "parsel"))
        path = "/".join(quote(part, safe="") for part in parts)
        return _response(await self._fetch(f"/parsel/{path}", self._single))

    async def batch(self, request: Request) -> Response:
        """Query point after point; those without a response are errors, unless all are."""
        points = await _coordinates(request)
        results: list[dict[str, Any]] = []
        failure: HasatError | None = None
        ends_at = asyncio.get_running_loop().time() + self._batch
        for point in points:
            patience = ends_at - asyncio.get_running_loop().time()
            result = None
            if failure is None and patience > 0 and not await request.is_disconnected():
                try:
                    result = _result(await self._fetch(_path(point), patience))
                except (OutOfQuotaError, UnavailableError) as error:
                    failure = error
                except HasatError as error:
                    log.warning("endpoint.point_failed", reason=str(error))
            results.append(result or {"status": "error", "coord": vars(point)})
        counts = Counter(one["status"] for one in results)
        if failure is not None and counts["error"] == len(results):
            raise failure
        stats = {name: counts[name] for name in ("found", "empty", "error")}
        return JSONResponse({"results": results, "stats": {**stats, "total": len(results)}})

    async def _fetch(self, path: str, patience: float) -> FetchResult:
        try:
            async with asyncio.timeout(patience):
                # The caller has other endpoints, so a pause of the registry is passed on.
                return await self._direct.get(path, JOB, patience=patience, pass_limits=True)
        except TimeoutError:
            raise UnavailableError(
                msg("The registry did not respond to {path} in time.", path=path)
            ) from None


async def _coordinates(request: Request) -> list[Point]:
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > _MAX_BODY_BYTES:
            raise UsageError(msg("The body is too large for 20 coordinates."))
    try:
        given = json.loads(body)["coordinates"]
        points = [check_point(_degrees(one["lat"]), _degrees(one["lon"])) for one in given]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise UsageError(
            msg('The body must be {{"coordinates": [{{"lat": ..., "lon": ...}}]}}.')
        ) from None
    if not 1 <= len(points) <= MAX_BATCH_POINTS:
        raise UsageError(
            msg(
                "A batch has 1 to {limit} coordinates, not {count}.",
                limit=MAX_BATCH_POINTS,
                count=len(points),
            )
        )
    return points


def _degrees(value: Any) -> float:
    if isinstance(value, bool) or (isinstance(value, str) and not _DEGREES.fullmatch(value)):
        raise UsageError(msg("{value!r} is not a number of degrees.", value=value))
    return float(value)


def _path(point: Point) -> str:
    # Never 1e-05; a nanodegree is a tenth of a millimetre.
    return f"/parsel/{point.lat:.9f}/{point.lon:.9f}"


def _response(fetched: FetchResult) -> Response:
    """Return the parcel as the registry sent it, or a 404 with its message."""
    if fetched.verdict.outcome is Outcome.OK:
        return Response(fetched.body, media_type="application/json")
    message = parse_message(fetched.body) or "Parsel Bulunamadı"
    return JSONResponse({"Message": message}, status_code=404)


def _result(fetched: FetchResult) -> dict[str, Any]:
    if fetched.verdict.outcome is Outcome.OK:
        return {"status": "found", "data": check_storable(parse_object(fetched.body))}
    return {"status": "empty", "data": None}


async def _refusal(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HasatError)
    if not isinstance(error, OutOfQuotaError):
        if error.status >= 500:
            log.warning("endpoint.query_failed", reason=str(error))
        return JSONResponse({"error": str(error)}, status_code=error.status)
    now = system_clock()
    next_day = (now.astimezone(ISTANBUL) + timedelta(days=1)).replace(
        hour=0, minute=0, second=0, microsecond=0
    )
    # Without a time, the registry itself has reported its daily limit.
    until = error.until or next_day
    wait = {"Retry-After": str(max(1, math.ceil((until - now).total_seconds())))}
    if until >= next_day:
        return JSONResponse({"Message": _DAY_IS_SPENT, "error": str(error)}, 403, wait)
    return JSONResponse({"error": str(error)}, 429, wait)
