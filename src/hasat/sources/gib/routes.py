"""Looking taxpayers up and searching them, by the paths and in the form of the original service."""

from functools import cache
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.background import BackgroundTask
from starlette.responses import Response

from hasat.clock import local_time, parse_local_time
from hasat.errors import UnavailableError, UsageError
from hasat.feed.changes import ExpiredError, head_of
from hasat.feed.dataset import Dataset
from hasat.feed.encoding import canonical, record_digest
from hasat.http.routes import (
    ReadStoreDep,
    SettingsDep,
    StorableText,
    body_limit,
    conditional_json_response,
    declare_responses,
    dumps,
    json_response,
)
from hasat.sources.gib.identifiers import (
    MalformedIdentifierError,
    check_identifier,
    malformed,
)
from hasat.sources.gib.lookups import (
    NotATaxpayerError,
    look_up,
    look_up_as_of,
    malformed_entry,
    not_there,
    registered_by,
    taxpayer,
)
from hasat.sources.gib.search import MOST_LETTERS, MOST_ON_A_PAGE, prepare_quietly, search

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

    model_config = ConfigDict(extra="forbid")

    identifiers: list[StorableText] = Field(
        min_length=1, max_length=MOST_AT_ONCE, examples=[["1234567890", "10000000146"]]
    )


@cache
def lookup_router(dataset: Dataset) -> APIRouter:
    """The doors of one document type beside its feed."""
    router = APIRouter(prefix=f"/{dataset.name}", tags=[dataset.name])

    @router.get(
        "",
        summary=f"Search the taxpayers of {dataset.name}",
        response_class=Response,
        responses=declare_responses(
            {"items": [_EXAMPLE], "totalCount": 1, "page": 1, "pageSize": 20}, UnavailableError
        ),
    )
    async def find(
        store: ReadStoreDep,
        settings: SettingsDep,
        text: Annotated[
            StorableText,
            Query(
                alias="search",
                max_length=MOST_LETTERS,
                description="A part of the title or identifier, in any case, with or without "
                "Turkish letters.",
            ),
        ] = "",
        alias: Annotated[
            StorableText | None,
            Query(
                min_length=1,
                max_length=MOST_LETTERS,
                description="Only who has this alias, with or without `urn:mail:`, in any case.",
            ),
        ] = None,
        page: Annotated[int, Query(ge=1, le=10**9)] = 1,
        page_size: Annotated[int, Query(ge=1, le=MOST_ON_A_PAGE, alias="pageSize")] = 20,
    ) -> Response:
        """By folded title, then identifier. An alias can belong to many taxpayers."""
        async with store.connection() as conn:
            head = await head_of(conn, dataset.name)
            found = await search(
                conn,
                dataset,
                text=text,
                alias=alias,
                page=page,
                size=page_size,
                personal=settings.gib.search_personal_numbers,
            )
        assert head.committed_at is not None
        content = {
            "items": [taxpayer(body) for body in found.bodies],
            "totalCount": found.total,
            "page": page,
            "pageSize": page_size,
        }
        told = json_response(dumps(content), {"X-Last-Sync-At": local_time(head.committed_at)})
        if not found.prepared:
            told.background = BackgroundTask(prepare_quietly, store.primary)
        return told

    @router.post(
        "/batch",
        summary=f"Look many taxpayers of {dataset.name} up",
        response_class=Response,
        responses=declare_responses(
            {
                "items": [_EXAMPLE],
                "notFound": ["9999999999"],
                "malformed": [
                    {
                        "input": "864387",
                        "reason": "has 6 digits, not 10 or 11",
                        "likely": "0000864387",
                        "likelyValid": False,
                    }
                ],
                "totalRequested": 3,
                "totalFound": 1,
            },
            UnavailableError,
        ),
    )
    @body_limit(2_000_000)
    async def batch(wanted: Batch, store: ReadStoreDep) -> Response:
        """Up to 1,000 at once; an identifier that is given twice counts once.

        `notFound` are well-formed identifiers that no taxpayer has. What cannot be an identifier is
        in `malformed` with the likely one, which is not looked up.
        """
        identifiers = list(dict.fromkeys(wanted.identifiers))
        async with store.connection() as conn:
            found = await look_up(conn, dataset, identifiers)
        missing = {one: malformed(one) for one in identifiers if one not in found.bodies}
        content = {
            "items": [taxpayer(found.bodies[one]) for one in identifiers if one in found.bodies],
            "notFound": [one for one, fault in missing.items() if fault is None],
            "malformed": [malformed_entry(one, fault) for one, fault in missing.items() if fault],
            "totalRequested": len(identifiers),
            "totalFound": len(found.bodies),
        }
        return json_response(dumps(content), {"X-Last-Sync-At": local_time(found.committed_at)})

    @router.get(
        "/{identifier}",
        summary=f"Look a taxpayer of {dataset.name} up",
        response_class=Response,
        responses=declare_responses(
            _EXAMPLE,
            UsageError,
            MalformedIdentifierError,
            NotATaxpayerError,
            ExpiredError,
            UnavailableError,
        ),
    )
    async def lookup(
        request: Request,
        identifier: Annotated[str, Path(examples=["1234567890"])],
        store: ReadStoreDep,
        first_creation_time: Annotated[
            str | None,
            Query(
                alias="firstCreationTime",
                description="Only if the taxpayer was registered by this time.",
            ),
        ] = None,
        as_of: Annotated[
            str | None,
            Query(alias="asOf", description="As he was observed to be at this time."),
        ] = None,
    ) -> Response:
        """The taxpayer as of the newest committed run: never older than the feed."""
        check_identifier(identifier)
        by = None if first_creation_time is None else parse_local_time(first_creation_time)
        at = None if as_of is None else parse_local_time(as_of)
        async with store.connection() as conn:
            if at is None:
                found = await look_up(conn, dataset, [identifier])
            else:
                found = await look_up_as_of(conn, dataset, identifier, at)
        body = found.bodies.get(identifier)
        if body is None or not (by is None or registered_by(body, by)):
            raise not_there(dataset.name, identifier, "" if (by or at) is None else " of that time")
        return conditional_json_response(
            request,
            dumps(taxpayer(body)),
            record_digest(canonical(body)).hex(),
            {"X-Last-Sync-At": local_time(found.committed_at)},
        )

    return router
