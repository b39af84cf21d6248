"""An HTTP transport that answers from a script and remembers what it was asked."""

from collections.abc import Callable
from dataclasses import dataclass, field

import httpx2

Answer = httpx2.Response | Exception | Callable[[httpx2.Request], httpx2.Response]


@dataclass
class Script(httpx2.AsyncBaseTransport):
    """Answers in the order given; asking for more than the script holds fails the test.

    An exception in the script is raised instead of an answer; a function is given the request.
    """

    answers: list[Answer] = field(default_factory=list)
    asked: list[httpx2.Request] = field(default_factory=list)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        await request.aread()
        self.asked.append(request)
        if not self.answers:
            raise AssertionError(f"unexpected request: {request.method} {request.url}")
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer if isinstance(answer, httpx2.Response) else answer(request)
