"""What a change touched, as the pages show it."""

from hasat.web.pages.changes import fields_of


def told(before: object, after: object) -> list[tuple[str, str | None, str | None]]:
    return [(one.name, one.before, one.after) for one in fields_of(before, after)]


def test_a_new_record_is_shown_by_its_parts_the_telling_ones_first() -> None:
    parcel = {
        "id": "1/2/3",
        "bbox": [1, 2],
        "geometry": {"type": "Polygon", "coordinates": []},
        "properties": {"nitelik": "Arsa", "mevkii": None},
    }
    names = ["properties.nitelik", "id", "geometry.type", "geometry.coordinates", "bbox"]
    assert [name for name, _, _ in told(None, parcel)] == names
    assert told(None, parcel)[0] == ("properties.nitelik", None, "Arsa")
    assert [name for name, _, _ in told(parcel, None)] == names


def test_of_a_change_only_what_differs_is_shown() -> None:
    before = {"title": "A", "goals": {"home": None, "away": 0}, "tags": ["a", "b"], "same": {}}
    after = {"title": "A", "goals": {"home": 1, "away": 0}, "tags": ["b", "c"], "same": {}}
    assert told(before, after) == [("goals.home", None, "1"), ("tags", "a", "c")]
    assert told({"more": None}, {"more": {}}) == [("more", None, "{}")]
