"""Which endpoints cannot be believed: those that find nothing where the others find parcels.

An empty answer costs an endpoint nothing, and a scan that believes it passes a parcel over. So one
that finds nothing while the others do is asked about ground that another told to be a parcel's.
"""

from collections import defaultdict, deque
from collections.abc import Sequence

from shapely import MultiPolygon, Polygon

from hasat.sources.tkgm.registry.client import Told, spelled

# So few points without a parcel are chance.
_LEAST = 5
# A row of points without a parcel that is less likely than this, by what others find, is doubted.
_SURPRISING = 0.01
# The latest answers tell what is usual.
_MEMORY = 200
# One is asked about the widest of so many parcels told last, so that nobody errs at an edge.
_CHOICE = 20


class Doubts:
    """What each endpoint found in the course of a scan."""

    def __init__(self) -> None:
        self._found: deque[tuple[str, bool]] = deque(maxlen=_MEMORY)
        self._grounds: deque[tuple[str, Polygon | MultiPolygon]] = deque(maxlen=_MEMORY)
        self._denied: defaultdict[str, list[str]] = defaultdict(list)
        self._in_a_row: defaultdict[str, int] = defaultdict(int)

    def note(self, told: Sequence[Told]) -> None:
        """Takes in what was told."""
        for one in told:
            self._found.append((one.endpoint, one.parcel is not None))
            if one.parcel is None:
                self._denied[one.endpoint].append(spelled(one.question))
                self._in_a_row[one.endpoint] += 1
            else:
                self._in_a_row[one.endpoint] = 0
                if one.parcel.geometry is not None:
                    self._grounds.append((one.endpoint, one.parcel.geometry))

    def raised(self) -> list[str]:
        """The endpoints that have found nothing for surprisingly long; each time, only once."""
        odd = [one for one, row in self._in_a_row.items() if self._is_odd(one, row)]
        for endpoint in odd:
            self._in_a_row[endpoint] = 0
        return odd

    def control(self, endpoint: str) -> Polygon | MultiPolygon | None:
        """Wide ground on which it must find something, by the word of another; never the same."""
        others = [ground for teller, ground in self._grounds if teller != endpoint]
        if not others:
            return None
        chosen = max(others[-_CHOICE:], key=lambda ground: float(ground.area))
        self._grounds = deque(
            ((teller, ground) for teller, ground in self._grounds if ground is not chosen), _MEMORY
        )
        return chosen

    def denied(self, endpoint: str) -> list[str]:
        """The questions, as they are spelled, that it answered with nothing."""
        return self._denied.pop(endpoint, [])

    def _is_odd(self, endpoint: str, row: int) -> bool:
        others = [found for teller, found in self._found if teller != endpoint]
        rate = sum(others) / (len(others) + 1)
        return row >= _LEAST and (1.0 - rate) ** row < _SURPRISING
