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
    machine: str | None
    """The only machine that has the stored lists."""


async def waiting(house: House) -> Sequence[Held]:
    """Those that wait for a decision, the newest first."""
    return await _read(house, "WHERE state = 'waiting' ORDER BY run DESC LIMIT 20", [])


async def of_run(house: House, run: int) -> Held | None:
    found = await _read(house, "WHERE run = %s", [run])
    return found[0] if found else None


async def _read(house: House, which: str, values: list[int]) -> Sequence[Held]:
    if not any(source.name == "gib" for source in house.sources):
        return []
    query = (
        "SELECT run, at, state, decided_at, preview, (SELECT max(machine) FROM gib.held_input AS i"  # noqa: S608 - fixed
        f" WHERE i.run = held.run) AS machine FROM gib.held {which}"
    )
    return await house.store.rows(Held, query, values)
