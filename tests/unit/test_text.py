import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hasat.text import csv_text, fold, lower, mask_personal_numbers, upper


def test_turkish_case_is_right_where_python_alone_is_not() -> None:
    assert lower("DİYARBAKIR IĞDIR") == "diyarbakır ığdır"
    assert upper("diyarbakır ığdır") == "DİYARBAKIR IĞDIR"


@given(st.text(alphabet="abcçdefgğhıijklmnoöprsştuüvyz ", max_size=40))
def test_turkish_case_goes_there_and_back(text: str) -> None:
    assert lower(upper(text)) == text


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("TCKN 10000000146.", "TCKN 100******46."),
        ("/api/v1/einvoice/10000000146?x=1", "/api/v1/einvoice/100******46?x=1"),
        ("VKN 1234567890 is not personal", "VKN 1234567890 is not personal"),
        ("123456789012 has twelve digits", "123456789012 has twelve digits"),
        ("10000000146,17291716060", "100******46,172******60"),
    ],
)
def test_only_eleven_digit_numbers_are_masked(text: str, masked: str) -> None:
    assert mask_personal_numbers(text) == masked


@given(st.text(alphabet="0129٣ a", max_size=60))
def test_numbers_are_masked_as_one_expression_would(text: str) -> None:
    expected = re.sub(r"(?<!\d)(\d{3})\d{6}(\d{2})(?!\d)", r"\1******\2", text)
    assert mask_personal_numbers(text) == expected


@pytest.mark.parametrize("typed", ["IŞIK İNŞAAT", "ışık inşaat", "Isik Insaat", " IŞIK\tİNŞAAT "])
def test_folding_forgets_case_marks_and_extra_spaces(typed: str) -> None:
    assert fold(typed) == "isik insaat"


@given(st.text(alphabet="abcçdefgğhıijklmnoöprsştuüvyzâîû ", max_size=40))
def test_folding_is_the_same_for_any_case(text: str) -> None:
    assert fold(text) == fold(upper(text)) == fold(text.upper()) == fold(fold(text))


@pytest.mark.parametrize(
    "text",
    [
        "=1+1",
        "+90",
        "-5",
        "@SUM(A1)",
        "\t=1",
        " =1",
        "\r=1",
        "\ttab",
        "\nline",
        "\uff1d1",
        "\uff201",
    ],
)
def test_a_text_that_a_spreadsheet_would_calculate_gets_an_apostrophe(text: str) -> None:
    assert csv_text(text) == f"'{text}"


@pytest.mark.parametrize("text", ["", "Arsa", "1,295.00", "a=b", "'quoted", "a - b"])
def test_other_texts_are_cells_as_they_are(text: str) -> None:
    assert csv_text(text) == text
