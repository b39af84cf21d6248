"""What fetching needs of the budget: leave for each request, and a place to say what came of it."""

from typing import Protocol

from hasat.budget import Remaining


class Leave(Protocol):
    """A grant for one request."""

    async def settle(
        self,
        outcome: str,
        headers: Remaining = ...,
        latency: float | None = None,
        retry_after: float | None = None,
    ) -> bool: ...


class Purse(Protocol):
    """The budget of one upstream."""

    async def acquire(
        self,
        lane: str,
        *,
        job: str,
        cost: int = 1,
        endpoint: str | None = None,
        run: int | None = None,
        timeout: float = 60.0,  # noqa: ASYNC109 - how long to wait in line
    ) -> Leave: ...

    async def slow_down(self, factor: float, pause: float = 0.0) -> None: ...
