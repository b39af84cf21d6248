"""Places by the names people write."""

import pytest

from hasat.errors import NotFoundError, UsageError
from hasat.sources.tkgm.places import choose
from hasat.sources.tkgm.registry.wire import Place

LISTED = [
    Place(1, "Kızılay", None),
    Place(2, "KIZILIRMAK", None),
    Place(3, "İncirli", None),
    Place(4, "Remzi Oğuz Arık", None),
    Place(5, "Yeni", None),
    Place(6, "YENİ", None),
    Place(7, "Işıklar Mah.", None),
]


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("Kızılay", 1),
        ("KIZILAY", 1),
        ("kizilay", 1),
        ("Kizilay Mahallesi", 1),
        ("kızılırmak", 2),
        ("INCIRLI", 3),
        ("incirli mah.", 3),
        ("remzi oguz arik", 4),
        ("RemziOğuz Arık", 4),
        ("ISIKLAR", 7),
        ("4", 4),
        ("Yeni", 5),
        ("YENİ", 6),
    ],
)
def test_spelling_makes_no_difference_unless_it_must(written: str, meant: int) -> None:
    assert choose(LISTED, written).id == meant


def test_near_names_are_offered() -> None:
    with pytest.raises(NotFoundError) as caught:
        choose(LISTED, "Kızlay", within=["Ankara", "Çankaya"])
    assert "neighbourhood 'Kızlay' in Ankara/Çankaya" in caught.value.message
    assert "Kızılay" in str(caught.value.remedy)
    assert "hasat tkgm places 'Ankara/Çankaya'" in str(caught.value.remedy)
    with pytest.raises(NotFoundError, match="lists all 7"):
        choose(LISTED, "Xyz")
    with pytest.raises(NotFoundError):
        choose(LISTED, "99")


def test_several_are_told_apart_by_id() -> None:
    with pytest.raises(UsageError) as caught:
        choose(LISTED, "yeni", within=["Ankara", "Çankaya"])
    assert "Yeni (5), YENİ (6)" in caught.value.message
    assert "Ankara/Çankaya/5" in str(caught.value.remedy)
