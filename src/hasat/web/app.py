"""Pages in the HTTP app: their routes, and problems shown as pages."""

import json
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any
from urllib.parse import quote
from zoneinfo import ZoneInfo

from fastapi import FastAPI, Request
from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware import Middleware
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hasat.http.routes import LANGUAGE, PROBLEM_JSON, audited, body_limit, exchange_of, reads
from hasat.jobs import Catalogue
from hasat.pages import Action, Page, PageContext, PageRequest
from hasat.settings import Settings
from hasat.source import Source
from hasat.store import Store
from hasat.store.audit import describe_action
from hasat.web.forms import read_form
from hasat.web.labels import LABELS
from hasat.web.live import LivePages
from hasat.web.localization import request_language
from hasat.web.login import LOGIN_PATH, add_login
from hasat.web.rendering import Renderer, StaticFiles, json_response
from hasat.web.site import build_site

Endpoint = Callable[[Request], Awaitable[Response]]


def add_pages(
    app: FastAPI,
    settings: Settings,
    store: Store,
    catalogue: Catalogue,
    sources: Sequence[Source],
) -> None:
    """Add the pages, their JSON, forms, live updates and static files to the app."""
    zone = ZoneInfo(settings.jobs.timezone)
    context = PageContext(store, settings, catalogue, sources, zone, app.state.listed)
    site = build_site(sources, settings)
    static_files = StaticFiles(site.static)
    renderer = Renderer(context, site, static_files)
    live = app.state.live = LivePages(renderer, site.pages, app.state.notifier)
    for page in site.pages:
        # JSON first: its path matches the page's pattern too.
        app.get(page.json_path, include_in_schema=False)(
            _with_datasets(_json_endpoint(context, page), page)
        )
        app.get(page.path, include_in_schema=False)(_page_endpoint(renderer, page))
    for action in site.actions:
        dependencies = [audited(action.audit, action.access)]
        endpoint = body_limit(action.max_bytes)(_form_endpoint(context, action))
        if action.access == "read":
            endpoint = reads()(endpoint)
        app.post(action.path, include_in_schema=False, dependencies=dependencies)(endpoint)
    app.get("/live", include_in_schema=False)(_live_endpoint(live))
    add_login(app, renderer)
    for path in ("/static/{name:path}", "/favicon.svg", "/favicon.ico"):
        app.get(path, include_in_schema=False)(static_files.respond)
    app.user_middleware.insert(0, Middleware(ProblemPages, renderer))


def _page_endpoint(renderer: Renderer, page: Page) -> Endpoint:
    async def respond(request: Request) -> Response:
        caller = exchange_of(request.scope).caller
        if page.path == "/" and caller is not None and caller.datasets is not None:
            # The overview shows all datasets; a restricted key begins with its own lists.
            return RedirectResponse("/watchlists", 303)
        return await renderer.respond(request, page)

    return reads()(respond) if page.path == "/" else _with_datasets(respond, page)


def _with_datasets(endpoint: Endpoint, page: Page) -> Endpoint:
    """Declare what a page reads, for keys that are restricted to some datasets."""
    return endpoint if page.datasets is None else reads(*page.datasets)(endpoint)


def _live_endpoint(live: LivePages) -> Endpoint:
    @reads()
    async def respond(request: Request) -> Response:
        return await live.respond(request)

    return respond


def _json_endpoint(context: PageContext, page: Page) -> Endpoint:
    async def respond(request: Request) -> Response:
        data = await page.load(PageRequest.from_http(context, request))
        return json_response(data, page.status(data))

    return respond


def _form_endpoint(context: PageContext, action: Action) -> Endpoint:
    async def respond(request: Request) -> Response:
        page_request = await read_form(context, request)
        describe_action(reason=page_request.text("reason"))
        return RedirectResponse(await action.execute(page_request), 303)

    return respond


class ProblemPages:
    """Middleware that shows problems to browsers as pages, and a 401 as the login page.

    It is the outermost middleware, so that it sees every problem in its final form.
    """

    def __init__(self, app: ASGIApp, renderer: Renderer) -> None:
        self._app = app
        self._renderer = renderer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not _is_browser_request(scope):
            await self._app(scope, receive, send)
            return
        start: Message | None = None
        body = b""

        async def send_page(message: Message) -> None:
            nonlocal start, body
            if message["type"] == "http.response.start" and _is_problem(message):
                start = message
            elif start is None:
                await send(message)
            else:
                body += message.get("body", b"")
                if not message.get("more_body", False):
                    response = self._page(Request(scope), json.loads(body))
                    await _send_instead(response, start, send)

        scope_with_language = {**scope, LANGUAGE: request_language(Request(scope))}
        await self._app(scope_with_language, receive, send_page)

    def _page(self, request: Request, problem: dict[str, Any]) -> Response:
        if problem["status"] == 401 and request.method == "GET":
            target = request.url.path + (f"?{request.url.query}" if request.url.query else "")
            location = f"{LOGIN_PATH}?to={quote(target)}"
            return Response(status_code=303, headers={"Location": location})
        status = str(problem["status"])
        return self._renderer.html(
            request,
            "problem",
            PageRequest(self._renderer.context, {}),
            status=problem["status"],
            problem=problem,
            kind=status if status in LABELS["problem"] else "other",
        )


def _is_browser_request(scope: Scope) -> bool:
    # Not HEAD: the response to it has no body to read the problem from.
    if scope["method"] not in {"GET", "POST"} or scope["path"].startswith("/api/"):
        return False
    return "text/html" in Headers(scope=scope).get("accept", "")


def _is_problem(message: MutableMapping[str, Any]) -> bool:
    return Headers(raw=message["headers"]).get("content-type", "").startswith(PROBLEM_JSON)


async def _send_instead(response: Response, start: Message, send: Send) -> None:
    """Send a page with the headers that every response has."""
    headers = MutableHeaders(raw=list(start["headers"]))
    for name, value in response.headers.items():
        headers[name] = value
    del headers["www-authenticate"]
    status = response.status_code
    await send({"type": "http.response.start", "status": status, "headers": headers.raw})
    await send({"type": "http.response.body", "body": response.body})
