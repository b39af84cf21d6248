"""The routes of the app: found by the start of a path, and the datasets that each reads.

The app has hundreds of routes, and the framework compares a path with one after the other, which
took most of the time of a request. Routes are indexed by their first segments instead. It also
builds every route when its included router is first searched, which took most of the time of a
start. What routes declare is known before, so a router is built by the first request for it.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property
from typing import Any

from fastapi import APIRouter, FastAPI
from fastapi.routing import RouteContext, iter_route_contexts
from starlette.routing import BaseRoute, Match
from starlette.types import Receive, Scope, Send

from hasat.http.routes import (
    Caller,
    DatasetNotAllowedError,
    LeanPath,
    check_dataset_access,
    datasets_read_by,
    lean_path_of,
)
from hasat.messages import msg

UNMATCHED = "unmatched"
_PREFIX = "/api/v1/"
_BASE_SEGMENTS = 4
"""Segments of `/api/v1/DATASET`, the empty one before the first slash included."""


@dataclass(frozen=True)
class DeclaredRoute:
    """What a route declares; `path` is empty where it matches in a way of its own."""

    path: str
    methods: frozenset[str]
    endpoint: object


class IndexedApp(FastAPI):
    """An app that knows what its routes declare before the framework builds them."""

    def __init__(self, **options: Any) -> None:
        self._included: dict[int, tuple[APIRouter, str]] = {}
        super().__init__(**options)

    def include_router(self, router: APIRouter, *, prefix: str = "", **options: Any) -> None:
        """Include a router that has all its routes."""
        super().include_router(router, prefix=prefix, **options)
        self._included[id(self.routes[-1])] = router, prefix

    def routes_of(self, entry: BaseRoute) -> Iterator[DeclaredRoute]:
        """Return the routes of an entry of `routes`, which is a router or a route."""
        router, prefix = self._included.get(id(entry), (None, ""))
        return _declared(router.routes if router else [entry], prefix)

    def declared_routes(self) -> Iterator[DeclaredRoute]:
        """Return all routes in matching order."""
        return (route for entry in self.routes for route in self.routes_of(entry))


def _declared(routes: Sequence[BaseRoute], prefix: str = "") -> Iterator[DeclaredRoute]:
    for route in iter_route_contexts(routes):
        path = route.path_format and f"{prefix}{route.path_format}"
        yield DeclaredRoute(path or "", frozenset(route.methods or ()), route.endpoint)


@dataclass(frozen=True)
class _Group:
    """The routes that can match the paths with one base, and others of the same routers."""

    entries: tuple[BaseRoute, ...]
    """What the app's router has of them, in matching order: routes, and routers with several."""

    @cached_property
    def contexts(self) -> tuple[RouteContext, ...]:
        """The built routes in matching order."""
        found = iter_route_contexts(self.entries)
        return tuple(one for one in found if getattr(one, "path_regex", None) is not None)


