"""Tables as files: what CSV escapes, and what it must not touch."""

import csv
import io
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from starlette.responses import StreamingResponse

from hasat.api.exports import Table, export
from hasat.feed.columns import Column

pytestmark = pytest.mark.anyio


async def test_csv_escapes_formulas_but_no_cursor() -> None:
    table = Table("kites", (Column("title"), Column("cursor")), verbatim=frozenset({"cursor"}))

    async def pages() -> AsyncIterator[Sequence[Sequence[Any]]]:
        yield [("-2+3", "-Ab_c"), ("=1+1", "Ab")]

    response = await export(table, "csv", pages())
    assert isinstance(response, StreamingResponse)
    text = b"".join([bytes(part) async for part in response.body_iterator]).decode()
    rows = list(csv.reader(io.StringIO(text)))
    assert rows == [["title", "cursor"], ["'-2+3", "-Ab_c"], ["'=1+1", "Ab"]]
