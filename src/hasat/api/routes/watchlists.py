"""/api/v1/watchlists: stored watch lists of the caller; operators see and change those of all."""

from typing import Annotated, Any
from urllib.parse import quote

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from hasat.deliver.watchlists import lists
from hasat.deliver.watchlists.lists import (
    MAX_KEYS,
    MAX_LISTS,
    Key,
    Name,
    WatchList,
    WatchListSpec,
    get_watchlist,
    list_watchlists,
    watched_keys,
)
from hasat.errors import ConflictError, NotFoundError, UsageError
from hasat.feed.dataset import Dataset
from hasat.fetch.addresses import PrivateAddressError
from hasat.http.routes import (
    CallerDep,
    DatasetNotAllowedError,
    SettingsDep,
    StorableText,
    StoreDep,
    audited,
    body_limit,
    check_dataset_access,
    declare_problems,
    declare_responses,
    reads,
)
from hasat.messages import msg

router = APIRouter(tags=["watch lists"])

_MAX_BODY = 8_000_000
_LIST = {
    "name": "customers",
    "dataset": "toys",
    "owner": "key:k3v7qzt2ma",
    "filter": None,
    "keyCount": 500,
    "mode": "immediate",
    "channels": [
        {"id": 7, "type": "webhook", "url": "https://erp.example/hasat", "signed": True},
        {"id": 8, "type": "email", "to": ["muhasebe@example.com"]},
    ],
    "state": "active",
    "lag": 0,
    "collected": 0,
    "waiting": 0,
    "nextDigestAt": None,
    "gap": None,
    "createdAt": "2026-11-02T06:04:11.000214Z",
    "updatedAt": "2026-11-02T06:04:11.000214Z",
}
_WITH_KEYS = {**_LIST, "keys": ["1234567890"]}
_ERRORS = (NotFoundError, ConflictError, UsageError, PrivateAddressError, DatasetNotAllowedError)

ListName = Annotated[StorableText, Path(max_length=64, description="The name of the list.")]
RecordKey = Annotated[
    StorableText, Path(min_length=1, max_length=lists.MAX_KEY_LENGTH, description="The key.")
]
Owner = Annotated[
    StorableText | None,
    Query(max_length=200, description="Whose list, for operators: as `owner` of a list says."),
]


class NewWatchList(WatchListSpec):
    """A list to create."""

    name: Name = Field(examples=["customers"])


class ChangedWatchList(WatchListSpec):
    """The new content of a list; a channel with its `id` keeps what is left out or masked."""

    name: Name | None = Field(default=None, description="Its name, which does not change.")


class MoreKeys(BaseModel):
    """Keys to add to a list."""

    model_config = ConfigDict(extra="forbid")

    keys: list[Key] = Field(min_length=1, max_length=MAX_KEYS, examples=[["1234567890"]])


async def _found(
    name: ListName, store: StoreDep, caller: CallerDep, owner: Owner = None
) -> WatchList:
    """Return the named list of the caller; an operator's own wins over those of others."""
    if caller.owned is not None or owner is not None:
        return await get_watchlist(store, name, caller.owned or owner)
    try:
        return await get_watchlist(store, name, caller.bucket)
    except NotFoundError:
        return await get_watchlist(store, name, None)


FoundList = Annotated[WatchList, Depends(_found)]


def _dataset(request: Request, caller: CallerDep, name: str) -> Dataset:
    check_dataset_access(caller, name)
    datasets: dict[str, Dataset] = {
        one.name: one for source in request.app.state.sources for one in source.datasets
    }
    if name not in datasets:
        raise UsageError(
            msg("There is no dataset {dataset!r}.", dataset=name),
            remedy=msg("Known datasets: {datasets}.", datasets=", ".join(sorted(datasets))),
        )
    return datasets[name]


@router.get(
    "/watchlists",
    summary="Watch lists",
    responses=declare_responses({"watchlists": [_LIST]}, UsageError),
)
@reads()
async def watchlists(store: StoreDep, caller: CallerDep, owner: Owner = None) -> dict[str, Any]:
    """By name; a key without the scope operate sees its own."""
    found = await list_watchlists(store, caller.owned or owner)
    return {"watchlists": [one.public() for one in found]}


