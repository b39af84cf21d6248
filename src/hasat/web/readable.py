"""What goes wrong, as a page: for browsers a problem becomes one, and 401 the way to log in."""

import json
from collections.abc import MutableMapping
from typing import Any
from urllib.parse import quote

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hasat.http.routes import LANGUAGE, PROBLEM_JSON
from hasat.web.frame import Frame
from hasat.web.page import Asked
from hasat.web.words import Words, language_of, texts

LOGIN = "/login"


class Readable:
    """Outside of everything else, so that it sees every problem in its final form."""

    def __init__(self, app: ASGIApp, frame: Frame) -> None:
        self._app = app
        self._frame = frame

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not _is_for_people(scope):
            await self._app(scope, receive, send)
            return
        start: Message | None = None
        body = b""

        async def send_readable(message: Message) -> None:
            nonlocal start, body
            if message["type"] == "http.response.start" and _is_problem(message):
                start = message
            elif start is None:
                await send(message)
            else:
                body += message.get("body", b"")
                if not message.get("more_body", False):
                    answer = self._page(Request(scope), json.loads(body))
                    await _send_instead(answer, start, send)

        chosen = {**scope, LANGUAGE: language_of(Request(scope))}
        await self._app(chosen, receive, send_readable)

    def _page(self, request: Request, problem: dict[str, Any]) -> Response:
        if problem["status"] == 401 and request.method == "GET":
            target = request.url.path + (f"?{request.url.query}" if request.url.query else "")
            return Response(status_code=303, headers={"Location": f"{LOGIN}?to={quote(target)}"})
        words = Words(language_of(request))
        named = f"problem.{problem['status']}"
        return self._frame.html(
            request,
            "problem",
            words,
            Asked(self._frame.house, {}),
            status=problem["status"],
            problem=problem,
            heading=words(named if named in texts() else "problem.other"),
        )


def _is_for_people(scope: Scope) -> bool:
    # Not HEAD, whose problems come without a body to read.
    if scope["method"] not in {"GET", "POST"} or scope["path"].startswith("/api/"):
        return False
    return "text/html" in Headers(scope=scope).get("accept", "")


def _is_problem(message: MutableMapping[str, Any]) -> bool:
    return Headers(raw=message["headers"]).get("content-type", "").startswith(PROBLEM_JSON)


async def _send_instead(answer: Response, start: Message, send: Send) -> None:
    """The page under the headers that every answer carries."""
    headers = MutableHeaders(raw=list(start["headers"]))
    for name, value in answer.headers.items():
        headers[name] = value
    del headers["www-authenticate"]
    status = answer.status_code
    await send({"type": "http.response.start", "status": status, "headers": headers.raw})
    await send({"type": "http.response.body", "body": answer.body})
