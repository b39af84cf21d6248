"""The FastAPI app: state, routers, exception handlers and middleware."""

from collections import Counter
from collections.abc import Collection, Sequence
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
from hasat.api.compression import CompressionMiddleware
from hasat.api.health import SingleFlight
from hasat.api.keys import KeyCache
from hasat.api.middleware import (
    BodyLimitMiddleware,
    HeadMiddleware,
    LeanMiddleware,
    RequestMiddleware,
    security_headers,
)
from hasat.api.rate_limits import DatabaseLeases
from hasat.api.routes import (
    audit,
    deliveries,
    holds,
    jobs,
    quota,
    receipts,
    status,
    usage,
    watchlists,
)
from hasat.api.routes.archives import archive_router
from hasat.api.routes.datasets import dataset_router, has_list, path_shape
from hasat.api.routes.feed import feed_router
from hasat.api.routes.feed_requests import FollowerPositions
from hasat.api.routing import DatasetAccess, IndexedApp, RouteDispatch, RouteTable
from hasat.api.usage import UsageCounter
from hasat.errors import SettingsError
from hasat.feed.archive import storage_of
from hasat.feed.changes import ExpiredError
from hasat.feed.lookups import RecordLookups
from hasat.feed.notifier import ChangeNotifier
from hasat.http.routes import check_parameters
from hasat.jobs import Catalogue
from hasat.messages import msg
from hasat.settings import Settings
from hasat.source import Source
from hasat.source.parts import load_part
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
        # Its spans would have the paths of requests; ours have the declared ones.
        telemetry={"tracing": False, "metrics": False, "logs": False},
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
    app.state.lookups = RecordLookups(store)
    app.state.catalogue = catalogue
    app.state.sources = sources
    app.state.invalid_input = exception_handlers.InvalidInputStatus()
    app.state.readiness = health.Readiness(store, sources)
    app.state.health_checks = SingleFlight()
    for module in (health, metrics, problems, openapi):
        app.include_router(module.router)
    app.include_router(receipts.public_router)
    checked = [Depends(check_parameters)]
    platform = (status, jobs, holds, deliveries, watchlists, quota, usage, audit, receipts)
    for router in (module.router for module in platform):
        app.include_router(router, prefix="/api/v1", dependencies=checked)
    app.state.notifier = ChangeNotifier(store)
    app.state.follower_positions = FollowerPositions(store)
    app.state.archive_storage = storage_of(settings)
    app.state.storage = health.StorageProbe(app.state.archive_storage)
    _check_names(app, sources)
    for source in sources:
        files = map(archive_router, source.datasets)
        own = load_part(source, source.routers) or ()
        app.state.invalid_input.declare(source, own)
        for router in (*map(feed_router, source.datasets), *files, *own):
            app.include_router(router, prefix="/api/v1", dependencies=checked)
    # After the routes of all sources, which win where they have the same path.
    taken = {
        route.path.removeprefix("/api/v1")
        for route in app.declared_routes()
        if "GET" in route.methods
    }
    listed = set()
    for dataset in (dataset for source in sources for dataset in source.datasets):
        router = dataset_router(dataset, taken)
        if has_list(dataset, taken):
            listed.add(dataset.name)
        app.include_router(router, prefix="/api/v1", dependencies=checked)
    app.state.listed = frozenset(listed)
    _check_routes(app)
    names = [dataset.name for source in sources for dataset in source.datasets]
    add_middleware(app, settings, store, names)
    return app


_REMEDY = msg("Uninstall one of the packages, or report the problem to its author.")


def _check_names(app: IndexedApp, sources: Sequence[Source]) -> None:
    """Raise SettingsError if a dataset has the name of a path of the platform."""
    paths = (route.path for route in app.declared_routes())
    taken = {path.split("/")[3] for path in paths if path.startswith("/api/v1/")}
    names = {dataset.name for source in sources for dataset in source.datasets}
    if both := sorted(taken & names):
        raise SettingsError(
            msg("A dataset is named {names}, which is a route of Hasat.", names=", ".join(both)),
            remedy=_REMEDY,
        )


def _check_routes(app: IndexedApp) -> None:
    """Raise SettingsError if two routes answer the same requests."""
    routes = Counter(
        (method, path_shape(route.path))
        for route in app.declared_routes()
        for method in route.methods
    )
    if twice := sorted(f"{method} {path}" for (method, path), n in routes.items() if n > 1):
        raise SettingsError(
            msg("More than one source has the route {routes}.", routes=", ".join(twice)),
            remedy=_REMEDY,
        )


def add_middleware(
    app: FastAPI, settings: Settings, store: Store, datasets: Collection[str] = ()
) -> None:
    """Install the middleware, outermost first."""
    app.state.usage = UsageCounter(store, settings.jobs.timezone)
    app.state.metrics = metrics.HttpMetrics()
    app.state.routes = RouteTable(app)
    app.router.middleware_stack = RouteDispatch(app, app.state.routes)
    app.state.keys = KeyCache(store)
    app.user_middleware = [
        Middleware(
            RequestMiddleware,
            app.state.metrics,
            app.state.routes,
            security_headers(settings.serve.base_map),
            app.state.usage,
        ),
        Middleware(HostMiddleware, settings),
        Middleware(
            AuthenticationMiddleware,
            settings,
            app.state.keys,
            SignatureVerifier(settings),
            DatabaseLeases(store),
            app.state.metrics,
            DatasetAccess(app.state.routes, datasets).check,
        ),
        Middleware(BodyLimitMiddleware),
        Middleware(HeadMiddleware),
        Middleware(CompressionMiddleware),
        Middleware(LeanMiddleware, app.state.routes),
    ]


class _App(IndexedApp):
    def openapi(self) -> dict[str, Any]:
        return openapi.openapi_document_of(
            self,
            open_to_all=is_open(self.state.settings),
            invalid_input_status=self.state.invalid_input.of,
        )
