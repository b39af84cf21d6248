"""Parameters, pages and responses shared by the routes of this source."""

from collections.abc import Callable, Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Query
from psycopg import AsyncConnection
from starlette.responses import Response

from hasat.clock import local_time
from hasat.errors import NotFoundError, UnavailableError, UsageError
from hasat.feed.changes import head_of
from hasat.http.routes import StorableText, declare_responses, dumps, json_response
from hasat.sources.football.api.queries import ListQuery, read_page
from hasat.store import Store
from hasat.text import MAX_EXACT_INTEGER

_MAX_PAGE_SIZE = 500

Id = Annotated[int | None, Query(ge=0, le=MAX_EXACT_INTEGER)]
PathId = Annotated[int, Path(ge=0, le=MAX_EXACT_INTEGER)]
Text = Annotated[StorableText | None, Query(min_length=1, max_length=100)]


class Paging:
    """The page and page size of a list."""

    def __init__(
        self,
        page: Annotated[int, Query(ge=1, le=10**9)] = 1,
        page_size: Annotated[int, Query(ge=1, le=_MAX_PAGE_SIZE, alias="pageSize")] = 100,
    ) -> None:
        self.page = page
        self.size = page_size


PageParams = Annotated[Paging, Depends()]


def new_router() -> APIRouter:
    return APIRouter(prefix="/football", tags=["football"])


def list_responses(item: Any) -> dict[int | str, dict[str, Any]]:
    """Declare the responses of a list."""
    page = {"items": [item], "totalCount": 1, "page": 1, "pageSize": 100, "totalPages": 1}
    return declare_responses(page, UsageError, UnavailableError)


def item_responses(item: Any) -> dict[int | str, dict[str, Any]]:
    """Declare the responses of a single item."""
    return declare_responses(item, UsageError, NotFoundError, UnavailableError)


Shape = Callable[[Mapping[str, Any]], Any]


def as_published(row: Mapping[str, Any]) -> Any:
    return row["body"]


async def page_response(
    store: Store,
    dataset: str,
    query: ListQuery,
    filters: Mapping[str, Any],
    paging: Paging,
    shape: Shape = as_published,
) -> Response:
    """Return one page of a list."""
    async with store.snapshot() as conn:
        found = await read_page(conn, query, filters, page=paging.page, size=paging.size)
        content = {
            "items": [shape(row) for row in found.rows],
            "totalCount": found.total,
            "page": paging.page,
            "pageSize": paging.size,
            "totalPages": -(-found.total // paging.size),
        }
        return await respond(conn, dataset, content)


async def respond(conn: AsyncConnection[Any], dataset: str, content: Any) -> Response:
    """Return a JSON response with the time of the dataset's last commit."""
    head = await head_of(conn, dataset)
    assert head.committed_at is not None
    return json_response(dumps(content), {"X-Last-Sync-At": local_time(head.committed_at)})
