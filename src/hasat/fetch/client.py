"""The HTTP client: one request and its response, limited in time and size."""

import asyncio
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Self
from urllib.parse import urlsplit

from hasat.fetch.outcomes import Outcome, Request, Response, Verdict
from hasat.telemetry import span

if TYPE_CHECKING:
    import httpx2

_CONNECT_SECONDS = 10.0
_KEEP_SECONDS = 30.0


@dataclass(frozen=True)
class ClientOptions:
    """The headers of every request to an upstream, and the largest accepted response body.

    No other headers are sent, except those that HTTP itself needs.
    """

    user_agent: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    max_bytes: int = 32 * 1024 * 1024


class NoResponseError(Exception):
    """There is no response to classify; the verdict has the reason."""

    def __init__(self, verdict: Verdict) -> None:
        super().__init__(verdict.reason)
        self.verdict = verdict


class Client:
    """Send requests; a cancelled one closes its connection, so that the server can stop.

    Proxies and certificates of the environment are ignored.
    """

    def __init__(
        self, options: ClientOptions, transport: "httpx2.AsyncBaseTransport | None" = None
    ) -> None:
        self._options = options
        self._transport = transport
        self._opened: httpx2.AsyncClient | None = None
        self._headers = {"user-agent": options.user_agent, "accept": "application/json"}
        self._headers |= {"accept-encoding": "gzip"}
        self._headers |= {name.lower(): value for name, value in options.headers.items()}

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

    async def send(self, address: str, request: Request) -> Response:
        """Return the complete response; raise NoResponseError if there is none to classify."""
        attributes = {
            "http.request.method": request.method,
            "server.address": urlsplit(address).hostname or "",
        }
        with span(
            request.method, "client", attributes, metric="http.client.request.duration"
        ) as traced:
            response = await self._send(address, request)
            traced.set(http__response__status_code=response.status)
        return response

    async def _send(self, address: str, request: Request) -> Response:
        import httpx2

        http = self.ready()
        started = time.monotonic()
        try:
            async with asyncio.timeout(request.timeout):
                http_request = self._request(address, request)
                status, headers, body = await self._exchange(http, http_request)
        except TimeoutError as error:
            raise _no_response(f"no response within {request.timeout:g} s") from error
        except httpx2.DecodingError as error:
            raise _no_response("the response cannot be decompressed", Outcome.BROKEN) from error
        except (httpx2.TransportError, OSError) as error:
            raise _no_response(f"no response ({str(error) or type(error).__name__})") from error
        return Response(status, headers, body, time.monotonic() - started)

    def ready(self) -> "httpx2.AsyncClient":
        """Return the underlying client; create it on the first call.

        Loading all certificates takes longer than most responses: call this before measuring.
        """
        import httpx2

        if self._opened is None:
            limits = httpx2.Limits(max_connections=None, keepalive_expiry=_KEEP_SECONDS)
            self._opened = httpx2.AsyncClient(
                transport=self._transport, limits=limits, trust_env=False, follow_redirects=False
            )
        return self._opened

    def _request(self, address: str, request: Request) -> "httpx2.Request":
        import httpx2

        headers, content = dict(self._headers), None
        if request.json is not None:
            headers["content-type"] = "application/json"
            content = json.dumps(request.json, ensure_ascii=False).encode()
        seconds = request.timeout
        timeout = httpx2.Timeout(seconds, connect=min(seconds, _CONNECT_SECONDS))
        return httpx2.Request(
            request.method,
            address,
            params=request.params or None,
            headers=headers,
            content=content,
            extensions={"timeout": timeout.as_dict()},
        )

    async def _exchange(
        self, http: "httpx2.AsyncClient", request: "httpx2.Request"
    ) -> tuple[int, dict[str, str], bytes]:
        response = await http.send(request, stream=True)
        try:
            parts, size = [], 0
            async for part in response.aiter_bytes():
                size += len(part)
                if size > self._options.max_bytes:
                    raise _no_response(
                        f"the response is larger than {self._options.max_bytes} bytes",
                        Outcome.BROKEN,
                    )
                parts.append(part)
        finally:
            # Closes the connection unless the body was read to its end.
            await response.aclose()
        return response.status_code, dict(response.headers), b"".join(parts)


def _no_response(reason: str, outcome: Outcome = Outcome.TRANSIENT) -> NoResponseError:
    return NoResponseError(Verdict(outcome, reason))
