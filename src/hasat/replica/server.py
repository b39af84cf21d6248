"""The server as a follower sees it: changes after a cursor, its digest, its newest archive."""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx2

from hasat.clock import parse_local_time
from hasat.errors import HasatError, NotAllowedError, NotFoundError, UsageError
from hasat.feed.encoding import canonical
from hasat.messages import msg
from hasat.replica.failures import StartOverError, TroubleError
from hasat.replica.target import Row

_LIMIT = 1_000
_SECONDS = 30.0


@dataclass(frozen=True)
class Page:
    """Changes after a cursor in sequence, and the cursor after them."""

    rows: tuple[Row, ...]
    next: str
    up_to_date: bool


@dataclass(frozen=True)
class Download:
    """An archive, or the rest of one, while it arrives."""

    response: httpx2.Response

    @property
    def cursor(self) -> str:
        return self._header("X-Hasat-Cursor")

    @property
    def sha256(self) -> str:
        return self._header("X-Hasat-Sha256")

    @property
    def etag(self) -> str:
        return self._header("ETag")

    @property
    def continues(self) -> bool:
        """Return whether it continues the interrupted download."""
        return self.response.status_code == 206

    async def chunks(self) -> AsyncIterator[bytes]:
        # As they come: what were collected to larger ones would be lost when it is cut off.
        async for chunk in self.response.aiter_raw():
            yield chunk

    def _header(self, name: str) -> str:
        value = self.response.headers.get(name)
        if not value:
            raise HasatError(
                msg("The archive came without the header {name}.", name=name),
                remedy=msg("Check that a proxy in between lets the server's headers through."),
            )
        return str(value)


class Server:
    """One dataset of one Hasat server."""

    def __init__(self, address: str, dataset: str, key: str | None) -> None:
        try:
            base = httpx2.URL(address)
        except httpx2.InvalidURL as error:
            raise _no_address() from error
        if base.scheme not in {"http", "https"} or not base.host:
            raise _no_address()
        self.label = f"{base.host}:{base.port}" if base.port else base.host
        self._dataset = dataset
        self._client = httpx2.AsyncClient(
            base_url=f"{str(base).rstrip('/')}/api/v1/{dataset}/",
            headers={"X-API-Key": key} if key else None,
        )

    async def changes(self, cursor: str, *, wait: float = 0.0) -> Page:
        """Return the changes after the cursor; wait for the first one for a limited time."""
        query = {"after": cursor, "limit": _LIMIT, "wait": wait, "include": "record"}
        async with self._request("changes", query, seconds=wait + _SECONDS) as response:
            answer = await _json(response)
        try:
            rows = tuple(map(_row, answer["changes"]))
            return Page(rows, answer["next"], answer["upToDate"])
        except (KeyError, TypeError, UsageError) as error:
            raise _not_hasat(self.label) from error

    async def digest(self) -> tuple[str, int, str]:
        """Return the server's cursor, number of records and state digest."""
        async with self._request("digest") as response:
            answer = await _json(response)
        try:
            return answer["cursor"], answer["count"], answer["digest"]
        except (KeyError, TypeError) as error:
            raise _not_hasat(self.label) from error

    @asynccontextmanager
    async def archive(self, etag: str | None = None, start: int = 0) -> AsyncIterator[Download]:
        """Open the newest archive; with a start, the rest of it if its tag is the same."""
        headers = {"Accept-Encoding": "identity"}
        if etag and start:
            headers |= {"Range": f"bytes={start}-", "If-Range": etag}
        async with self._request("archives/latest", {"format": "ndjson"}, headers) as response:
            yield Download(response)

    async def close(self) -> None:
        await self._client.aclose()

    @asynccontextmanager
    async def _request(
        self,
        path: str,
        query: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        seconds: float = _SECONDS,
    ) -> AsyncIterator[httpx2.Response]:
        """Send a request; raise an error that says how to continue unless it succeeds."""
        try:
            async with self._client.stream(
                "GET", path, params=query, headers=headers, timeout=seconds
            ) as response:
                if response.status_code not in {200, 206}:
                    await response.aread()
                    raise self._refusal(response)
                yield response
        except httpx2.RequestError as error:
            why = str(error) or type(error).__name__
            raise TroubleError(
                msg("Cannot reach {label}: {why}.", label=self.label, why=why)
            ) from error

    def _refusal(self, response: httpx2.Response) -> HasatError:
        status = response.status_code
        code, said = _describe_problem(response)
        if status == 410:
            return StartOverError(
                msg(
                    "The feed of {dataset} cannot be gone on with: {said}",
                    dataset=self._dataset,
                    said=said,
                )
            )
        if status in {401, 403}:
            return NotAllowedError(
                msg("{label} does not let this replica in: {said}", label=self.label, said=said),
                remedy=msg("Give a key of that server with HASAT_REPLICA_KEY or --key."),
            )
        if code == "archive-pending":
            return TroubleError(
                msg(
                    "{label} has no archive of {dataset} yet; it is written soon.",
                    label=self.label,
                    dataset=self._dataset,
                ),
                retry_after=_retry_after(response),
            )
        if status in {408, 416, 425, 429} or status >= 500:
            return TroubleError(
                msg(
                    "{label} cannot answer now ({status}): {said}",
                    label=self.label,
                    status=status,
                    said=said,
                ),
                retry_after=_retry_after(response),
            )
        if code == "no-archive":
            return TroubleError(
                msg("{label} cannot be loaded from yet: {said}", label=self.label, said=said)
            )
        if status == 404:
            return NotFoundError(
                msg(
                    "{label} has no dataset {dataset}: {said}",
                    label=self.label,
                    dataset=self._dataset,
                    said=said,
                ),
                remedy=msg("Check the name and the address behind --from."),
            )
        return HasatError(
            msg(
                "{label} did not understand the replica ({status}): {said}",
                label=self.label,
                status=status,
                said=said,
            ),
            remedy=msg(
                "Check that --from is the address of a Hasat of the same or a later version."
            ),
        )


def _row(change: Mapping[str, Any]) -> Row:
    gone = change["changeType"] == "removed"
    return Row(
        change["key"],
        None if gone else canonical(change["body"]),
        change["seq"],
        parse_local_time(change["changedAt"]),
    )


async def _json(response: httpx2.Response) -> Any:
    content = await response.aread()
    try:
        return json.loads(content)
    except ValueError as error:
        raise _not_hasat(response.url.host) from error


def _describe_problem(response: httpx2.Response) -> tuple[str, str]:
    """Return the code and detail of the problem in a response, or its status."""
    try:
        problem = json.loads(response.content)
        return str(problem["code"]), str(problem["detail"])
    except (ValueError, KeyError, TypeError):
        return "", f"{response.status_code} {response.reason_phrase}."


def _retry_after(response: httpx2.Response) -> float:
    after = response.headers.get("Retry-After", "")
    return float(after) if after.isdecimal() else 0.0


def _not_hasat(label: str) -> TroubleError:
    return TroubleError(msg("What {label} answered is not from a Hasat.", label=label))


def _no_address() -> UsageError:
    return UsageError(
        msg("The address behind --from is not one of a server."),
        remedy=msg("Write it as http://127.0.0.1:8787 or https://hasat.example."),
    )
