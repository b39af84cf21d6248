"""How large a request may be, and how HEAD is answered."""

from contextlib import suppress

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hasat.serve.doors import body_limit_of


class BodyLimit:
    """Stops reading a body that is larger than its route takes.

    The limit is looked up when the route first reads: only then is it known which route it is.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        seen = 0

        async def receive_counted() -> Message:
            nonlocal seen
            limit = body_limit_of(scope.get("endpoint"))
            if seen == 0 and _announced(scope) > limit:
                raise _too_large(limit)
            message = await receive()
            seen += len(message.get("body", b""))
            if seen > limit:
                raise _too_large(limit)
            return message

        await self._app(scope, receive_counted, send)


class _HungUpError(OSError):
    """Nobody reads on; an OSError is how a server tells a stream so."""


class HeadFromGet:
    """Answers HEAD with the headers that GET would have.

    To the route it looks like a GET whose caller hangs up after the headers, so that a stream
    ends as it does when a caller leaves.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self._app(scope, receive, send)
            return
        started = False

        async def receive_until_started() -> Message:
            return {"type": "http.disconnect"} if started else await receive()

        async def send_start(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                await send(message)
                await send({"type": "http.response.body"})
                started = True
            elif message.get("more_body", False):
                raise _HungUpError

        scope["method"] = "GET"
        with suppress(ClientDisconnect, _HungUpError):
            await self._app(scope, receive_until_started, send_start)


def _announced(scope: Scope) -> int:
    for name, value in scope["headers"]:
        if name == b"content-length":
            return int(value) if value.isdigit() else 0
    return 0


def _too_large(limit: int) -> HTTPException:
    # The framework lets only its own exception pass from here; it becomes a problem later.
    return HTTPException(413, f"The body is larger than {limit:,} bytes, which is all this takes.")
