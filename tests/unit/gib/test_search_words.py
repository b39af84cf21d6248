import pytest

from hasat.sources.gib.search_words import distinctive_text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("CAN NEHİR GIDA ANONİM ŞİRKETİ", "can nehir"),
        ("can nehir gıda anonm şirkeit", "can nehir"),
        ("can nehir limted sirketi", "can nehir"),
        ("kale güneş tıcarret ltd. şti.", "kale gunes"),
        ("şirket ticaret", "sirket ticaret"),
        ("anadolu tic.", "anadolu"),
        ("SANKO SANAYİ", "sanko"),
    ],
)
def test_misspelt_common_words_do_not_count(text: str, expected: str) -> None:
    assert distinctive_text(text) == expected
