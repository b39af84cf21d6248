"""The replica for programs without an event loop.

with BlockingReplica("einvoice", "http://127.0.0.1:8787", "sqlite:///taxpayers.db") as replica:
    replica.catch_up()
    body = replica.get("1234567890")
"""

import asyncio
from collections.abc import Iterator
from typing import Any, Self

from hasat.replica.replica import Replica, Report
from hasat.replica.target import State


class BlockingReplica:
    """A `Replica` with blocking methods; takes the same arguments."""

    def __init__(self, dataset: str, source: str, target: str, **options: Any) -> None:
        self._replica = Replica(dataset, source, target, **options)
        self._runner = asyncio.Runner()

    def __enter__(self) -> Self:
        self._runner.run(self._replica.__aenter__())
        return self

    def __exit__(self, *_: object) -> None:
        self._runner.run(self._replica.close())
        self._runner.close()

    @property
    def state(self) -> State:
        """Return the state of the replica."""
        return self._replica.state

    def get(self, key: str) -> Any | None:
        """Return the body of one record, or None; reads the local database only."""
        return self._runner.run(self._replica.get(key))

    def catch_up(self) -> Report:
        """Catch up with the server."""
        return self._runner.run(self._replica.catch_up())

    def verify(self) -> Report:
        """Catch up, then recompute the state digest from every row; a difference is an error."""
        return self._runner.run(self._replica.verify())

    def follow(self) -> Iterator[Report]:
        """Follow the server and report after each batch of changes."""
        reports = self._replica.follow()

        async def following() -> Report:
            return await anext(reports)

        while True:
            yield self._runner.run(following())
