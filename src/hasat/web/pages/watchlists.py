"""Watch lists: what each watches, where its changes go, and its keys."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

from pydantic import ValidationError

from hasat.deliver.outbox import list_deliveries
from hasat.deliver.watchlists import lists
from hasat.deliver.watchlists.lists import (
    LOCAL,
    MAX_LISTS,
    WatchList,
    WatchListSpec,
    get_watchlist,
    list_watchlists,
    watched_keys,
)
from hasat.errors import NotFoundError, UsageError
from hasat.feed.dataset import Dataset
from hasat.http.routes import check_dataset_access
from hasat.messages import msg
from hasat.pages import Action, Page, PageRequest
from hasat.store.audit import describe_action

_MAX_KEYS = 200
_MAX_DELIVERIES = 15


@dataclass(frozen=True)
class DatasetChoice:
    """A dataset that can be watched, and the names that a filter of it may have."""

    name: str
    columns: Sequence[str]


@dataclass(frozen=True)
class ListRow:
    """A watch list in the table."""

    name: str
    owner: str
    owner_name: str | None
    dataset: str
    filter: Mapping[str, Any] | None
    key_count: int
    mode: str
    channels: Sequence[str]
    state: str
    pending: int
    address: str


@dataclass(frozen=True)
class WatchLists:
    """The data of the page."""

    lists: Sequence[ListRow]
    datasets: Sequence[DatasetChoice]
    email: bool
    """Whether this installation sends e-mail."""
    telegram: bool


@dataclass(frozen=True)
class WatchListPage:
    """One list with the first of its keys and its newest deliveries."""

    row: ListRow
    watchlist: Mapping[str, Any]
    places: Sequence[tuple[str, str, str]]
    """The type, place and endpoint of each channel."""
    found: str
    """The text that the shown keys begin with."""
    keys: Sequence[str]
    more: int
    deliveries: Sequence[Mapping[str, Any]]


async def watchlists(request: PageRequest) -> WatchLists:
    """Load the lists of the caller, or of all for an operator."""
    settings = request.context.settings
    async with request.store.connection() as conn:
        rows = await conn.execute("SELECT dataset FROM feed.head WHERE committed_at IS NOT NULL")
        filled = {name for (name,) in await rows.fetchall()}
    datasets = [
        DatasetChoice(one.name, [column.name for column in one.columns])
        for source in request.context.sources
        for one in source.datasets
        if request.may_read(one.name)
    ]
    # Those that have records first: lists of the others would wait for nothing.
    datasets.sort(key=lambda one: one.name not in filled)
    found = await list_watchlists(request.store, request.owned)
    return WatchLists(
        [_row(one) for one in found],
        datasets,
        settings.smtp.url is not None,
        settings.telegram.token is not None,
    )


async def watchlist(request: PageRequest) -> WatchListPage:
    """Load one list."""
    found = await _find(request)
    prefix = request.text("key")
    keys = [] if found.filter is not None else await watched_keys(request.store, found)
    matching = [key for key in keys if key.startswith(prefix)]
    deliveries = [
        one.public()
        for channel in found.channels
        for one in await list_deliveries(
            request.store, endpoint=channel.endpoint, limit=_MAX_DELIVERIES
        )
    ]
    deliveries.sort(key=lambda one: -one["id"])
    return WatchListPage(
        _row(found),
        found.public(),
        [(one.type, one.place, one.endpoint) for one in found.channels],
        prefix,
        matching[:_MAX_KEYS],
        max(0, len(matching) - _MAX_KEYS),
        deliveries[:_MAX_DELIVERIES],
    )


async def create(request: PageRequest) -> str:
    """Create a list from the form."""
    dataset = _dataset(request, request.text("dataset"))
    keys, conditions = request.lines("keys"), request.lines("filter")
    if bool(keys) == bool(conditions):
        raise UsageError(msg("Enter either keys or a filter."))
    spec = _spec(
        {
            "dataset": dataset.name,
            "keys": keys or None,
            "filter": dict(map(_condition, conditions)) if conditions else None,
            "mode": request.text("mode") or "immediate",
            "channels": _channels(request),
        }
    )
    owner = request.caller.bucket if request.caller is not None else LOCAL
    made = await lists.create_watchlist(
        request.store,
        request.context.settings,
        dataset,
        request.text("name"),
        owner,
        spec,
        limit=None if request.may_operate else MAX_LISTS,
    )
    return _address(made)


async def add_keys(request: PageRequest) -> str:
    """Add the keys of the form, one in each line."""
    found = await _find(request)
    if not (keys := request.lines("keys")):
        raise UsageError(msg("Enter at least one key."))
    await lists.add_keys(request.store, _dataset(request, found.dataset), found, keys)
    return _address(found)


async def remove_key(request: PageRequest) -> str:
    """Remove one key."""
    found = await _find(request)
    await lists.remove_keys(request.store, found, [request.text("key")])
    return _address(found)


async def delete(request: PageRequest) -> str:
    """Delete a list."""
    await lists.delete_watchlist(request.store, await _find(request))
    return "/watchlists"


async def _find(request: PageRequest) -> WatchList:
    owner = request.owned if request.owned is not None else request.text("owner") or None
    found = await get_watchlist(request.store, request.text("name"), owner)
    describe_action(dataset=found.dataset)
    return found


def _dataset(request: PageRequest, name: str) -> Dataset:
    check_dataset_access(request.caller, name)
    for source in request.context.sources:
        for dataset in source.datasets:
            if dataset.name == name:
                return dataset
    raise NotFoundError(msg("There is no dataset {dataset!r}.", dataset=name))


def _channels(request: PageRequest) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    if url := request.text("webhook"):
        found.append({"type": "webhook", "url": url, "secret": request.text("secret") or None})
    if to := [one for one in request.text("email").replace(",", " ").split() if one]:
        found.append({"type": "email", "to": to})
    found += [
        {"type": kind, "url": url} for kind in ("slack", "teams") if (url := request.text(kind))
    ]
    if chat := request.text("telegram"):
        found.append({"type": "telegram", "chat": chat})
    return found


def _condition(line: str) -> tuple[str, str]:
    column, equals, value = line.partition("=")
    if not equals:
        raise UsageError(
            msg("{line!r} is not a condition.", line=line[:60]),
            remedy=msg("Write one condition in each line, as column=value."),
        )
    return column.strip(), value.strip()


def _spec(values: Mapping[str, Any]) -> WatchListSpec:
    try:
        return WatchListSpec.model_validate(values)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise UsageError(msg("{place}: {reason}.", place=place, reason=first["msg"])) from error


def _row(one: WatchList) -> ListRow:
    state = "paused" if one.paused else "gap" if one.gap else "active"
    return ListRow(
        one.name,
        one.owner,
        one.owner_name,
        one.dataset,
        one.filter,
        one.key_count,
        one.mode,
        [channel.type for channel in one.channels],
        state,
        one.collected + one.waiting,
        _address(one),
    )


def _address(one: WatchList) -> str:
    return f"/watchlists/{quote(one.name, safe='')}?{urlencode({'owner': one.owner})}"


PAGES = (
    Page("/watchlists", "watchlists", watchlists, "watchlists", datasets=()),
    Page("/watchlists/{name}", "watchlist", watchlist, "watchlists", datasets=()),
)
ACTIONS = (
    Action("/watchlists", "watchlist.create", create, "read"),
    Action("/watchlists/{name}/keys", "watchlist.keys", add_keys, "read"),
    Action("/watchlists/{name}/keys/remove", "watchlist.keys", remove_key, "read"),
    Action("/watchlists/{name}/delete", "watchlist.delete", delete, "read"),
)