class RouteTable:
    """The routes of the app in matching order, for dispatch, metric labels and suggestions."""

    def __init__(self, app: FastAPI) -> None:
        self._app = app
        self._count = 0
        self._by_base: Mapping[str, _Group] = {}
        self._rest = _Group(())
        """The routes that can match any base."""
        self._lean: Mapping[str, tuple[str, LeanPath]] = {}

    def template(self, path: str, method: str) -> str:
        """Return the declared path of a request, such as `/api/v1/runs/{id}`."""
        other_method = UNMATCHED
        for route in self._matching(path):
            if not route.methods or method in route.methods:
                return route.path_format or UNMATCHED
            if other_method == UNMATCHED:
                other_method = route.path_format or UNMATCHED
        return other_method

    def endpoint(self, path: str, method: str) -> object:
        """Return the function that responds to a request; None if there is no such route."""
        wanted = "GET" if method == "HEAD" else method
        routes = self._matching(path)
        return next((one.endpoint for one in routes if wanted in (one.methods or {wanted})), None)

    @property
    def lean_paths(self) -> Mapping[str, tuple[str, LeanPath]]:
        """The declared paths that end in a key, with their lean paths, by what precedes the key."""
        self.refresh()
        return self._lean

    def methods(self, path: str) -> Sequence[str]:
        """Return all methods that a path supports."""
        found = {method for route in self._matching(path) for method in route.methods or ()}
        return sorted(found | ({"HEAD"} if "GET" in found else set()))

    def similar(self, path: str) -> str | None:
        """Return the most similar base path: /api/v1/einvoice for /api/v1/einvoce/1234567890."""
        self.refresh()
        bases = self._by_base.keys() - {_base(path)}
        return next(iter(get_close_matches(_base(path), bases, n=1, cutoff=0.8)), None)

    def entries(self, path: str) -> Sequence[BaseRoute]:
        """Return the entries of the app's router that can match a path, in matching order."""
        self.refresh()
        return self._by_base.get(_base(path), self._rest).entries

    def _matching(self, path: str) -> Iterator[RouteContext]:
        self.refresh()
        routes = self._by_base.get(_base(path), self._rest).contexts
        return (route for route in routes if route.path_regex.match(path))

    def refresh(self) -> None:
        """Build the index, unless it has all routes; pages are added after the app is created."""
        if self._count == len(self._app.routes):
            return
        # The numbers of the entries, which are in matching order.
        found: dict[str | None, set[int]] = defaultdict(set)
        lean_paths = {}
        for number, entry in enumerate(self._app.routes):
            for route in self._routes_of(entry):
                found[_base_of(route.path)].add(number)
                if route.path and (lean := lean_path_of(route.endpoint)):
                    lean_paths[route.path.rpartition("/")[0]] = route.path, lean
        anywhere = found.pop(None, set())
        self._by_base = {
            base: self._group(numbers | anywhere)
            for base, numbers in found.items()
            if base is not None
        }
        self._rest = self._group(anywhere)
        self._lean = lean_paths
        self._count = len(self._app.routes)

    def _routes_of(self, entry: BaseRoute) -> Iterator[DeclaredRoute]:
        if isinstance(self._app, IndexedApp):
            return self._app.routes_of(entry)
        return _declared([entry])

    def _group(self, numbers: Collection[int]) -> _Group:
        return _Group(tuple(self._app.routes[number] for number in sorted(numbers)))


def _base(path: str) -> str:
    return "/".join(path.split("/")[:_BASE_SEGMENTS])


def _base_of(declared: str) -> str | None:
    """Return the base of all paths that a route can match; None if they have different ones."""
    base = _base(declared or "{path}")
    return None if "{" in base else base


class RouteDispatch:
    """Passes a request to the first route that matches, and tries only those that can.

    What none of them matches goes to the app's router, which tries all.
    """

    def __init__(self, app: FastAPI, routes: RouteTable) -> None:
        self._router = app.router
        self._routes = routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not scope.get("root_path"):
            scope.setdefault("router", self._router)
            for entry in self._routes.entries(scope["path"]):
                match, matched = entry.matches(scope)
                if match is Match.FULL:
                    scope.update(matched)
                    await entry.handle(scope, receive, send)
                    return
        await self._router.app(scope, receive, send)


class DatasetAccess:
    """Checks requests of keys that are restricted to some datasets.

    A path below `/api/v1/DATASET` reads that dataset. Any other route is closed to such a key,
    unless its author marks it with `reads(...)`: with the datasets that it reads, or with none if
    it checks the dataset itself.
    """

    def __init__(self, routes: RouteTable, datasets: Collection[str]) -> None:
        self._routes = routes
        self._datasets = frozenset(datasets)

    def check(self, caller: Caller, path: str, method: str) -> None:
        """Reject a request that reads what the caller's key may not read."""
        if caller.datasets is None:
            return
        declared = datasets_read_by(self._routes.endpoint(path, method))
        if declared is None:
            first = path.removeprefix(_PREFIX).partition("/")[0]
            if path.startswith(_PREFIX) and first in self._datasets:
                declared = frozenset({first})
            else:
                raise DatasetNotAllowedError(
                    msg(
                        "The key of {caller!r} is restricted to datasets; {path} is not part of "
                        "them.",
                        caller=caller.name,
                        path=path[:100],
                    ),
                    remedy=msg(
                        "Its datasets: {datasets}. The operator changes them with "
                        "`hasat keys datasets`.",
                        datasets=", ".join(sorted(caller.datasets)),
                    ),
                )
        for dataset in sorted(declared):
            check_dataset_access(caller, dataset)
