import pytest

from hasat.sources.gib.check.page import split_identifiers


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("123 456 78 90", ["123 456 78 90"]),
        ("1234567890 9876543210", ["1234567890", "9876543210"]),
        ("1234567890 864387", ["1234567890", "864387"]),
        ("1234567890\n864387\r\n1234567890", ["1234567890", "864387"]),
        ("1234567890;12 34X;\t10000000146,", ["1234567890", "12 34X", "10000000146"]),
        (" \n ", []),
    ],
)
def test_a_pasted_text_is_split_where_identifiers_end(text: str, expected: list[str]) -> None:
    assert split_identifiers(text) == expected
