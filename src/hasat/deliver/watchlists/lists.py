"""Stored watch lists: created, read, changed and deleted by their owner or an operator."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Any, Literal

from psycopg import AsyncConnection
from psycopg.errors import UniqueViolation
from psycopg.rows import class_row
from psycopg.types.json import Jsonb
from pydantic import BaseModel, ConfigDict, Field

from hasat.deliver.watchlists.channels import (
    MAX_CHANNELS,
    Channel,
    NewChannel,
    channels_of,
    stored_settings,
)
from hasat.errors import ConflictError, NotFoundError, UsageError
from hasat.feed.columns import CHANGED_AT, FIRST_SEEN_AT
from hasat.feed.dataset import Dataset
from hasat.feed.records import Selection, parse_selection
from hasat.messages import msg, template
from hasat.settings import Settings
from hasat.store import Store
from hasat.store.audit import record_action
from hasat.store.queries import load_query

PACKAGE = "hasat.deliver.watchlists"
LOCAL = "local"
"""The owner of lists that were made on this machine, by a command or without a key."""
MAX_KEYS = 100_000
MAX_KEY_LENGTH = 200
MAX_LISTS = 100
"""Lists that one API key may have."""
_MAX_CONDITIONS = 20
_NAME = re.compile(r"\w(?:[\w .-]{0,62}[\w.-])?")
_CHANNEL_REMOVED = template("The channel was removed from the watch list.")
_LIST_DELETED = template("The watch list was deleted.")

Mode = Literal["immediate", "hourly", "daily"]


Key = Annotated[str, Field(min_length=1, max_length=MAX_KEY_LENGTH)]
Name = Annotated[str, Field(min_length=1, max_length=64)]


class WatchListSpec(BaseModel):
    """A watch list: its keys or filter, and its channels."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True, allow_inf_nan=False)

    dataset: str = Field(examples=["toys"], max_length=50)
    keys: list[Key] | None = Field(
        default=None, max_length=MAX_KEYS, description="The keys of the records to watch."
    )
    filter: dict[str, str | int | float | bool] | None = Field(
        default=None,
        description="Instead of keys: values of columns, with the filters of the dataset's list.",
    )
    channels: list[NewChannel] = Field(default=[], max_length=MAX_CHANNELS)
    mode: Mode = Field(
        default="immediate",
        description="When changes are sent: at once, or in a digest every hour or morning.",
    )


@dataclass(frozen=True)
class WatchList:
    """A stored list, with the state of its position and deliveries."""

    id: int
    name: str
    owner: str
    owner_name: str | None
    dataset: str
    filter: Mapping[str, Any] | None
    mode: Mode
    digest_at: datetime | None
    gap: Mapping[str, Any] | None
    """When and why changes were lost, if that ever happened."""
    created_at: datetime
    updated_at: datetime
    lag: int
    """Changes of the dataset that were not looked at yet."""
    paused: bool
    """Whether its owner may no longer read the dataset."""
    key_count: int
    collected: int
    """Changes that wait for the next digest."""
    waiting: int
    """Deliveries that wait."""
    channels: Sequence[Channel] = field(default=())

    def public(self) -> dict[str, Any]:
        """Return the fields that the API and `--json` show."""
        return {
            "name": self.name,
            "dataset": self.dataset,
            "owner": self.owner,
            "filter": self.filter,
            "keyCount": None if self.filter is not None else self.key_count,
            "mode": self.mode,
            "channels": [one.public() for one in self.channels],
            "state": "paused" if self.paused else "active",
            "lag": self.lag,
            "collected": self.collected,
            "waiting": self.waiting,
            "nextDigestAt": self.digest_at,
            "gap": self.gap,
            "createdAt": self.created_at,
            "updatedAt": self.updated_at,
        }


