"""Rebuild the buildings of parcels from the registry's stored responses.

Responses are stored for `tkgm.raw_retention_days` only. The record of a parcel whose responses have
expired stays as it is in the mirror, if it is undamaged.
"""

from dataclasses import dataclass, field

from hasat.errors import BrokenAnswerError
from hasat.feed.dataset import Dataset
from hasat.feed.encoding import canonical
from hasat.feed.raw import StoredResponse, iter_received
from hasat.feed.rebuild import OnResponses, RebuildSummary
from hasat.feed.reconcile import Reconcile, Record
from hasat.fetch import Outcome, Response
from hasat.settings import Settings
from hasat.sources.tkgm.buildings.records import (
    Row,
    build_record,
    parcel_listed,
    parse_rows,
    units_path,
)
from hasat.sources.tkgm.features import RETENTION_DAYS, format_key
from hasat.sources.tkgm.registry.rebuild import undamaged_bodies
from hasat.sources.tkgm.registry.wire import ParcelKey, classify
from hasat.sources.tkgm.source import BUILDINGS
from hasat.store import Store
from hasat.strategies.whole_list import nothing_stored, rebuild_from


@dataclass
class _Listed:
    """A parcel whose blocks are known, while the units of some are still to come."""

    key: ParcelKey
    blocks: list[Row]
    units: dict[str, list[Row]] = field(default_factory=dict)

    def paths(self) -> list[str]:
        return [units_path(self.key, block) for block in self.blocks]


class StoredBuildings:
    """Puts responses together to records, in the order of receipt."""

    def __init__(self, bodies: dict[str, bytes]) -> None:
        self.bodies = bodies
        self.unreadable = 0
        self._waiting: dict[str, _Listed] = {}

    def add(self, stored: StoredResponse) -> None:
        """Apply a response; the record of a parcel follows from its last missing one."""
        key = parcel_listed(stored.request)
        try:
            rows = _rows(stored)
        except BrokenAnswerError:
            self.unreadable += 1
            return
        if key is not None:
            self._start(_Listed(key, rows))
        elif (listed := self._waiting.pop(stored.request, None)) is not None:
            listed.units[stored.request] = rows
            self._finish(listed)

    def _start(self, listed: _Listed) -> None:
        self._waiting = {p: one for p, one in self._waiting.items() if one.key != listed.key}
        if not listed.blocks:
            self.bodies.pop(format_key(listed.key), None)
        self._waiting |= dict.fromkeys(listed.paths(), listed)

    def _finish(self, listed: _Listed) -> None:
        if any(path not in listed.units for path in listed.paths()):
            return
        units = [listed.units[path] for path in listed.paths()]
        self.bodies[format_key(listed.key)] = canonical(
            build_record(listed.key, listed.blocks, units)
        )


async def rebuild(
    store: Store,
    _settings: Settings,
    _dataset: Dataset,
    *,
    run: int | None = None,
    approving: int | None = None,
    on_progress: OnResponses | None = None,
) -> RebuildSummary:
    """Recompute the buildings of every parcel whose responses are stored."""
    read = 0
    async with Reconcile.begin(store, [BUILDINGS]) as work:
        found = StoredBuildings(await undamaged_bodies(work.connection, BUILDINGS))
        mirrored = bool(found.bodies)
        async with store.connection() as conn:
            async for stored in iter_received(conn, BUILDINGS.name):
                read += 1
                found.add(stored)
                if on_progress is not None:
                    await on_progress(read)
        if mirrored and not read:
            raise nothing_stored(BUILDINGS)
        records = {key: Record(key, body) for key, body in found.bodies.items()}
        result = await rebuild_from(
            work, BUILDINGS, records, run=run, approving=approving, retention_days=RETENTION_DAYS
        )
    return RebuildSummary(read, found.unreadable, result)


def _rows(stored: StoredResponse) -> list[Row]:
    response = Response(stored.status, {}, stored.content or b"", 0.0)
    verdict = classify(response)
    if verdict.outcome is Outcome.EMPTY:
        return []
    if verdict.outcome is not Outcome.OK:
        raise BrokenAnswerError(verdict.reason)
    return parse_rows(response.body)
