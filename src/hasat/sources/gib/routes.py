"""Looking taxpayers up, by the paths and in the form of the original service."""

from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Response
from psycopg import sql
from pydantic import BaseModel, Field

from hasat.clock import local_time, parse_local_time
from hasat.doors import TheStore, answers, body_limit
from hasat.errors import NotFoundError, UnavailableError, UsageError
from hasat.feed.dataset import Dataset
from hasat.feed.read import head_of
from hasat.sources.gib.identifiers import has_valid_checksum, kind_of
from hasat.sources.gib.times import moment
from hasat.store import Store

MOST_AT_ONCE = 1000

_EXAMPLE = {
    "identifier": "1234567890",
    "title": "ÖRNEK FİRMA A.Ş.",
    "accountType": "OZELENTEGRASYON",
    "type": "OZEL",
    "firstCreationTime": "2024-06-15T00:00:00",
    "aliases": [
        {
            "name": "urn:mail:defaultpk@ornek.com.tr",
            "type": "PK",
            "creationTime": "2024-06-15T00:00:00",
        }
    ],
    "identifierKind": "VKN",
    "identifierValid": True,
}


class Batch(BaseModel):
    """Which taxpayers to look up."""

    identifiers: list[Annotated[str, Field(max_length=40)]] = Field(
        min_length=1, max_length=MOST_AT_ONCE, examples=[["1234567890", "10000000146"]]
    )


def lookup_router(dataset: Dataset) -> APIRouter:
    """The doors of one document type beside its feed."""
    router = APIRouter(prefix=f"/{dataset.name}", tags=[dataset.name])

    @router.post(
        "/batch",
        summary=f"Look many taxpayers of {dataset.name} up",
        responses=answers(
            {"items": [_EXAMPLE], "notFound": [], "totalRequested": 1, "totalFound": 1},
            UnavailableError,
        ),
    )
    @body_limit(2_000_000)
    async def batch(wanted: Batch, response: Response, store: TheStore) -> dict[str, Any]:
        """Up to 1,000 at once; an identifier that is given twice counts once."""
        identifiers = list(dict.fromkeys(wanted.identifiers))
        found = await _find(store, dataset, identifiers, response)
        return {
            "items": [found[one] for one in identifiers if one in found],
            "notFound": [one for one in identifiers if one not in found],
            "totalRequested": len(identifiers),
            "totalFound": len(found),
        }

    @router.get(
        "/{identifier}",
        summary=f"Look a taxpayer of {dataset.name} up",
        responses=answers(_EXAMPLE, UsageError, NotFoundError, UnavailableError),
    )
    async def lookup(
        identifier: Annotated[str, Path(examples=["1234567890"])],
        response: Response,
        store: TheStore,
        first_creation_time: Annotated[
            str | None,
            Query(
                alias="firstCreationTime",
                description="Only if the taxpayer was registered by this time.",
            ),
        ] = None,
    ) -> dict[str, Any]:
        """The taxpayer as of the newest committed run: never older than the feed."""
        if kind_of(identifier) is None:
            raise UsageError(
                "An identifier has 10 digits (VKN) or 11 (TCKN).",
                remedy="Correct it and ask again.",
            )
        by = None if first_creation_time is None else parse_local_time(first_creation_time)
        found = await _find(store, dataset, [identifier], response)
        taxpayer = found.get(identifier)
        if taxpayer is None or not _registered_by(taxpayer["firstCreationTime"], by):
            raise NotFoundError(
                f"{identifier} is not an active taxpayer of {dataset.name}"
                f"{'' if by is None else ' of that time'}."
            )
        return taxpayer

    return router


async def _find(
    store: Store, dataset: Dataset, identifiers: list[str], response: Response
) -> dict[str, dict[str, Any]]:
    async with store.connection() as conn:
        # First, because a dataset that is being filled for the first time is locked.
        head = await head_of(conn, dataset.name)
        cursor = await conn.execute(
            sql.SQL("SELECT key, body FROM {} WHERE key = ANY (%s)").format(dataset.table),
            [identifiers],
        )
        rows = await cursor.fetchall()
    assert head.committed_at is not None
    response.headers["X-Last-Sync-At"] = local_time(head.committed_at)
    return {key: _taxpayer(body) for key, body in rows}


def _taxpayer(body: dict[str, Any]) -> dict[str, Any]:
    """A taxpayer in the original's form: there an alias is called by its name."""
    aliases = [
        {"name": one["alias"], "type": one["type"], "creationTime": one["creationTime"]}
        for one in body["aliases"]
    ]
    identifier = body["identifier"]
    return {
        **{name: body[name] for name in ("identifier", "title", "accountType", "type")},
        "firstCreationTime": body["firstCreationTime"],
        "aliases": aliases,
        "identifierKind": kind_of(identifier),
        "identifierValid": has_valid_checksum(identifier),
    }


def _registered_by(first: str | None, by: datetime | None) -> bool:
    if by is None:
        return True
    registered = moment(first)
    return registered is not None and registered <= by.replace(tzinfo=None)
