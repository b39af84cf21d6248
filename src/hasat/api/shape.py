"""How large a request may be, and how HEAD is answered."""

import asyncio
from contextlib import suppress

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hasat.http.routes import body_limit_of

_LINGER_BYTES = 10_000_000
_LINGER_SECONDS = 2.0
_LET_GO_SECONDS = 1.0


class BodyLimitMiddleware:
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
            if seen == 0 and (announced := _announced(scope)) > limit:
                if announced <= limit + _LINGER_BYTES:
                    await _linger(receive)
                raise _too_large(limit)
            message = await receive()
            seen += len(message.get("body", b""))
            if seen > limit:
                if message.get("more_body", False):
                    await _linger(receive)
                raise _too_large(limit)
            return message

        await self._app(scope, receive_counted, send)


class HeadMiddleware:
    """Answers HEAD with the headers that GET would have.

    To the route it is a GET whose caller hangs up after the headers: the server says so through
    `receive` once the answer is complete, and a stream ends as it does when a caller leaves.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self._app(scope, receive, send)
            return

        listening = False

        async def receive_noted() -> Message:
            nonlocal listening
            listening = True
            try:
                return await receive()
            finally:
                listening = False

        async def send_start(message: Message) -> None:
            if message["type"] == "http.response.start":
                await send(message)
                await send({"type": "http.response.body"})
                if listening:
                    # A stream is ended by its listener now, before it has begun.
                    await asyncio.sleep(_LET_GO_SECONDS)
            else:
                await asyncio.sleep(0)

        scope["method"] = "GET"
        # From 2.4 on streams listen to errors of `send` instead, which leave them half closed.
        scope["asgi"] = {**scope.get("asgi", {}), "spec_version": "2.3"}
        await self._app(scope, receive_noted, send_start)


async def _linger(receive: Receive) -> None:
    """Throw away some more: who is still sending would hear a reset instead of the answer."""
    left, more = _LINGER_BYTES, True
    with suppress(TimeoutError):
        async with asyncio.timeout(_LINGER_SECONDS):
            while more and left > 0:
                message = await receive()
                left -= len(message.get("body", b""))
                more = message.get("more_body", False)


def _announced(scope: Scope) -> int:
    for name, value in scope["headers"]:
        if name == b"content-length":
            return int(value) if value.isdigit() else 0
    return 0


def _too_large(limit: int) -> HTTPException:
    # The framework lets only its own exception pass from here; it becomes a problem later.
    return HTTPException(413, f"The body is larger than {limit:,} bytes, which is all this takes.")
