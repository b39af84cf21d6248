"""The app: every room's routes behind the same door."""

from collections.abc import Sequence
from typing import Any

from fastapi import Depends, FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware

from hasat import __version__
from hasat.api import audit, deliver, describe, health, jobs, metrics, problems, quota, status
from hasat.api.archives import archive_router
from hasat.api.expired import on_expired_cursor
from hasat.api.feed import feed_router
from hasat.api.flight import SingleFlight
from hasat.api.gate import AuthenticationMiddleware, HostMiddleware, is_open
from hasat.api.keys import KeyCache
from hasat.api.limits import DatabaseLeases
from hasat.api.observe import RequestMiddleware, security_headers
from hasat.api.places import FollowerPositions
from hasat.api.routes import RouteTable
from hasat.api.shape import BodyLimitMiddleware, HeadMiddleware
from hasat.api.signatures import SignatureVerifier
from hasat.feed.archive import storage_of
from hasat.feed.changes import ExpiredError
from hasat.feed.notifier import ChangeNotifier
from hasat.http.routes import check_parameters
from hasat.jobs import Catalogue
from hasat.settings import Settings
from hasat.sources.registry import Source
from hasat.store import Store

_DESCRIPTION = (
    "Mirrors of public sources, and every change to them. What goes wrong is answered as an "
    "RFC 9457 problem with a code, an explanation and what to do next."
)


def create_app(
    settings: Settings, store: Store, catalogue: Catalogue, sources: Sequence[Source]
) -> FastAPI:
    """Return the app over an open store; call `check_authentication_configured` before binding."""
    app = _App(
        title="Hasat",
        version=__version__,
        summary="Public sources, harvested within their limits",
        description=_DESCRIPTION,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        # A redirect would change the path that a signature covers.
        redirect_slashes=False,
        exception_handlers={
            ExpiredError: on_expired_cursor,
            HTTPException: problems.on_http_exception,
            RequestValidationError: problems.on_invalid_request,
        },
    )
    app.state.settings = settings
    app.state.store = store
    app.state.catalogue = catalogue
    app.state.sources = sources
    app.state.readiness = health.Readiness(store, sources)
    app.state.health_checks = SingleFlight()
    for own in (health, metrics, problems, describe):
        app.include_router(own.router)
    checked = [Depends(check_parameters)]
    for of_the_house in (status, jobs, deliver, quota, audit):
        app.include_router(of_the_house.router, prefix="/api/v1", dependencies=checked)
    app.state.notifier = ChangeNotifier(store)
    app.state.places = FollowerPositions(store)
    app.state.archive_storage = storage_of(settings)
    app.state.storage = health.StorageProbe(app.state.archive_storage)
    for source in sources:
        files = map(archive_router, source.datasets)
        for router in (*map(feed_router, source.datasets), *files, *source.routers()):
            app.include_router(router, prefix="/api/v1", dependencies=checked)
    add_middleware(app, settings, store)
    return app


def add_middleware(app: FastAPI, settings: Settings, store: Store) -> None:
    """Let nobody in who may not be, and nothing out that is not a proper answer."""
    app.state.metrics = metrics.HttpMetrics()
    app.state.routes = RouteTable(app)
    app.state.keys = KeyCache(store)
    app.user_middleware = [
        Middleware(
            RequestMiddleware,
            app.state.metrics,
            app.state.routes,
            security_headers(settings.serve.base_map),
        ),
        Middleware(HostMiddleware, settings),
        Middleware(
            AuthenticationMiddleware,
            settings,
            app.state.keys,
            SignatureVerifier(settings),
            DatabaseLeases(store),
            app.state.metrics.note_rate_limited,
        ),
        Middleware(BodyLimitMiddleware),
        Middleware(HeadMiddleware),
    ]


class _App(FastAPI):
    def openapi(self) -> dict[str, Any]:
        return describe.openapi_of(self, open_to_all=is_open(self.state.settings))