@router.post(
    "/watchlists",
    status_code=201,
    summary="Create a watch list",
    dependencies=[audited("watchlist.create", "read")],
    responses={
        201: {
            "description": "Created; `Location` is the list.",
            "content": {"application/json": {"example": _WITH_KEYS}},
            "headers": {"Location": {"schema": {"type": "string"}}},
        },
        **declare_problems(*_ERRORS),
    },
)
@body_limit(_MAX_BODY)
@reads()
async def create(
    new: NewWatchList,
    request: Request,
    response: Response,
    store: StoreDep,
    settings: SettingsDep,
    caller: CallerDep,
) -> dict[str, Any]:
    """It watches from now on: only changes that are committed later go to its channels."""
    dataset = _dataset(request, caller, new.dataset)
    limit = MAX_LISTS if caller.owned is not None else None
    made = await lists.create_watchlist(
        store, settings, dataset, new.name, caller.bucket, new, limit=limit
    )
    response.headers["Location"] = f"/api/v1/watchlists/{quote(made.name)}"
    return await _document(store, made)


@router.get(
    "/watchlists/{name}",
    summary="One watch list",
    responses=declare_responses(_WITH_KEYS, NotFoundError, ConflictError),
)
@reads()
async def watchlist(store: StoreDep, found: FoundList) -> dict[str, Any]:
    """With its keys; addresses are masked and secrets left out."""
    return await _document(store, found)


@router.put(
    "/watchlists/{name}",
    summary="Replace a watch list",
    dependencies=[audited("watchlist.replace", "read")],
    responses=declare_responses(_WITH_KEYS, *_ERRORS),
)
@body_limit(_MAX_BODY)
@reads()
async def replace(
    changed: ChangedWatchList,
    request: Request,
    store: StoreDep,
    settings: SettingsDep,
    caller: CallerDep,
    found: FoundList,
) -> dict[str, Any]:
    """Replace a list: open deliveries go to the channels that stay, new keys count from now."""
    if changed.name not in (None, found.name):
        raise UsageError(
            msg("A watch list cannot be renamed."),
            remedy=msg("Create one with the new name, then delete this one."),
        )
    dataset = _dataset(request, caller, changed.dataset)
    return await _document(
        store, await lists.replace_watchlist(store, settings, dataset, found, changed)
    )


@router.delete(
    "/watchlists/{name}",
    status_code=204,
    summary="Delete a watch list",
    dependencies=[audited("watchlist.delete", "read")],
    responses={204: {"description": "Deleted."}, **declare_problems(NotFoundError, ConflictError)},
)
@reads()
async def delete(store: StoreDep, found: FoundList) -> Response:
    """Delete a list; its open deliveries become dead letters."""
    await lists.delete_watchlist(store, found)
    return Response(status_code=204)


@router.post(
    "/watchlists/{name}/keys",
    summary="Add keys to a watch list",
    dependencies=[audited("watchlist.keys", "read")],
    responses=declare_responses({"added": 2, "keyCount": 502}, *_ERRORS),
)
@body_limit(_MAX_BODY)
@reads()
async def add_keys(
    more: MoreKeys, request: Request, store: StoreDep, caller: CallerDep, found: FoundList
) -> dict[str, int]:
    """Those that it has already count as they did."""
    dataset = _dataset(request, caller, found.dataset)
    added = await lists.add_keys(store, dataset, found, more.keys)
    return {"added": added, "keyCount": await _key_count(store, found)}


@router.put(
    "/watchlists/{name}/keys/{key:path}",
    summary="Add a key to a watch list",
    dependencies=[audited("watchlist.keys", "read")],
    responses=declare_responses({"added": 1, "keyCount": 501}, *_ERRORS),
)
@reads()
async def add_key(
    key: RecordKey, request: Request, store: StoreDep, caller: CallerDep, found: FoundList
) -> dict[str, int]:
    """Its changes count from now on; a key that the list has already stays as it is."""
    dataset = _dataset(request, caller, found.dataset)
    added = await lists.add_keys(store, dataset, found, [key])
    return {"added": added, "keyCount": await _key_count(store, found)}


@router.delete(
    "/watchlists/{name}/keys/{key:path}",
    status_code=204,
    summary="Remove a key from a watch list",
    dependencies=[audited("watchlist.keys", "read")],
    responses={204: {"description": "Removed."}, **declare_problems(NotFoundError, ConflictError)},
)
@reads()
async def remove_key(key: RecordKey, store: StoreDep, found: FoundList) -> Response:
    """Changes of it that were collected already are still sent."""
    if not await lists.remove_keys(store, found, [key]):
        raise NotFoundError(msg("The watch list {name!r} has no such key.", name=found.name))
    return Response(status_code=204)


async def _document(store: StoreDep, found: WatchList) -> dict[str, Any]:
    if found.filter is not None:
        return found.public()
    return {**found.public(), "keys": await watched_keys(store, found)}


async def _key_count(store: StoreDep, found: WatchList) -> int:
    return (await get_watchlist(store, found.name, found.owner)).key_count
