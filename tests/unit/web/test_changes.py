"""The changed fields of a record."""

from hasat.web.pages.changes import changed_fields


def compare(before: object, after: object) -> list[tuple[str, str | None, str | None]]:
    return [(one.name, one.before, one.after) for one in changed_fields(before, after)]


def test_the_fields_of_a_new_record_are_sorted_by_significance() -> None:
    parcel = {
        "id": "1/2/3",
        "bbox": [1, 2],
        "geometry": {"type": "Polygon", "coordinates": []},
        "properties": {"nitelik": "Arsa", "mevkii": None},
    }
    names = ["properties.nitelik", "id", "geometry.type", "geometry.coordinates", "bbox"]
    assert [name for name, _, _ in compare(None, parcel)] == names
    assert compare(None, parcel)[0] == ("properties.nitelik", None, "Arsa")
    assert [name for name, _, _ in compare(parcel, None)] == names


def test_only_differing_fields_are_shown() -> None:
    before = {"title": "A", "goals": {"home": None, "away": 0}, "tags": ["a", "b"], "same": {}}
    after = {"title": "A", "goals": {"home": 1, "away": 0}, "tags": ["b", "c"], "same": {}}
    assert compare(before, after) == [("goals.home", None, "1"), ("tags", "a", "c")]
    assert compare({"more": None}, {"more": {}}) == [("more", None, "{}")]
