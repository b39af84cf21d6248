"""HTTP routes to look up and search taxpayers, with the original service's paths and forms."""

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
    find_malformation,
)
from hasat.sources.gib.lookups import (
    NotATaxpayerError,
    look_up,
    look_up_as_of,
    malformed_entry,
    not_a_taxpayer,
    taxpayer_json,
    was_registered_by,
)
from hasat.sources.gib.search import MAX_LETTERS, MAX_PAGE_SIZE, search, try_build_search_index

MAX_BATCH = 1000

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


class BatchRequest(BaseModel):
    """The identifiers of a batch lookup."""

    model_config = ConfigDict(extra="forbid")

    identifiers: list[StorableText] = Field(
        min_length=1, max_length=MAX_BATCH, examples=[["1234567890", "10000000146"]]
    )


@cache
def lookup_router(dataset: Dataset) -> APIRouter:
    """Return the lookup and search routes of one dataset."""
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
                max_length=MAX_LETTERS,
                description="A part of the title or identifier, in any case, with or without "
                "Turkish letters.",
            ),
        ] = "",
        alias: Annotated[
            StorableText | None,
            Query(
                min_length=1,
                max_length=MAX_LETTERS,
                description="Only taxpayers with this alias, in any case, `urn:mail:` optional.",
            ),
        ] = None,
        page: Annotated[int, Query(ge=1, le=10**9)] = 1,
        page_size: Annotated[int, Query(ge=1, le=MAX_PAGE_SIZE, alias="pageSize")] = 20,
    ) -> Response:
        """Sorted by folded title, then identifier. An alias can belong to many taxpayers."""
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
            "items": [taxpayer_json(body) for body in found.bodies],
            "totalCount": found.total,
            "page": page,
            "pageSize": page_size,
        }
        response = json_response(dumps(content), {"X-Last-Sync-At": local_time(head.committed_at)})
        if not found.indexed:
            response.background = BackgroundTask(try_build_search_index, store.primary)
        return response

    @router.post(
        "/batch",
        summary=f"Look up many taxpayers of {dataset.name}",
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
    async def batch(request: BatchRequest, store: ReadStoreDep) -> Response:
        """Up to 1,000 identifiers; one that is given twice counts once.

        `notFound` has well-formed identifiers without a taxpayer. `malformed` has texts that are
        not identifiers, with the likely identifier, which is not looked up.
        """
        identifiers = list(dict.fromkeys(request.identifiers))
        async with store.connection() as conn:
            found = await look_up(conn, dataset, identifiers)
        missing = {one: find_malformation(one) for one in identifiers if one not in found.bodies}
        content = {
            "items": [
                taxpayer_json(found.bodies[one]) for one in identifiers if one in found.bodies
            ],
            "notFound": [one for one, fault in missing.items() if fault is None],
            "malformed": [malformed_entry(one, fault) for one, fault in missing.items() if fault],
            "totalRequested": len(identifiers),
            "totalFound": len(found.bodies),
        }
        return json_response(dumps(content), {"X-Last-Sync-At": local_time(found.committed_at)})

    @router.get(
        "/{identifier}",
        summary=f"Look up a taxpayer of {dataset.name}",
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
            Query(alias="asOf", description="The state observed at this time."),
        ] = None,
    ) -> Response:
        """The state of the newest committed run, never older than the feed."""
        check_identifier(identifier)
        by = None if first_creation_time is None else parse_local_time(first_creation_time)
        at = None if as_of is None else parse_local_time(as_of)
        async with store.connection() as conn:
            if at is None:
                found = await look_up(conn, dataset, [identifier])
            else:
                found = await look_up_as_of(conn, dataset, identifier, at)
        body = found.bodies.get(identifier)
        if body is None or not (by is None or was_registered_by(body, by)):
            raise not_a_taxpayer(
                dataset.name, identifier, "" if (by or at) is None else " of that time"
            )
        return conditional_json_response(
            request,
            dumps(taxpayer_json(body)),
            record_digest(canonical(body)).hex(),
            {"X-Last-Sync-At": local_time(found.committed_at)},
        )

    return router
