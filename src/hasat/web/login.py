"""Login with an API key, where the server requires authentication."""

import asyncio

from fastapi import FastAPI, Request
from starlette.responses import RedirectResponse, Response

from hasat.api.authentication import is_open, login_cookie
from hasat.api.keys import LOGIN_LIFETIME, MIN_RELOAD_SECONDS, KeyCache, log_in, log_out
from hasat.api.rate_limits import RateLimits
from hasat.errors import AuthenticationError
from hasat.http.routes import actor_of
from hasat.pages import PageRequest
from hasat.store.audit import audited
from hasat.web.forms import read_form
from hasat.web.rendering import Renderer

LOGIN_PATH = "/login"
MAX_REFUSALS_PER_MINUTE = 30
"""Failed logins that a process records: anyone can cause them, and audit records are permanent."""


def add_login(app: FastAPI, renderer: Renderer) -> None:
    """Add the login form and the routes that log in and out."""
    context = renderer.context
    store, settings = context.store, context.settings
    keys: KeyCache = app.state.keys
    cookie = login_cookie(settings)
    refusals = RateLimits()

    def form(request: Request, target: str, error: str | None = None) -> Response:
        page_request = PageRequest.from_http(context, request)
        status = 401 if error else 200
        return renderer.html(
            request, "login", page_request, status=status, target=target, error=error
        )

    async def audited_login(request: Request, key: str) -> str:
        """Log in; many wrong keys leave a limited number of audit records."""
        try:
            await keys.check(key)
        except AuthenticationError:
            allowance = await refusals.draw("login", MAX_REFUSALS_PER_MINUTE)
            if allowance is not None and allowance.retry_after is not None:
                raise
        async with audited(store, actor_of(request), "login"):
            login = await log_in(store, keys, key)
        if settings.serve.workers > 1:
            # The browser may be sent to a process that has just read the keys.
            await asyncio.sleep(MIN_RELOAD_SECONDS)
        return login

    @app.get(LOGIN_PATH, include_in_schema=False)
    async def show(request: Request) -> Response:
        target = _local_path(request.query_params.get("to", "/"))
        return RedirectResponse(target, 303) if is_open(settings) else form(request, target)

    @app.post(LOGIN_PATH, include_in_schema=False)
    async def submit(request: Request) -> Response:
        page_request = await read_form(context, request)
        target = _local_path(page_request.text("to") or "/")
        try:
            login = await audited_login(request, page_request.text("key"))
        except AuthenticationError as error:
            return form(request, target, error.message)
        response = RedirectResponse(target, 303)
        response.set_cookie(
            cookie,
            login,
            max_age=int(LOGIN_LIFETIME.total_seconds()),
            httponly=True,
            samesite="lax",
            # A proxy may end TLS; the browser's Origin names the scheme that it used.
            secure=request.headers.get("origin", "").startswith("https://"),
        )
        return response

    @app.post("/logout", include_in_schema=False)
    async def logout(request: Request) -> Response:
        await read_form(context, request)
        await log_out(store, request.cookies.get(cookie, ""), actor_of(request).address)
        response = RedirectResponse(LOGIN_PATH, 303)
        response.delete_cookie(cookie, httponly=True, samesite="lax")
        return response


def _local_path(target: str) -> str:
    """Return the target if it is a path of this server, else `/`: no open redirects."""
    is_path = (
        target.startswith("/") and not target.startswith(("//", "/\\")) and target.isprintable()
    )
    return target if is_path else "/"
