"""Runs that the guard holds, and what it saw."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from hasat.web.page import House


@dataclass(frozen=True)
class Held:
    """A held run with the guard's preview; `state` says whether it still waits."""

    run: int
    at: datetime
    state: str
    decided_at: datetime | None
    preview: Mapping[str, Any]


async def waiting(house: House) -> Sequence[Held]:
    """Those that wait for a decision, the newest first."""
    return await _read(house, "WHERE state = 'waiting' ORDER BY run DESC LIMIT 20", [])


async def of_run(house: House, run: int) -> Held | None:
    found = await _read(house, "WHERE run = %s", [run])
    return found[0] if found else None


async def _read(house: House, which: str, values: list[int]) -> Sequence[Held]:
    if not any(source.name == "gib" for source in house.sources):
        return []
    query = f"SELECT run, at, state, decided_at, preview FROM gib.held {which}"  # noqa: S608 - fixed
    return await house.store.rows(Held, query, values)
