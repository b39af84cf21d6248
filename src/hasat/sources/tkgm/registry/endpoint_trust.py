"""Detect endpoints that find nothing where others find parcels.

An empty response costs an endpoint nothing, and a scan that trusts it misses a parcel. So an
endpoint that finds nothing for surprisingly long is tested on parcels that another one returned.
"""

from collections import defaultdict, deque
from collections.abc import Sequence

from hasat.sources.tkgm.geometry import Outline
from hasat.sources.tkgm.registry.client import ParcelResponse
from hasat.sources.tkgm.registry.wire import Point, format_query, interior_point

# Fewer empty responses in a row than this are chance.
_MIN_ROW = 5
# A row of empty responses less likely than this, by what others find, makes an endpoint suspect.
_SURPRISING = 0.01
# The rate of empty responses is taken from the latest ones.
_MEMORY = 200
# An endpoint is tested on the widest of this many latest parcels, away from disputed edges.
_CHOICE = 20


class EndpointTrust:
    """Track what each endpoint finds in the course of a scan."""

    def __init__(self) -> None:
        self._found: deque[tuple[str, bool]] = deque(maxlen=_MEMORY)
        self._outlines: deque[tuple[str, Outline]] = deque(maxlen=_MEMORY)
        self._empty: defaultdict[str, list[str]] = defaultdict(list)
        self._in_a_row: defaultdict[str, int] = defaultdict(int)

    def record(self, responses: Sequence[ParcelResponse]) -> None:
        """Count responses."""
        for one in responses:
            self._found.append((one.endpoint, one.parcel is not None))
            if one.parcel is None:
                self._empty[one.endpoint].append(format_query(one.query))
                self._in_a_row[one.endpoint] += 1
            else:
                self._in_a_row[one.endpoint] = 0
                if one.parcel.geometry is not None:
                    self._outlines.append((one.endpoint, one.parcel.geometry))

    def take_suspects(self) -> list[str]:
        """Return the endpoints that found nothing for surprisingly long, each only once."""
        suspects = [one for one, row in self._in_a_row.items() if self._is_surprising(one, row)]
        for endpoint in suspects:
            self._in_a_row[endpoint] = 0
        return suspects

    def take_control(self, endpoint: str) -> Point | None:
        """Return a point at which another endpoint found a parcel, a different one each time."""
        others = [outline for source, outline in self._outlines if source != endpoint]
        if not others:
            return None
        chosen = max(others[-_CHOICE:], key=lambda outline: float(outline.area))
        self._outlines = deque(
            ((source, outline) for source, outline in self._outlines if outline is not chosen),
            _MEMORY,
        )
        return interior_point(chosen)

    def take_empty(self, endpoint: str) -> list[str]:
        """Return the texts of the queries that an endpoint answered with nothing."""
        return self._empty.pop(endpoint, [])

    def _is_surprising(self, endpoint: str, row: int) -> bool:
        others = [found for source, found in self._found if source != endpoint]
        rate = sum(others) / (len(others) + 1)
        return row >= _MIN_ROW and (1.0 - rate) ** row < _SURPRISING
