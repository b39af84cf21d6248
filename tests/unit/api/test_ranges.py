"""Which part of a file is meant by the headers of a request."""

import pytest

from hasat.api.routes.archives import RangeError, matches_etag, parse_range

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
def test_one_range_is_a_part_and_all_else_the_whole(
    header: str, part: tuple[int, int] | None
) -> None:
    assert parse_range({"range": header}, TAG, 100) == part


@pytest.mark.parametrize("header", ["bytes=100-", "bytes=100-200", "bytes=-0"])
def test_beyond_the_end_there_is_nothing(header: str) -> None:
    with pytest.raises(RangeError, match="100 bytes"):
        parse_range({"range": header}, TAG, 100)


def test_a_range_of_another_file_is_the_whole_of_this_one() -> None:
    assert parse_range({"range": "bytes=1-2", "if-range": TAG}, TAG, 100) == (1, 3)
    for other in ('"xyz"', f"W/{TAG}", "Tue, 15 Nov 1994 12:45:26 GMT"):
        assert parse_range({"range": "bytes=1-2", "if-range": other}, TAG, 100) is None


@pytest.mark.parametrize(
    ("header", "known"),
    [(TAG, True), (f'"x", W/{TAG}', True), ("*", True), ('"x"', False), ("abc", False)],
)
def test_who_has_the_file_says_so(header: str, known: bool) -> None:
    assert matches_etag({"if-none-match": header}, TAG) is known
    assert matches_etag({}, TAG) is False
