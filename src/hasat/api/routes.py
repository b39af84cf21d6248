"""Which route a path belongs to, for labels that stay few and for the header Allow."""

from collections import deque
from collections.abc import Iterator, Sequence
from difflib import get_close_matches

from fastapi import FastAPI
from fastapi.routing import RouteContext, iter_route_contexts

UNMATCHED = "unmatched"
_BASE_SEGMENTS = 4
"""Of a path: nothing, api, v1 and the dataset."""


def build_routes(app: FastAPI) -> None:
    """Build all routes now; else whoever comes first waits half a second for it."""
    deque(iter_route_contexts(app.routes), maxlen=0)


class RouteTable:
    """The app's routes in the order in which the router tries them."""

    def __init__(self, app: FastAPI) -> None:
        self._app = app
        self._known: tuple[int, tuple[RouteContext, ...]] = (0, ())

    def template(self, path: str, method: str) -> str:
        """The path as it was declared (`/api/v1/runs/{id}`), never as it was called."""
        partly = UNMATCHED
        for route in self._fitting(path):
            if not route.methods or method in route.methods:
                return route.path_format or UNMATCHED
            if partly == UNMATCHED:
                partly = route.path_format or UNMATCHED
        return partly

    def methods(self, path: str) -> Sequence[str]:
        """All methods that this path takes, over all of its routes."""
        found = {method for route in self._fitting(path) for method in route.methods or ()}
        return sorted(found | ({"HEAD"} if "GET" in found else set()))

    def similar(self, path: str) -> str | None:
        """The base path that was likely meant: /api/v1/einvoice for /api/v1/einvoce/1234567890."""
        bases = {_base(route.path_format) for route in self._routes() if route.path_format}
        return next(
            iter(get_close_matches(_base(path), bases - {_base(path)}, n=1, cutoff=0.8)), None
        )

    def _fitting(self, path: str) -> Iterator[RouteContext]:
        return (route for route in self._routes() if route.path_regex.match(path))

    def _routes(self) -> tuple[RouteContext, ...]:
        count, routes = self._known
        if count != len(self._app.routes):
            # Pages are added after the app is made: look again whenever there are more.
            routes = tuple(
                route
                for route in iter_route_contexts(self._app.routes)
                if getattr(route, "path_regex", None) is not None
            )
            self._known = (len(self._app.routes), routes)
        return routes


def _base(path: str) -> str:
    return "/".join(path.split("/")[:_BASE_SEGMENTS])
