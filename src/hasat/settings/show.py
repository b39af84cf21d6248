"""Settings as people and machines may see them: no secret among them."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from hasat.settings.keys import SCHEDULE, leaves
from hasat.settings.kinds import format_duration
from hasat.settings.section import Section
from hasat.settings.tree import Settings
from hasat.text import HIDDEN, mask_address


def shown_values(settings: Settings) -> dict[str, Any]:
    """Every setting by its dotted key, in a form that JSON has; the schedule part by part."""
    values: dict[str, Any] = {}
    for key in leaves():
        value: Any = settings
        for name in key.split("."):
            value = getattr(value, name)
        if key == SCHEDULE:
            for job, override in value.items():
                for name, part in plain(override).items():
                    if f"{key}.{job}.{name}" in settings.origins:
                        values[f"{key}.{job}.{name}"] = part
        else:
            values[key] = plain(value)
    return values


def plain(value: Any) -> Any:
    """A value in a form that JSON has and that can be set again; secrets are hidden."""
    if isinstance(value, SecretStr):
        return HIDDEN
    if isinstance(value, Section):
        return {name: plain(getattr(value, name)) for name in type(value).model_fields}
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    if isinstance(value, timedelta):
        return format_duration(value)
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, str) and "://" in value:
        return mask_address(value)
    return str(value) if isinstance(value, Path) else value


def as_text(value: Any) -> str:
    """A plain value in one line."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return ", ".join(value) or "-"
    if isinstance(value, dict | list):
        import json

        return json.dumps(value, ensure_ascii=False) if value else "-"
    return f"{value:g}" if isinstance(value, float) else str(value)
