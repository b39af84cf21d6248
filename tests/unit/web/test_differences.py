"""The differences between two states of a record, and the form in which values are shown."""

import pytest

from hasat.pages.differences import brief, changed_fields
from hasat.web.localization import Localizer
from hasat.web.values import keys_of, shape_of, tidy_times

ALIAS = {"alias": "urn:mail:pk@a.example", "type": "PK", "creationTime": "2019-05-01T10:00:00"}


def compare(before: object, after: object) -> list[tuple[str, str | None, str | None]]:
    return [(one.name, one.before, one.after) for one in changed_fields(before, after)]


def test_the_fields_of_a_new_record_are_sorted_by_significance() -> None:
    parcel = {
        "id": "1/2/3",
        "bbox": [1, 2],
        "geometry": {"type": "Polygon", "coordinates": [[[1, 2], [3, 4], [1, 2]]]},
        "properties": {"nitelik": "Arsa", "mevkii": None},
    }
    names = ["properties.nitelik", "id", "geometry", "bbox", "bbox"]
    assert [name for name, _, _ in compare(None, parcel)] == names
    assert compare(None, parcel)[0] == ("properties.nitelik", None, "Arsa")
    assert compare(None, parcel)[2] == ("geometry", None, "Polygon (3)")
    assert [name for name, _, _ in compare(parcel, None)] == names


def test_only_differing_fields_are_shown() -> None:
    before = {"title": "A", "goals": {"home": None, "away": 0}, "tags": ["a", "b"], "same": {}}
    after = {"title": "A", "goals": {"home": 1, "away": 0}, "tags": ["b", "c"], "same": {}}
    assert compare(before, after) == [
        ("goals.home", None, "1"),
        ("tags", "a", None),
        ("tags", None, "c"),
    ]
    assert compare({"more": None}, {"more": {}}) == [("more", None, "{}")]
    assert compare({"more": None}, {"more": []}) == [("more", None, "[]")]
    assert compare({"more": ["a", "b"]}, {"more": ["b", "a"]}) == [
        ("more", '["a","b"]', '["b","a"]')
    ]


def test_the_elements_of_a_list_are_compared_one_by_one() -> None:
    newer = ALIAS | {"creationTime": "2020-01-01T00:00:00"}
    other = ALIAS | {"alias": "urn:mail:gb@a.example"}
    [time, removed] = changed_fields({"aliases": [ALIAS, other]}, {"aliases": [newer]})
    assert (time.name, time.element, time.path) == (
        "aliases.creationTime",
        "urn:mail:pk@a.example",
        "aliases",
    )
    assert (time.before, time.after) == ("2019-05-01T10:00:00", "2020-01-01T00:00:00")
    assert (removed.name, removed.element, removed.after) == ("aliases", "", None)
    assert removed.before == "urn:mail:gb@a.example · PK · 2019-05-01T10:00:00"


def test_elements_are_told_apart_by_a_nested_field_or_by_their_content() -> None:
    def lineup(**numbers: int) -> dict[str, object]:
        return {"xi": [{"player": {"id": n}, "pos": p} for p, n in numbers.items()]}

    assert compare(lineup(G=1, D=2), lineup(G=1, M=2)) == [("xi.pos", "D", "M")]
    double = {"events": [{"type": "Goal", "minute": 3}, {"type": "Goal", "minute": 9}]}
    corrected = {"events": [{"type": "Goal", "minute": 3}, {"type": "Goal", "minute": 8}]}
    assert compare(double, corrected) == [
        ("events", "Goal · 9", None),
        ("events", None, "Goal · 8"),
    ]


def test_a_record_that_is_no_object_is_compared_as_a_whole() -> None:
    assert compare("Europe/Istanbul", None) == [("", "Europe/Istanbul", None)]
    assert compare(1, {"a": 1}) == [("", "1", '{"a":1}')]


@pytest.mark.parametrize(
    ("value", "shape"),
    [
        (None, "empty"),
        ("", "empty"),
        ([], "empty"),
        (False, "boolean"),
        (0, "plain"),
        ("a", "text"),
        ("https://a.example/x.png", "link"),
        ({"a": 1}, "pairs"),
        ({"a": {"b": 1}}, "fields"),
        ({"type": "Point", "coordinates": [1, 2]}, "brief"),
        ([{"a": 1}], "table"),
        ([1, "a"], "list"),
        ([[1], [2]], "brief"),
    ],
)
def test_a_value_is_shown_by_its_shape(value: object, shape: str) -> None:
    assert shape_of(value) == shape


def test_values_in_short() -> None:
    assert brief({"alias": "a", "n": 1, "none": None, "yes": True}) == "a · 1 · true"
    assert keys_of([{"b": 1}, {"a": 1, "b": 2}]) == ["b", "a"]
    assert tidy_times("2019-05-01T10:00:00") == "2019-05-01 10:00"
    assert tidy_times("PK · 2019-05-01T10:00:00.000Z") == "PK · 2019-05-01 10:00Z"
    assert tidy_times("2019-05-01T10:00:07.5+03:00") == "2019-05-01 10:00:07.5+03:00"
    assert tidy_times("T10:00:00") == "T10:00:00"


def test_fields_have_labels_or_readable_names() -> None:
    labels = {"field": {"aliases": "Aliases", "aliases.type": "Mailbox"}, "unit": {}}
    localizer = Localizer("en", labels=labels)
    assert localizer.field("firstCreation_time") == "First creation time"
    assert localizer.field("aliases.type") == "Mailbox"
    assert localizer.field("aliases.name") == "Aliases › Name"
    assert localizer.field("properties.adaNo") == "Ada no"
    assert localizer.field("a.b.cD", alone=True) == "C d"
