"""Logging in by key, where callers must say who they are."""

from fastapi import FastAPI, Request
from starlette.responses import RedirectResponse, Response

from hasat.api.authentication import is_open, login_cookie
from hasat.api.keys import LOGIN_LIFETIME, KeyCache, log_in, log_out
from hasat.api.rate_limits import RateLimits
from hasat.errors import AuthenticationError
from hasat.http.routes import actor_of
from hasat.store.audit import audited
from hasat.web.forms import asked_by_form
from hasat.web.frame import Frame
from hasat.web.words import Words, language_of

MAX_REFUSALS_PER_MINUTE = 30
"""How many failed logins a process records: anybody can cause them, and records stay for long."""


def add_to(app: FastAPI, frame: Frame) -> None:
    """The form, what it does, and its undoing."""
    store, settings = frame.house.store, frame.house.settings
    keys: KeyCache = app.state.keys
    cookie = login_cookie(settings)
    refusals = RateLimits()

    def form(request: Request, to: str, failed: str | None = None) -> Response:
        return frame.html(
            request,
            "login",
            Words(language_of(request)),
            frame.asked(request),
            status=401 if failed else 200,
            to=to,
            failed=failed,
        )

    async def recorded_login(request: Request, key: str) -> str:
        """Log in; a flood of wrong keys leaves no more than some audit records."""
        try:
            await keys.check(key)
        except AuthenticationError:
            allowance = await refusals.draw("login", MAX_REFUSALS_PER_MINUTE)
            if allowance is not None and allowance.retry_after is not None:
                raise
        async with audited(store, actor_of(request), "login"):
            return await log_in(store, keys, key)

    @app.get("/login", include_in_schema=False)
    async def ask(request: Request) -> Response:
        target = _inside(request.query_params.get("to", "/"))
        return RedirectResponse(target, 303) if is_open(settings) else form(request, target)

    @app.post("/login", include_in_schema=False)
    async def enter(request: Request) -> Response:
        asked = await asked_by_form(request, frame)
        target = _inside(asked.text("to") or "/")
        try:
            login = await recorded_login(request, asked.text("key"))
        except AuthenticationError as error:
            return form(request, target, error.message)
        answer = RedirectResponse(target, 303)
        answer.set_cookie(
            cookie,
            login,
            max_age=int(LOGIN_LIFETIME.total_seconds()),
            httponly=True,
            samesite="lax",
            # The browser itself says whether it came over TLS, whatever stands between.
            secure=request.headers.get("origin", "").startswith("https://"),
        )
        return answer

    @app.post("/logout", include_in_schema=False)
    async def leave(request: Request) -> Response:
        await asked_by_form(request, frame)
        await log_out(store, request.cookies.get(cookie, ""), actor_of(request).address)
        answer = RedirectResponse("/login", 303)
        answer.delete_cookie(cookie, httponly=True, samesite="lax")
        return answer


def _inside(target: str) -> str:
    """A path of this server: an address of elsewhere would make the login a trap."""
    is_path = (
        target.startswith("/") and not target.startswith(("//", "/\\")) and target.isprintable()
    )
    return target if is_path else "/"