def parse_filter(dataset: Dataset, conditions: Mapping[str, Any]) -> Selection:
    """Return the conditions of a filter; raise UsageError for what the dataset does not have."""
    texts = {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in conditions.items()
    }
    selection = parse_selection(dataset, texts)
    for one in selection.filters:
        if one.column in (FIRST_SEEN_AT, CHANGED_AT):
            raise UsageError(
                msg("A watch list cannot be filtered by {name!r}.", name=one.column.name),
                remedy=msg("Filter by the key or by a column of the record."),
            )
    return selection


async def create_watchlist(
    store: Store,
    settings: Settings,
    dataset: Dataset,
    name: str,
    owner: str,
    spec: WatchListSpec,
    *,
    limit: int | None = None,
) -> WatchList:
    """Create a list, which watches from now on; with `limit`, only if the owner has fewer."""
    _check_name(name)
    _check(dataset, spec)
    channels = [stored_settings(one, {}, settings) for one in spec.channels]
    async with store.connection() as conn:
        if limit is not None:
            await _check_number(conn, owner, limit)
        await _ensure_head(conn, dataset)
        try:
            cursor = await conn.execute(
                load_query(PACKAGE, "create"),
                {
                    "name": name,
                    "owner": owner,
                    "dataset": dataset.name,
                    "filter": None if spec.filter is None else Jsonb(spec.filter),
                    "mode": spec.mode,
                    "zone": settings.jobs.timezone,
                },
            )
        except UniqueViolation as error:
            raise ConflictError(
                msg("There is already a watch list named {name!r}.", name=name),
                remedy=msg("Choose another name, or replace the list."),
            ) from error
        row = await cursor.fetchone()
        assert row is not None
        number, head = row
        await _add_keys(conn, number, spec.keys or (), head)
        for declared, values in zip(spec.channels, channels, strict=True):
            await _add_channel(conn, number, declared.type, values)
        await record_action(conn, name, owner=owner, dataset=dataset.name)
    return await get_watchlist(store, name, owner)


async def replace_watchlist(
    store: Store, settings: Settings, dataset: Dataset, found: WatchList, spec: WatchListSpec
) -> WatchList:
    """Change a list; what is collected or under way is still sent to the channels that stay.

    New keys count from now on. A list of another dataset starts over.
    """
    _check(dataset, spec)
    known = {one.id: one for one in found.channels}
    channels = [(one, stored_settings(one, known, settings)) for one in spec.channels]
    used = [number for one, _ in channels if (number := _same(one, known)) is not None]
    if len(used) > len(set(used)):
        raise UsageError(msg("The same channel is given twice."))
    async with store.connection() as conn:
        head = await _lock(conn, found)
        await conn.execute(
            load_query(PACKAGE, "change"),
            {
                "id": found.id,
                "dataset": dataset.name,
                "filter": None if spec.filter is None else Jsonb(spec.filter),
                "mode": spec.mode,
                "zone": settings.jobs.timezone,
            },
        )
        if dataset.name != found.dataset:
            await _ensure_head(conn, dataset)
            head = await _start_anew(conn, found.id)
        keys = list(dict.fromkeys(spec.keys or ()))
        await conn.execute(
            "DELETE FROM deliver.watchlist_key WHERE watchlist = %s AND key <> ALL (%s::text[])",
            [found.id, keys],
        )
        await _add_keys(conn, found.id, keys, head)
        await _end_channels(conn, [number for number in known if number not in used])
        for declared, values in channels:
            number = _same(declared, known)
            if number is None:
                await _add_channel(conn, found.id, declared.type, values)
            else:
                await conn.execute(
                    "UPDATE deliver.watchlist_channel SET settings = %s WHERE id = %s",
                    [Jsonb(values), number],
                )
        await record_action(conn, found.name, owner=found.owner, dataset=dataset.name)
    return await get_watchlist(store, found.name, found.owner)


async def delete_watchlist(store: Store, found: WatchList) -> None:
    """Delete a list; what was not delivered yet becomes a dead letter."""
    async with store.connection() as conn:
        await _lock(conn, found)
        await _end_channels(conn, [one.id for one in found.channels], _LIST_DELETED)
        await conn.execute("DELETE FROM deliver.watchlist WHERE id = %s", [found.id])
        await record_action(conn, found.name, owner=found.owner)


