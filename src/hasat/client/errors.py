"""Every error of the client, grouped by what the caller should do.

ClientError
├── NotReachableError      the server cannot be reached, or the connection broke: try again later
├── InvalidResponseError   the response is not one of a Hasat server: check the address
└── ProblemError           the server refused; `code` and `detail` say why
    ├── NotAllowedError    401, 403: give a key with the scope that is needed
    ├── NotFoundError      404: there is no such dataset, path or archive
    ├── ExpiredError       410: start over from an archive
    └── UnavailableError   429, 503 and other 5xx: try again after `retry_after` seconds
"""

from collections.abc import Mapping
from typing import Any


class ClientError(Exception):
    """A request to a Hasat server failed."""


class NotReachableError(ClientError):
    """The server cannot be reached, or the connection broke."""


class InvalidResponseError(ClientError):
    """The response is not one of a Hasat server."""


class ProblemError(ClientError):
    """The server refused the request with a problem (RFC 9457)."""

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        *,
        remedy: str | None = None,
        params: Mapping[str, Any] | None = None,
        request_id: str | None = None,
        retry_after: float = 0.0,
    ) -> None:
        super().__init__(f"{detail} {remedy}" if remedy else detail)
        self.status = status
        self.code = code
        """A stable name of the kind of problem, such as `feed-expired`."""
        self.detail = detail
        self.remedy = remedy
        self.params = dict(params or {})
        self.request_id = request_id
        self.retry_after = retry_after


class NotAllowedError(ProblemError):
    """The key is missing, invalid or lacks the scope."""


class NotFoundError(ProblemError):
    """There is no such dataset, path or archive."""


class ExpiredError(ProblemError):
    """The cursor cannot be continued from: start over from an archive."""


class UnavailableError(ProblemError):
    """The server cannot respond now: try again after `retry_after` seconds."""


def problem_of(status: int, reason: str, document: object, retry_after: str) -> ProblemError:
    """Return the error for a response that is no success."""
    problem = document if isinstance(document, dict) else {}
    kind: type[ProblemError] = {
        401: NotAllowedError,
        403: NotAllowedError,
        404: NotFoundError,
        410: ExpiredError,
        429: UnavailableError,
    }.get(status, UnavailableError if status >= 500 else ProblemError)
    return kind(
        status,
        str(problem.get("code") or f"http-{status}"),
        str(problem.get("detail") or f"The server responded with {status} {reason}."),
        remedy=problem.get("remedy"),
        params=problem.get("params"),
        request_id=problem.get("requestId"),
        retry_after=float(retry_after) if retry_after.isdecimal() else 0.0,
    )
