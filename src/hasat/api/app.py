"""The FastAPI app: state, routers, exception handlers and middleware."""

from collections.abc import Sequence
from typing import Any

from fastapi import Depends, FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware

from hasat import __version__
from hasat.api import exception_handlers, health, metrics, openapi, problems
from hasat.api.authentication import (
    AuthenticationMiddleware,
    HostMiddleware,
    SignatureVerifier,
    is_open,
)
from hasat.api.health import SingleFlight
from hasat.api.keys import KeyCache
from hasat.api.middleware import (
    BodyLimitMiddleware,
    HeadMiddleware,
    RequestMiddleware,
    RouteTable,
    security_headers,
)
from hasat.api.rate_limits import DatabaseLeases
from hasat.api.routes import audit, deliveries, jobs, quota, status
from hasat.api.routes.archives import archive_router
from hasat.api.routes.feed import feed_router
from hasat.api.routes.feed_requests import FollowerPositions
from hasat.feed.archive import storage_of
from hasat.feed.changes import ExpiredError
from hasat.feed.notifier import ChangeNotifier
from hasat.http.routes import check_parameters
from hasat.jobs import Catalogue
from hasat.settings import Settings
from hasat.sources.registry import Source
from hasat.store import Store

_DESCRIPTION = (
    "Mirrors of public sources, and every change to them. Errors are RFC 9457 problems with a "
    "code, an explanation and a remedy."
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
            ExpiredError: exception_handlers.on_expired_cursor,
            HTTPException: exception_handlers.on_http_exception,
            RequestValidationError: exception_handlers.on_invalid_request,
        },
    )
    app.state.settings = settings
    app.state.store = store
    app.state.catalogue = catalogue
    app.state.sources = sources
    app.state.readiness = health.Readiness(store, sources)
    app.state.health_checks = SingleFlight()
    for module in (health, metrics, problems, openapi):
        app.include_router(module.router)
    checked = [Depends(check_parameters)]
    for router in (m.router for m in (status, jobs, deliveries, quota, audit)):
        app.include_router(router, prefix="/api/v1", dependencies=checked)
    app.state.notifier = ChangeNotifier(store)
    app.state.follower_positions = FollowerPositions(store)
    app.state.archive_storage = storage_of(settings)
    app.state.storage = health.StorageProbe(app.state.archive_storage)
    for source in sources:
        files = map(archive_router, source.datasets)
        for router in (*map(feed_router, source.datasets), *files, *source.routers()):
            app.include_router(router, prefix="/api/v1", dependencies=checked)
    add_middleware(app, settings, store)
    return app


def add_middleware(app: FastAPI, settings: Settings, store: Store) -> None:
    """Install the middleware, outermost first."""
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
            app.state.metrics.record_rate_limited,
        ),
        Middleware(BodyLimitMiddleware),
        Middleware(HeadMiddleware),
    ]


class _App(FastAPI):
    def openapi(self) -> dict[str, Any]:
        return openapi.openapi_document_of(self, open_to_all=is_open(self.state.settings))