async def add_keys(store: Store, dataset: Dataset, found: WatchList, keys: Sequence[str]) -> int:
    """Add keys to a list; return how many are new. They count from now on."""
    _check_keys(dataset, keys)
    _check_has_keys(found)
    async with store.connection() as conn:
        head = await _lock(conn, found)
        added = await _add_keys(conn, found.id, keys, head)
        await record_action(conn, found.name, owner=found.owner, added=added)
    return added


async def remove_keys(store: Store, found: WatchList, keys: Sequence[str]) -> int:
    """Remove keys from a list; return how many it had."""
    _check_has_keys(found)
    async with store.connection() as conn:
        await _lock(conn, found)
        done = await conn.execute(
            "DELETE FROM deliver.watchlist_key WHERE watchlist = %s AND key = ANY (%s::text[])",
            [found.id, list(keys)],
        )
        await record_action(conn, found.name, owner=found.owner, removed=done.rowcount)
        return done.rowcount


async def list_watchlists(store: Store, owner: str | None = None) -> list[WatchList]:
    """Return the lists of an owner, or of all."""
    return await _read(store, owner, None)


async def get_watchlist(store: Store, name: str, owner: str | None) -> WatchList:
    """Return the list with that name of an owner; without one, of any owner if only one has it."""
    found = await _read(store, owner, name)
    if not found:
        raise NotFoundError(
            msg("There is no watch list named {name!r}.", name=name),
            remedy=msg("`hasat watchlists list` and GET /api/v1/watchlists show them."),
        )
    if len(found) > 1:
        raise ConflictError(
            msg("{count} watch lists have the name {name!r}.", count=len(found), name=name),
            remedy=msg("Give the owner: {owners}.", owners=", ".join(one.owner for one in found)),
        )
    return found[0]


async def watched_keys(store: Store, found: WatchList) -> list[str]:
    """Return the keys of a list."""
    async with store.connection() as conn:
        cursor = await conn.execute(load_query(PACKAGE, "list_keys"), {"watchlist": found.id})
        return [key for (key,) in await cursor.fetchall()]


async def _read(store: Store, owner: str | None, name: str | None) -> list[WatchList]:
    async with store.connection() as conn:
        async with conn.cursor(row_factory=class_row(WatchList)) as cursor:
            await cursor.execute(load_query(PACKAGE, "lists"), {"owner": owner, "name": name})
            found = await cursor.fetchall()
        async with conn.cursor(row_factory=class_row(Channel)) as rows:
            await rows.execute(
                load_query(PACKAGE, "channels"), {"watchlists": [one.id for one in found]}
            )
            channels = await rows.fetchall()
    return [_with_channels(one, channels) for one in found]


def _with_channels(found: WatchList, channels: Sequence[Channel]) -> WatchList:
    return WatchList(**{**found.__dict__, "channels": channels_of(channels, found.id)})


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise UsageError(
            msg("{name!r} cannot be the name of a watch list.", name=name[:64]),
            remedy=msg("Use 1 to 64 letters, digits, spaces and . _ -"),
        )


def _check(dataset: Dataset, spec: WatchListSpec) -> None:
    if (spec.keys is None) == (spec.filter is None):
        raise UsageError(msg("A watch list needs either `keys` or a `filter`."))
    if spec.filter is not None:
        if not 1 <= len(spec.filter) <= _MAX_CONDITIONS:
            raise UsageError(msg("A filter needs 1 to {most} conditions.", most=_MAX_CONDITIONS))
        parse_filter(dataset, spec.filter)
    _check_keys(dataset, spec.keys or ())


def _check_keys(dataset: Dataset, keys: Sequence[str]) -> None:
    for key in keys:
        if not 1 <= len(key) <= MAX_KEY_LENGTH:
            raise UsageError(msg("{key!r} cannot be a key.", key=key[:60]))
        if "\0" in key or any("\ud800" <= letter <= "\udfff" for letter in key):
            raise UsageError(msg("A key contains characters that no key has."))
    dataset.check_keys(keys)


