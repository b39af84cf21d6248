"""Search the mirror by place, by ada and parsel, or by both."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from hasat.sources.tkgm.selection import Box
from hasat.store import Store
from hasat.store.queries import load_query
from hasat.text import fold

MAX_RESULTS = 20
_PACKAGE = "hasat.sources.tkgm"
_KEY = re.compile(r"([0-9]{1,18})/([^/\s]{1,60})/([^/\s]{1,60})")
# "2705/15", "ada 2705 parsel 15", also after the name of a place.
_NUMBER = re.compile(
    r"(?:^|\s)(?:ada\s*(?:no)?[\s:.]*)?([0-9]{1,9})\s*(?:/|ada|,)?\s*(?:parsel\s*(?:no)?[\s:.]*)"
    r"([0-9]{1,9})\s*$|(?:^|\s)([0-9]{1,9})\s*/\s*([0-9]{1,9})\s*$",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class SearchResult:
    """A parcel or a place that matches, and its bounds; `key` is that of a parcel."""

    kind: Literal["parcel", "neighbourhood", "district", "province"]
    title: str
    place: str
    parcels: int
    box: Box | None
    key: str | None = None


@dataclass(frozen=True)
class _Neighbourhood:
    id: int
    names: tuple[str, str, str]
    """Neighbourhood, district and province."""


async def search(store: Store, text: str) -> Sequence[SearchResult]:
    """Return the parcels and places of the mirror that a text names, the best first."""
    if key := _KEY.fullmatch(text.strip()):
        return await _parcels(store, ["/".join(key.groups())])
    async with store.connection() as conn:
        cursor = await conn.execute(load_query(_PACKAGE, "neighbourhoods"))
        known = [_Neighbourhood(number, (a, b, c)) for number, a, b, c in await cursor.fetchall()]
    number = _NUMBER.search(text)
    words = fold(text if number is None else text[: number.start()]).replace("/", " ").split()
    matching = [one for one in known if _has_all(one, words)]
    if number is not None:
        ada, parsel = (one for one in number.groups() if one is not None)
        return await _parcels(store, [f"{one.id}/{ada}/{parsel}" for one in matching])
    return await _places(store, matching, words) if words else []


def _has_all(one: _Neighbourhood, words: Sequence[str]) -> bool:
    """Return whether every word begins a word of the place's names."""
    named = fold(" ".join(one.names)).split()
    return all(any(name.startswith(word) for name in named) for word in words)


async def _parcels(store: Store, keys: Sequence[str]) -> Sequence[SearchResult]:
    async with store.connection() as conn:
        cursor = await conn.execute(
            load_query(_PACKAGE, "parcels_by_key"), {"keys": list(keys), "limit": MAX_RESULTS}
        )
        rows = await cursor.fetchall()
    return [
        SearchResult(
            "parcel",
            f"{properties.get('adaNo')}/{properties.get('parselNo')}",
            _place(properties),
            1,
            None if sides[0] is None else Box(*sides),
            key,
        )
        for key, properties, *sides in rows
    ]


def _place(properties: Mapping[str, Any]) -> str:
    names = (properties.get(name) for name in ("mahalleAd", "ilceAd", "ilAd"))
    return ", ".join(str(name) for name in names if name)


async def _places(
    store: Store, matching: Sequence[_Neighbourhood], words: Sequence[str]
) -> Sequence[SearchResult]:
    """Return provinces and districts whose own names match, then neighbourhoods."""
    async with store.connection() as conn:
        cursor = await conn.execute(
            load_query(_PACKAGE, "neighbourhood_bounds"), {"ids": [one.id for one in matching]}
        )
        bounds = {
            number: (None if sides[0] is None else Box(*sides), count)
            for number, *sides, count in await cursor.fetchall()
        }
    found: dict[tuple[str, ...], SearchResult] = {}
    for one in matching:
        box, count = bounds.get(one.id, (None, 0))
        for kind, level in (("province", 2), ("district", 1), ("neighbourhood", 0)):
            path = one.names[level:]
            is_named = level == 0 or all(
                any(name.startswith(word) for name in fold(" ".join(path)).split())
                for word in words
            )
            if is_named and path[0]:
                group = (kind, *map(fold, path), str(one.id) if level == 0 else "")
                found[group] = _joined(found.get(group), kind, path, box, count)
    ranks = {"province": 0, "district": 1, "neighbourhood": 2}
    ordered = sorted(found.values(), key=lambda one: (ranks[one.kind], fold(one.title)))
    return ordered[:MAX_RESULTS]


def _joined(
    before: SearchResult | None, kind: Any, path: Sequence[str], box: Box | None, count: int
) -> SearchResult:
    """Return a place with the parcels of one more neighbourhood."""
    if before is not None:
        count += before.parcels
        both = [one for one in (before.box, box) if one is not None]
        box = around(both) if both else None
    return SearchResult(kind, path[0], ", ".join(one for one in path[1:] if one), count, box)


def around(boxes: Sequence[Box]) -> Box:
    """Return the box around boxes."""
    west, south, east, north = zip(*boxes, strict=True)
    return Box(min(west), min(south), max(east), max(north))
