import pytest

from hasat.sources.gib.identifiers import (
    find_malformation,
    find_padding,
    has_valid_checksum,
    kind_of,
)


@pytest.mark.parametrize(
    "number",
    [
        "4540536920",
        "4840847211",
        "2970610282",
        "0010030481",
        "3680485737",
        "1234567890",
        "10000000146",
        "17291716060",
    ],
)
def test_valid_checksums(number: str) -> None:
    assert has_valid_checksum(number)


@pytest.mark.parametrize(
    "number",
    [
        "1111111111",
        "0000000000",
        "4540536921",
        "11111111111",
        "12345678901",
        "00000000000",
        "123",
        "123456789x",
        "١٢٣٤٥٦٧٨٩٠",
    ],
)
def test_invalid_checksums(number: str) -> None:
    assert not has_valid_checksum(number)


def test_the_kind_follows_from_the_length() -> None:
    assert [kind_of(n) for n in ("1" * 10, "1" * 11, "1" * 12, "x" * 10)] == [
        "VKN",
        "TCKN",
        None,
        None,
    ]


@pytest.mark.parametrize(
    ("text", "likely"),
    [
        ("864387", "0000864387"),
        (" 0000864387", "0000864387"),
        ("0000864387\n", "0000864387"),
        ("\u00a00000864387\u200b", "0000864387"),
        ("'0000864387", "0000864387"),
        ("864387.0", "0000864387"),
        ("864387,00", "0000864387"),
        ("864.387", "0000864387"),
        ("1.234.567.890", "1234567890"),
        ("1,234,567,890", "1234567890"),
        ("123 456 78 90", "1234567890"),
        ("123-456-7890", "1234567890"),
        ("VKN: 1234567890", "1234567890"),
        ("1234567890.", "1234567890"),
        ("TR10000000146", "10000000146"),
        ("1.234567890E+9", "1234567890"),
        ("8.64387E5", "0000864387"),
        ("1.23457E+09", None),
        ("001234567890", "1234567890"),
        ("0010000000146", "10000000146"),
        ("１２３４５６７８９０", "1234567890"),
        ("١٢٣٤٥٦٧٨٩٠", "1234567890"),
        ("123456789012", None),
        ("123456789O", "1234567890"),
        ("l2345 67890", "1234567890"),
        ("864o87", "0000864087"),
        ("1.234.567.890,00", "1234567890"),
        ("864.387,0", "0000864387"),
        ("1,234,567,890.00", "1234567890"),
        ("l" * 12 + "12345", None),
        ("1234S67890", None),
        ("000000", None),
        ("", None),
        ("  ", None),
        ("abc", None),
        ("null", None),
        ("\x00", None),
        ("-1234567890", "1234567890"),
        ("9" * 5000, None),
        ("01.02.2026", None),
        ("1/2/2026", None),
        ("2026-02-01", None),
        ("01.02.2026 10:00:00", None),
        ("2026-02-01T10:00:00", None),
        ("45.02.2026", "0045022026"),
        ("0532 111 22 33", "5321112233"),
        ("No: 01234567890", "1234567890"),
    ],
)
def test_the_likely_identifier_is_suggested(text: str, likely: str | None) -> None:
    found = find_malformation(text)
    assert found is not None
    assert found.reason
    assert found.likely == likely
    assert likely is None or find_malformation(likely) is None


@pytest.mark.parametrize("text", ["0000864387", "0000000000", "10000000146", "1111111111"])
def test_well_formed_identifiers(text: str) -> None:
    assert find_malformation(text) is None


@pytest.mark.parametrize(
    ("text", "likely"),
    [
        ("01234567890", "1234567890"),
        ("00010030481", "0010030481"),
        ("01234567891", None),
        ("00000000000", None),
        ("10000000146", None),
        ("1234567890", None),
        ("11111111111", None),
    ],
)
def test_a_vkn_that_was_filled_to_eleven_digits(text: str, likely: str | None) -> None:
    found = find_padding(text)
    assert (found.likely if found else None) == likely
