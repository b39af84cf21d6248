"""Find provinces, districts and neighbourhoods by name in the cached lists of the registry."""

import json
import re
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from psycopg.types.json import Jsonb

from hasat.errors import NotFoundError, UsageError
from hasat.messages import join, msg, template
from hasat.settings import Settings
from hasat.sources.tkgm.geometry import Outline
from hasat.sources.tkgm.registry.client import DirectClient, open_direct
from hasat.sources.tkgm.registry.wire import (
    Place,
    check_storable,
    parse_object,
    parse_places,
)
from hasat.sources.tkgm.settings import TkgmSettings
from hasat.store import Store
from hasat.text import fold

JOB = "tkgm_places"
_LISTS = ("ilListe", "ilceListe", "mahalleListe")
_KINDS = ("province", "district", "neighbourhood")
_UNKNOWN = (
    template("There is no province {part!r}."),
    template("There is no district {part!r} in {parent}."),
    template("There is no neighbourhood {part!r} in {parent}."),
)
_SEVERAL = (
    template("{part!r} can be several provinces: {ids}."),
    template("{part!r} can be several districts in {parent}: {ids}."),
    template("{part!r} can be several neighbourhoods in {parent}: {ids}."),
)
# Words that people add to a name and the lists omit, or the other way round.
_SUFFIX = re.compile(r" (mahallesi|mah\.?|mh\.?|ilcesi|ili|koyu)$")
_MAX_SUGGESTIONS = 5


@dataclass(frozen=True)
class PlaceMatch:
    """A place and the names of the places that contain it, ending with its own."""

    path: tuple[str, ...]
    place: Place

    @property
    def kind(self) -> str:
        return _KINDS[len(self.path) - 1]

    @property
    def boundary(self) -> Outline:
        if self.place.boundary is None:
            raise NotFoundError(
                msg("The registry has no boundary for {path}.", path="/".join(self.path)),
                remedy=msg("Draw the area and name the file."),
            )
        return self.place.boundary


class Places:
    """The administrative lists; a list older than tkgm.lists_age is fetched again.

    With `only_stored` nothing is fetched: a list that is not stored is an error.
    """

    def __init__(
        self, store: Store, settings: Settings, *, fresh: bool = False, only_stored: bool = False
    ) -> None:
        self._store = store
        self._settings = settings
        self._age = settings.section(TkgmSettings).lists_age
        self._fresh = fresh
        self._only_stored = only_stored

    async def find(self, text: str) -> PlaceMatch:
        """Return the place of a path such as Ankara/Çankaya/Kızılay; ids may replace names."""
        parts = [part.strip() for part in text.strip("/ ").split("/")]
        if not all(parts) or len(parts) > len(_LISTS):
            raise UsageError(
                msg("{text!r} is not the name of a place.", text=text),
                remedy=msg(
                    "Write province/district/neighbourhood, such as Ankara/Çankaya/Kızılay."
                ),
            )
        path: tuple[str, ...] = ()
        place: Place | None = None
        for level, part in enumerate(parts):
            listed = await self._list(level, 0 if place is None else place.id)
            place = choose_place(listed, part, within=path)
            path = (*path, place.name)
        assert place is not None
        return PlaceMatch(path, place)

    async def within(self, text: str | None) -> list[PlaceMatch]:
        """Return the provinces, the places in a province or district, or a neighbourhood itself."""
        found = None if text is None else await self.find(text)
        if found is not None and len(found.path) == len(_LISTS):
            return [found]
        path = () if found is None else found.path
        listed = await self._list(len(path), 0 if found is None else found.place.id)
        return [PlaceMatch((*path, place.name), place) for place in listed]

    async def _list(self, level: int, parent: int) -> list[Place]:
        body = None if self._fresh else await self._load(level, parent)
        if body is None:
            body = await self._fetch(level, parent)
        return parse_places(json.dumps(body).encode())

    async def _load(self, level: int, parent: int) -> Any:
        async with self._store.connection() as conn:
            cursor = await conn.execute(
                "SELECT body FROM tkgm.place_list WHERE level = %s AND parent = %s"
                " AND told_at > clock_timestamp() - %s::interval",
                (_LISTS[level], parent, self._age),
            )
            row = await cursor.fetchone()
        return None if row is None else row[0]

    async def _fetch(self, level: int, parent: int) -> Any:
        if self._only_stored:
            raise NotFoundError(
                msg("The names of the places there are not stored yet."),
                remedy=msg("`hasat tkgm places` loads them, or a caller with the scope operate."),
            )
        path = f"/idariYapi/{_LISTS[level]}{f'/{parent}' if level else ''}"
        async with self._registry() as registry:
            fetched = await registry.get(path, JOB)
        # Only a list that can be read is stored.
        parse_places(fetched.body)
        body = check_storable(parse_object(fetched.body))
        async with self._store.connection() as conn:
            await conn.execute(
                "INSERT INTO tkgm.place_list (level, parent, body, told_at)"
                " VALUES (%s, %s, %s, clock_timestamp())"
                " ON CONFLICT (level, parent)"
                " DO UPDATE SET body = EXCLUDED.body, told_at = EXCLUDED.told_at",
                (_LISTS[level], parent, Jsonb(body)),
            )
        return body

    def _registry(self) -> AbstractAsyncContextManager[DirectClient]:
        return open_direct(self._store, self._settings)


def choose_place(listed: Sequence[Place], part: str, *, within: Sequence[str] = ()) -> Place:
    """Return the place of a list with an id, an exact name, or else a normalised name.

    Normalised names ignore case, Turkish letters, spaces and words such as Mahallesi.
    """
    if part.isdecimal():
        alike = [place for place in listed if place.id == int(part)]
    else:
        alike = [place for place in listed if place.name == part]
        alike = alike or [place for place in listed if _normalise(place.name) == _normalise(part)]
    if len(alike) == 1:
        return alike[0]
    kind, parent = len(within), "/".join(within)
    if alike:
        ids = ", ".join(f"{place.name} ({place.id})" for place in alike)
        raise UsageError(
            msg(_SEVERAL[kind], part=part, parent=parent, ids=ids),
            remedy=msg(
                "Write the id instead of the name: {path}.",
                path="/".join([*within, str(alike[0].id)]),
            ),
        )
    names = {_normalise(place.name): place.name for place in listed}
    near = [names[name] for name in get_close_matches(_normalise(part), names, _MAX_SUGGESTIONS)]
    of_parent = f" {parent!r}" if parent else ""
    command = msg(
        "`hasat tkgm places{of_parent}` lists all {count:,}.",
        of_parent=of_parent,
        count=len(listed),
    )
    error = msg(_UNKNOWN[kind], part=part, parent=parent)
    if not near:
        raise NotFoundError(error, remedy=command)
    suggested = join([near[0], *(msg("or {name}", name=name) for name in near[1:])])
    remedy = join([msg("Did you mean {names}?", names=suggested), command])
    raise NotFoundError(error, remedy=remedy)


def _normalise(name: str) -> str:
    """Return a name without the differences in how people write it."""
    return re.sub(r"[^a-z0-9]", "", _SUFFIX.sub("", fold(name)))
