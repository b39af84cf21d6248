"""Places are found by the names people write."""

import pytest

from hasat.errors import NotFoundError, UsageError
from hasat.sources.tkgm.places import choose_place
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
    ("written", "expected"),
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
def test_spelling_matters_only_where_names_differ_by_it(written: str, expected: int) -> None:
    assert choose_place(LISTED, written).id == expected


def test_similar_names_are_suggested() -> None:
    with pytest.raises(NotFoundError) as caught:
        choose_place(LISTED, "Kızlay", within=["Ankara", "Çankaya"])
    assert "neighbourhood 'Kızlay' in Ankara/Çankaya" in caught.value.message
    assert "Kızılay" in str(caught.value.remedy)
    assert "hasat tkgm places 'Ankara/Çankaya'" in str(caught.value.remedy)
    with pytest.raises(NotFoundError, match="lists all 7"):
        choose_place(LISTED, "Xyz")
    with pytest.raises(NotFoundError):
        choose_place(LISTED, "99")


def test_ambiguous_names_list_their_ids() -> None:
    with pytest.raises(UsageError) as caught:
        choose_place(LISTED, "yeni", within=["Ankara", "Çankaya"])
    assert "Yeni (5), YENİ (6)" in caught.value.message
    assert "Ankara/Çankaya/5" in str(caught.value.remedy)
