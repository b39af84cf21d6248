"""A page's data as JSON: fields in camel case, like the API's; what is data stays as it is."""

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import date, datetime
from typing import Any
from uuid import UUID

from pydantic.alias_generators import to_camel


def as_json(value: Any) -> Any:
    """Plain values of JSON."""
    if is_dataclass(value) and not isinstance(value, type):
        return {to_camel(one.name): as_json(getattr(value, one.name)) for one in fields(value)}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return {to_camel(name): as_json(one) for name, one in value._asdict().items()}
    if isinstance(value, Mapping):
        return {str(key): as_json(one) for key, one in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [as_json(one) for one in value]
    if isinstance(value, datetime | date):
        return value.isoformat()
    return str(value) if isinstance(value, UUID) else value
