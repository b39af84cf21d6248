"""Differences between two states of a record: field by field, in lists element by element."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from hasat.feed.changes import Change
from hasat.http.routes import dumps

# The fields that identify the elements of a list, in the order in which they are tried.
_IDENTITIES = ("id", "key", "code", "alias", "number", "name", "date", "type")
_MAX_ELEMENTS = 2_000


@dataclass(frozen=True)
class Field:
    """A field before and after a change; None where it was missing.

    `element` names the element of a list that the field belongs to; it is empty where the element
    itself was added or removed. Without a name, a field is the whole record.
    """

    name: str
    before: str | None
    after: str | None
    element: str | None = None
    path: str = ""
    """Where to find the field, or the list that it belongs to, in a body."""


@dataclass(frozen=True)
class ChangeRow:
    """One change with the fields it affected; `title` is the name of the record, if it has one."""

    seq: int
    kind: str
    key: str
    changed_at: datetime
    fields: Sequence[Field]
    title: str | None = None


def describe_change(change: Change, title: str | None = None) -> ChangeRow:
    """Return a change with its differences; texts of a whole record come before numbers."""
    fields = changed_fields(change.before, change.body)
    if change.kind != "modified":
        fields = sorted(fields, key=lambda one: (one.element is not None, _is_not_text(one)))
    return ChangeRow(change.seq, change.kind, change.key, change.changed_at, fields, title)


def changed_fields(before: Any, after: Any) -> Sequence[Field]:
    """Compare two bodies, down to the smallest nested part that differs."""
    if not (_has_parts(before) and _has_parts(after)):
        return [_whole("", before, after)]
    was, now = before or {}, after or {}
    found: list[Field] = []
    for name in sorted(
        was.keys() | now.keys(), key=lambda one: _rank(one, now.get(one, was.get(one)))
    ):
        old, new = was.get(name), now.get(name)
        if old == new:
            continue
        if is_geometry(old) or is_geometry(new):
            found.append(_whole(name, old, new))
        elif _has_parts(old) and _has_parts(new) and (old or new):
            found += [_inside(name, one) for one in changed_fields(old, new)]
        elif _has_elements(old) and _has_elements(new) and (old or new):
            found += _changed_elements(name, old or [], new or [])
        else:
            found.append(_whole(name, old, new))
    return found


def is_geometry(value: Any) -> bool:
    """Return whether a value is a GeoJSON geometry, which is shown as a whole."""
    return isinstance(value, dict) and value.keys() == {"type", "coordinates"}


def brief(value: Any) -> str | None:
    """Write a value in short: a list or an object by the texts and numbers in it."""
    if value is None or isinstance(value, str):
        return value
    if is_geometry(value):
        return f"{value['type']} ({_count_points(value['coordinates']):,})"
    if isinstance(value, bool | int | float):
        return dumps(value)
    parts = value.values() if isinstance(value, dict) else value
    texts = [text for one in _by_identity(value, parts) if (text := brief(one))]
    return " · ".join(texts) or dumps(value)


def _by_identity(value: Any, parts: Any) -> Sequence[Any]:
    """Put the field that identifies an element first."""
    if not isinstance(value, dict):
        return list(parts)
    first = next((value[name] for name in _IDENTITIES if _is_scalar(value.get(name))), None)
    return [first, *(one for one in parts if one is not first)] if first else list(parts)


def _changed_elements(name: str, before: Sequence[Any], after: Sequence[Any]) -> list[Field]:
    """Compare two lists: by the identity of their elements if they have one, else by content."""
    identity = _identity([*before, *after], before, after)
    if identity is None:
        gone, new = _without(before, after), _without(after, before)
        if not gone and not new:
            # Only the order or a duplicate differs.
            return [_whole(name, before, after)]
        return [
            *(Field(name, brief(one) or "null", None, "", name) for one in gone),
            *(Field(name, None, brief(one) or "null", "", name) for one in new),
        ]
    was = {_at(one, identity): one for one in before}
    now = {_at(one, identity): one for one in after}
    found = []
    for one in [*was, *(key for key in now if key not in was)]:
        old, new_one = was.get(one), now.get(one)
        if old == new_one:
            continue
        if old is None or new_one is None:
            found.append(Field(name, brief(old), brief(new_one), "", name))
        else:
            found += [
                Field(
                    f"{name}.{part.name}", part.before, part.after, part.element or str(one), name
                )
                for part in changed_fields(old, new_one)
            ]
    return found or [_whole(name, before, after)]


def _identity(
    elements: Sequence[Any], before: Sequence[Any], after: Sequence[Any]
) -> tuple[str, ...] | None:
    """Return the path of a field that all elements have and no two of one list share."""
    if len(elements) > _MAX_ELEMENTS or not all(isinstance(one, dict) for one in elements):
        return None
    first = elements[0]
    nested = [
        (name, inner)
        for name, part in first.items()
        if isinstance(part, dict)
        for inner in _IDENTITIES
        if inner in part
    ]
    for path in [*((name,) for name in _IDENTITIES if name in first), *nested]:
        if all(_are_unique([_at(one, path) for one in side]) for side in (before, after)):
            return path
    return None


def _are_unique(values: Sequence[Any]) -> bool:
    return all(map(_is_scalar, values)) and len(set(values)) == len(values)


def _at(value: Any, path: Sequence[str]) -> Any:
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def _is_scalar(value: Any) -> bool:
    return isinstance(value, str | int | float) and value != ""


def _inside(name: str, one: Field) -> Field:
    return Field(f"{name}.{one.name}", one.before, one.after, one.element, f"{name}.{one.path}")


def _is_not_text(field: Field) -> bool:
    value = field.after or field.before or ""
    return not value or value[0] in "[{-0123456789"


def _has_parts(value: Any) -> bool:
    """Whether a value is compared by its parts; a missing value has none."""
    return value is None or isinstance(value, dict)


def _has_elements(value: Any) -> bool:
    return value is None or isinstance(value, list)


def _rank(name: str, value: Any) -> tuple[bool, bool, int, str]:
    """Sort significant fields first: attributes before geometry, short names before long ones."""
    return name != "properties", isinstance(value, list), len(name), name


def _whole(name: str, before: Any, after: Any) -> Field:
    return Field(name, _text(before), _text(after), path=name)


def _text(value: Any) -> str | None:
    """Write a value in full, except a geometry."""
    if value is None or isinstance(value, str):
        return value
    return brief(value) if is_geometry(value) else dumps(value)


def _without(some: Sequence[Any], others: Sequence[Any]) -> list[Any]:
    """Return the elements that the other list does not have."""
    return [one for one in some if one not in others]


def _count_points(coordinates: Any) -> int:
    if not isinstance(coordinates, list) or not coordinates:
        return 0
    return 1 if not isinstance(coordinates[0], list) else sum(map(_count_points, coordinates))
