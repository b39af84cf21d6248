"""Settings: the values in force, where each came from, and what it means."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hasat.errors import NotAllowedError
from hasat.messages import msg
from hasat.pages import Page, PageRequest
from hasat.settings.reference import as_text, shown_values
from hasat.settings.tree import leaf_of


@dataclass(frozen=True)
class SettingRow:
    """A setting; secrets are masked."""

    key: str
    value: Any
    text: str
    origin: str
    """flag, environment, file or default."""
    where: str | None
    """The variable, or the file and its line."""
    summary: str | None
    variable: str | None


@dataclass(frozen=True)
class SettingsSection:
    """The settings of a section."""

    name: str
    settings: Sequence[SettingRow]


@dataclass(frozen=True)
class SettingsPage:
    """The data of the page."""

    query: str
    changed: bool
    """Whether only settings with a value of their own are listed."""
    files: Sequence[str]
    remarks: Sequence[str]
    sections: Sequence[SettingsSection]


async def settings(request: PageRequest) -> SettingsPage:
    """Load the settings of this server, those of one text or those that differ from the default."""
    if not request.may_operate:
        raise NotAllowedError(
            msg("The settings require the scope operate."),
            remedy=msg("Use an API key with the scope operate."),
        )
    current = request.context.settings
    query, changed = request.text("q"), request.text("changed") == "1"
    rows = [
        row
        for key, value in shown_values(current).items()
        for row in [_row(request, key, value)]
        if not changed or row.origin != "default"
        if query.casefold() in f"{row.key} {row.summary or ''} {row.variable or ''}".casefold()
    ]
    names = dict.fromkeys(row.key.rpartition(".")[0].split(".")[0] for row in rows)
    return SettingsPage(
        query,
        changed,
        list(current.files),
        list(current.remarks),
        [
            SettingsSection(
                name, [row for row in rows if row.key.rpartition(".")[0].split(".")[0] == name]
            )
            for name in names
        ],
    )


def _row(request: PageRequest, key: str, value: Any) -> SettingRow:
    origin = request.context.settings.origin(key)
    leaf = leaf_of(key)
    return SettingRow(
        key,
        value,
        as_text(value),
        origin.kind,
        origin.where,
        leaf.field.description if leaf is not None else None,
        leaf.names[0] if leaf is not None else None,
    )


PAGES = (Page("/settings", "settings", settings, "settings"),)
