"""Range and If-None-Match headers of a request."""

import pytest
from starlette.datastructures import Headers

from hasat.api.routes.archives import RangeError, parse_range
from hasat.http.routes import matches_etag

TAG = '"abc"'


@pytest.mark.parametrize(
    ("header", "part"),
    [
        ("bytes=0-0", (0, 1)),
        ("bytes=10-19", (10, 20)),
        ("bytes=90-", (90, 100)),
        ("bytes=90-1000", (90, 100)),
        ("bytes=-5", (95, 100)),
        ("bytes=-1000", (0, 100)),
        ("Bytes=0-1", None),
        ("bytes=5-4", None),
        ("bytes=-", None),
        ("bytes=0-1,5-6", None),
        ("bytes=٣-٤", None),
        ("lines=1-2", None),
        ("", None),
    ],
)
def test_a_single_range_selects_a_part_and_anything_else_the_whole_file(
    header: str, part: tuple[int, int] | None
) -> None:
    assert parse_range({"range": header}, TAG, 100) == part


@pytest.mark.parametrize("header", ["bytes=100-", "bytes=100-200", "bytes=-0"])
def test_a_range_beyond_the_end_is_an_error(header: str) -> None:
    with pytest.raises(RangeError, match="100 bytes"):
        parse_range({"range": header}, TAG, 100)


def test_if_range_of_another_version_returns_the_whole_file() -> None:
    assert parse_range({"range": "bytes=1-2", "if-range": TAG}, TAG, 100) == (1, 3)
    for other in ('"xyz"', f"W/{TAG}", "Tue, 15 Nov 1994 12:45:26 GMT"):
        assert parse_range({"range": "bytes=1-2", "if-range": other}, TAG, 100) is None


@pytest.mark.parametrize(
    ("header", "matches"),
    [(TAG, True), (f'"x", W/{TAG}', True), ("*", True), ('"x"', False), ("abc", False)],
)
def test_if_none_match_is_compared_weakly(header: str, matches: bool) -> None:
    assert matches_etag(Headers({"if-none-match": header}), TAG) is matches
    assert matches_etag(Headers({}), TAG) is False
