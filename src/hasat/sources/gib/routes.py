"""HTTP routes to look up and search taxpayers, with the original service's paths and forms."""

from datetime import datetime
from functools import cache
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Path, Query, Request
from psycopg import AsyncConnection
from pydantic import BaseModel, ConfigDict, Field
from starlette.background import BackgroundTask
from starlette.responses import Response

from hasat.clock import local_time, parse_local_time
from hasat.errors import UnavailableError, UsageError
from hasat.feed.changes import ExpiredError, head_of
from hasat.feed.dataset import Dataset
from hasat.feed.encoding import canonical, record_digest
from hasat.feed.lookups import RecordLookups
from hasat.http.receipts import ReceiptFlag, answer_with_receipt
from hasat.http.routes import (
    LookupsDep,
    ReadStoreDep,
    SettingsDep,
    StorableText,
    body_limit,
    conditional_json_response,
    declare_responses,
    dumps,
    exchange_of,
    json_response,
    lean,
)
from hasat.sources.gib.identifiers import (
    MalformedIdentifierError,
    check_identifier,
    find_malformation,
    has_valid_checksum,
    malformed_entry,
)
from hasat.sources.gib.lookups import (
    NotATaxpayerError,
    look_up,
    look_up_as_of,
    not_a_taxpayer,
    taxpayer_json,
    was_registered_by,
)
from hasat.sources.gib.search import MAX_LETTERS, MAX_PAGE_SIZE, search, try_build_search_index
from hasat.sources.gib.settings import GibSettings

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
                description="Words of the title or identifier in any order and case, with or "
                "without Turkish letters, abbreviated or not; or an alias or its domain.",
            ),
        ] = "",
        alias: Annotated[
            StorableText | None,
            Query(
                min_length=1,
                max_length=MAX_LETTERS,
                description="Only taxpayers with this alias or domain, in any case, `urn:mail:` "
                "optional.",
            ),
        ] = None,
        page: Annotated[int, Query(ge=1, le=10**9)] = 1,
        page_size: Annotated[int, Query(ge=1, le=MAX_PAGE_SIZE, alias="pageSize")] = 20,
    ) -> Response:
        """Sorted by folded title, then identifier. An alias can belong to many taxpayers.

        If nothing has all words, the most similar titles are returned, the best first, with
        `similar: true`.
        """
        async with store.connection() as conn:
            head = await head_of(conn, dataset.name)
            found = await search(
                conn,
                dataset,
                text=text,
                alias=alias,
                page=page,
                size=page_size,
                personal=settings.section(GibSettings).search_personal_numbers,
            )
        assert head.committed_at is not None
        content = {
            "items": [taxpayer_json(body) for body in found.bodies],
            "totalCount": found.total,
            "page": page,
            "pageSize": page_size,
        }
        if found.similar:
            content["similar"] = True
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
    async def batch(request: Request, body: BatchRequest, lookups: LookupsDep) -> Response:
        """Up to 1,000 identifiers; one that is given twice counts once.

        `notFound` has well-formed identifiers without a taxpayer. `malformed` has texts that are
        not identifiers, with the likely identifier, which is not looked up.
        """
        wanted = list(dict.fromkeys(body.identifiers))
        found = await lookups.of(dataset).find(wanted)
        records = found.records
        missing = {one: find_malformation(one) for one in wanted if one not in records}
        language = exchange_of(request.scope).language
        malformed = [
            {
                **malformed_entry(one, fault, language),
                "likelyValid": None if fault.likely is None else has_valid_checksum(fault.likely),
            }
            for one, fault in missing.items()
            if fault
        ]
        items = [taxpayer_json(orjson.loads(records[one].body)) for one in wanted if one in records]
        content = {
            "items": items,
            "notFound": [one for one, fault in missing.items() if fault is None],
            "malformed": malformed,
            "totalRequested": len(wanted),
            "totalFound": len(items),
        }
        headers = {"X-Last-Sync-At": local_time(found.committed_at)}
        return Response(orjson.dumps(content), headers=headers, media_type="application/json")

    async def current(request: Request, identifier: str) -> Response:
        check_identifier(identifier)
        lookups: RecordLookups = request.app.state.lookups
        record, committed_at = await lookups.of(dataset).find_one(identifier)
        if record is None:
            raise not_a_taxpayer(dataset.name, identifier)
        return conditional_json_response(
            request,
            lambda: orjson.dumps(taxpayer_json(orjson.loads(record.body))),
            record.digest,
            {"X-Last-Sync-At": local_time(committed_at)},
        )

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
    @lean("[0-9]{10,11}", current)
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
        receipt: ReceiptFlag = False,
    ) -> Response:
        """The state of the newest committed run, never older than the feed."""
        if first_creation_time is None and as_of is None and not receipt:
            return await current(request, identifier)
        check_identifier(identifier)
        by = None if first_creation_time is None else parse_local_time(first_creation_time)
        at = None if as_of is None else parse_local_time(as_of)

        async def find(conn: AsyncConnection[Any]) -> tuple[Any, datetime]:
            if at is None:
                found = await look_up(conn, dataset, [identifier])
            else:
                found = await look_up_as_of(conn, dataset, identifier, at)
            body = found.bodies.get(identifier)
            if body is None or not (by is None or was_registered_by(body, by)):
                raise not_a_taxpayer(dataset.name, identifier, then=(by or at) is not None)
            return body, found.committed_at

        if receipt:

            async def answer(conn: AsyncConnection[Any]) -> str:
                return dumps(taxpayer_json((await find(conn))[0]))

            return await answer_with_receipt(
                request, [dataset], identifier, answer, past=at is not None
            )
        # A standby that lags would answer for a moment whose changes it does not have yet.
        source = store if at is None else store.primary
        async with source.connection() as conn:
            body, committed_at = await find(conn)
        return conditional_json_response(
            request,
            dumps(taxpayer_json(body)),
            record_digest(canonical(body)).hex(),
            {"X-Last-Sync-At": local_time(committed_at)},
        )

    return router
