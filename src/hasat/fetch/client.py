"""One request and its answer: bounded in time and size, with the headers that the rules allow."""

import asyncio
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

import httpx2

from hasat.fetch.outcomes import Outcome, Request, Response, Verdict

_CONNECT_SECONDS = 10.0
_KEEP_SECONDS = 30.0


@dataclass(frozen=True)
class ClientOptions:
    """What requests to an upstream carry, and how large an answer may be once unpacked.

    Exactly these headers are sent, beside those that HTTP itself needs.
    """

    user_agent: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    max_bytes: int = 32 * 1024 * 1024


class NoResponseError(Exception):
    """There is no answer to judge; the verdict says why not."""

    def __init__(self, verdict: Verdict) -> None:
        super().__init__(verdict.reason)
        self.verdict = verdict


class Client:
    """Sends questions. A cancelled one closes its connection, so that the server can stop too.

    Proxies and certificates named in the environment are not looked at.
    """

    def __init__(
        self, rules: ClientOptions, transport: httpx2.AsyncBaseTransport | None = None
    ) -> None:
        self._rules = rules
        self._transport = transport
        self._opened: httpx2.AsyncClient | None = None
        self._headers = {"user-agent": rules.user_agent, "accept": "application/json"}
        self._headers |= {"accept-encoding": "gzip"}
        self._headers |= {name.lower(): value for name, value in rules.headers.items()}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._opened is not None:
            await self._opened.aclose()

    async def send(self, address: str, question: Request) -> Response:
        """The answer, read to its end; NoResponseError if there is none that can be judged."""
        http = self.ready()
        started = time.monotonic()
        try:
            async with asyncio.timeout(question.timeout):
                request = self._request(address, question)
                status, headers, body = await self._exchange(http, request)
        except TimeoutError as error:
            raise _no_answer(f"no answer within {question.timeout:g} s") from error
        except httpx2.DecodingError as error:
            raise _no_answer("the answer cannot be unpacked", Outcome.BROKEN) from error
        except (httpx2.TransportError, OSError) as error:
            raise _no_answer(f"no answer ({_in_words(error)})") from error
        return Response(status, headers, body, time.monotonic() - started)

    def ready(self) -> httpx2.AsyncClient:
        """Made for the first question: reading all certificates takes longer than most answers.

        Who measures an endpoint's time gets ready before it begins.
        """
        if self._opened is None:
            limits = httpx2.Limits(max_connections=None, keepalive_expiry=_KEEP_SECONDS)
            self._opened = httpx2.AsyncClient(
                transport=self._transport, limits=limits, trust_env=False, follow_redirects=False
            )
        return self._opened

    def _request(self, address: str, question: Request) -> httpx2.Request:
        headers, content = dict(self._headers), None
        if question.json is not None:
            headers["content-type"] = "application/json"
            content = json.dumps(question.json, ensure_ascii=False).encode()
        seconds = question.timeout
        patience = httpx2.Timeout(seconds, connect=min(seconds, _CONNECT_SECONDS))
        return httpx2.Request(
            question.method,
            address,
            params=question.params or None,
            headers=headers,
            content=content,
            extensions={"timeout": patience.as_dict()},
        )

    async def _exchange(
        self, http: httpx2.AsyncClient, request: httpx2.Request
    ) -> tuple[int, dict[str, str], bytes]:
        response = await http.send(request, stream=True)
        try:
            parts, size = [], 0
            async for part in response.aiter_bytes():
                size += len(part)
                if size > self._rules.max_bytes:
                    raise _no_answer(
                        f"the answer is larger than {self._rules.max_bytes} bytes", Outcome.BROKEN
                    )
                parts.append(part)
        finally:
            # Before its end this closes the connection; after it, the connection is kept.
            await response.aclose()
        return response.status_code, dict(response.headers), b"".join(parts)


def _no_answer(reason: str, outcome: Outcome = Outcome.TRANSIENT) -> NoResponseError:
    return NoResponseError(Verdict(outcome, reason))


def _in_words(error: Exception) -> str:
    return str(error) or type(error).__name__
