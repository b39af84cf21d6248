import pytest

from hasat.sources.gib.identifiers import has_valid_checksum, kind_of


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
def test_numbers_whose_check_digits_fit(number: str) -> None:
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
def test_numbers_whose_check_digits_do_not(number: str) -> None:
    assert not has_valid_checksum(number)


def test_the_length_tells_the_kind() -> None:
    assert [kind_of(n) for n in ("1" * 10, "1" * 11, "1" * 12, "x" * 10)] == [
        "VKN",
        "TCKN",
        None,
        None,
    ]