def _check_has_keys(found: WatchList) -> None:
    if found.filter is not None:
        raise ConflictError(
            msg("The watch list {name!r} has a filter instead of keys.", name=found.name),
            remedy=msg("Replace the list to change what it watches."),
        )


async def _check_number(conn: AsyncConnection[Any], owner: str, limit: int) -> None:
    # Two requests at once must not both find the last free place.
    await conn.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [owner])
    cursor = await conn.execute(
        "SELECT count(*) >= %s FROM deliver.watchlist WHERE owner = %s", [limit, owner]
    )
    if await cursor.fetchone() == (True,):
        raise ConflictError(
            msg("This key has {limit} watch lists already, the most it may have.", limit=limit),
            remedy=msg("Delete one, or add the keys to an existing list."),
        )


def _same(declared: Any, known: Mapping[int, Channel]) -> int | None:
    """Return the channel that a declared one is: by its id, else one that leads to the same."""
    if declared.id is not None:
        number: int = declared.id
        return number
    target = declared.model_dump(include={"url", "to", "chat"}, exclude_none=True)
    return next(
        (
            one.id
            for one in known.values()
            if one.type == declared.type and one.settings | target == one.settings
        ),
        None,
    )


async def _lock(conn: AsyncConnection[Any], found: WatchList) -> int:
    """Lock a list against collecting; return the head of its dataset."""
    cursor = await conn.execute(
        "SELECT FROM deliver.watchlist WHERE id = %s FOR UPDATE", [found.id]
    )
    if await cursor.fetchone() is None:
        raise NotFoundError(msg("The watch list was deleted in the meantime."))
    return await _head(conn, found.dataset)


async def _ensure_head(conn: AsyncConnection[Any], dataset: Dataset) -> None:
    """Give a dataset whose first run is still to come a head, so that it can be watched."""
    await conn.execute(
        "INSERT INTO feed.head (dataset, source) VALUES (%s, %s) ON CONFLICT DO NOTHING",
        [dataset.name, dataset.source],
    )


async def _head(conn: AsyncConnection[Any], dataset: str) -> int:
    cursor = await conn.execute("SELECT seq FROM feed.head WHERE dataset = %s", [dataset])
    row = await cursor.fetchone()
    return 0 if row is None else int(row[0])


async def _start_anew(conn: AsyncConnection[Any], number: int) -> int:
    cursor = await conn.execute(load_query(PACKAGE, "start_anew"), {"id": number})
    row = await cursor.fetchone()
    assert row is not None
    return int(row[0])


async def _add_keys(conn: AsyncConnection[Any], number: int, keys: Sequence[str], head: int) -> int:
    values = {"watchlist": number, "since": head, "keys": list(keys)}
    added = (await conn.execute(load_query(PACKAGE, "add_keys"), values)).rowcount
    cursor = await conn.execute(
        "SELECT count(*) FROM deliver.watchlist_key WHERE watchlist = %s", [number]
    )
    row = await cursor.fetchone()
    if row is not None and row[0] > MAX_KEYS:
        raise UsageError(
            msg("A watch list has at most {most:,} keys.", most=MAX_KEYS),
            remedy=msg("Use several lists, or a filter."),
        )
    return added


async def _add_channel(
    conn: AsyncConnection[Any], number: int, kind: str, values: Mapping[str, Any]
) -> None:
    await conn.execute(
        load_query(PACKAGE, "add_channel"),
        {"watchlist": number, "type": kind, "settings": Jsonb(values)},
    )


async def _end_channels(
    conn: AsyncConnection[Any], numbers: Sequence[int], reason: str = _CHANNEL_REMOVED
) -> None:
    values = {"channels": list(numbers), "error": reason}
    await conn.execute(load_query(PACKAGE, "give_up"), values)
    await conn.execute("DELETE FROM deliver.watchlist_channel WHERE id = ANY (%s)", [list(numbers)])
