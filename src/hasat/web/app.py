"""Putting the pages into the app that serves the API."""

from collections.abc import Awaitable, Callable, Sequence
from zoneinfo import ZoneInfo

from fastapi import FastAPI, Request
from starlette.middleware import Middleware
from starlette.responses import RedirectResponse, Response

from hasat.http.routes import audited
from hasat.jobs import Catalogue
from hasat.settings import Settings
from hasat.sources.registry import Source
from hasat.store import Store
from hasat.store.audit import describe_action
from hasat.web import login
from hasat.web.forms import asked_by_form
from hasat.web.frame import Frame, twin
from hasat.web.live import Live
from hasat.web.page import Action, House, Page
from hasat.web.pages import ACTIONS, PAGES
from hasat.web.readable import Readable
from hasat.web.statics import Statics

Endpoint = Callable[[Request], Awaitable[Response]]


def add_pages(
    app: FastAPI,
    settings: Settings,
    store: Store,
    catalogue: Catalogue,
    sources: Sequence[Source],
) -> None:
    """Put the pages, their JSON twins, forms and live streams into the app."""
    house = House(store, settings, catalogue, sources, ZoneInfo(settings.jobs.timezone))
    statics = Statics()
    frame = Frame(house, PAGES, statics)
    live = app.state.live = Live(frame, PAGES, app.state.notifier)
    for page in PAGES:
        # First the twin: its path would fit the page's pattern too.
        app.get(page.twin, include_in_schema=False)(_twin_of(frame, page))
        app.get(page.path, include_in_schema=False)(_page_of(frame, page))
    for action in ACTIONS:
        guard = [audited(action.audit)]
        app.post(action.path, include_in_schema=False, dependencies=guard)(_form_of(frame, action))
    app.get("/live", include_in_schema=False)(live.answer)
    login.add_to(app, frame)
    for path in ("/static/{name:path}", "/favicon.svg", "/favicon.ico"):
        app.get(path, include_in_schema=False)(statics.answer)
    app.user_middleware.insert(0, Middleware(Readable, frame))


def _page_of(frame: Frame, page: Page) -> Endpoint:
    async def answer(request: Request) -> Response:
        return await frame.answer(request, page)

    return answer


def _twin_of(frame: Frame, page: Page) -> Endpoint:
    async def answer(request: Request) -> Response:
        return twin(await page.data(frame.asked(request)))

    return answer


def _form_of(frame: Frame, action: Action) -> Endpoint:
    async def answer(request: Request) -> Response:
        asked = await asked_by_form(request, frame)
        describe_action(reason=asked.text("reason"))
        target = await action.do(asked)
        return RedirectResponse(target, 303)

    return answer
