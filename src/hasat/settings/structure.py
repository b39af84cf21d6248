"""Lists and structures given as text, and a job's entry taken apart."""

import json
from dataclasses import replace
from typing import Any

from hasat.settings.platform_sections import JobOverride
from hasat.settings.tree import SCHEDULE, Leaf, leaf_of
from hasat.settings.values import Findings, Given, did_you_mean


def spread(leaf: Leaf, given: Given, found: Findings) -> dict[str, Given]:
    """A value from text in the form its setting has; the schedule becomes one value per part."""
    if isinstance(given.value, str) and leaf.shape != "text":
        try:
            given = replace(given, value=_parsed(given.value, leaf.shape))
        except (ValueError, RecursionError):
            found.problems.append(f"{leaf.key}: the value of {given.where()} is not JSON.")
            return {}
    if leaf.key != SCHEDULE:
        return {leaf.key: given}
    return _schedule(given, found)


def _schedule(given: Given, found: Findings) -> dict[str, Given]:
    parts: dict[str, Given] = {}
    if not isinstance(given.value, dict):
        found.problems.append(f"{SCHEDULE}: {given.where()} must name jobs.")
        return parts
    for job, entry in given.value.items():
        if not isinstance(entry, dict):
            found.problems.append(f"{SCHEDULE}.{job}: {given.where()} must hold keys and values.")
            continue
        for name, part in entry.items():
            key = f"{SCHEDULE}.{job}.{name}"
            if leaf_of(key) is None:
                meant = "." if found.is_full else did_you_mean(name, JobOverride.model_fields)
                found.problems.append(f"{given.where()}: there is no {key!r}{meant}")
            elif part is not None:
                parts[key] = replace(given, value=part)
    return parts


def _parsed(text: str, shape: str) -> Any:
    """JSON; a list may also be words with commas between them."""
    if shape == "list" and not text.startswith("["):
        return [part.strip() for part in text.split(",") if part.strip()]
    return json.loads(text)


def nested(values: dict[str, Any]) -> dict[str, Any]:
    """Dotted keys as the nested mappings they mean."""
    tree: dict[str, Any] = {}
    for key, value in values.items():
        path = key.split(".")
        if key.startswith(f"{SCHEDULE}."):
            job, _, name = key.removeprefix(f"{SCHEDULE}.").rpartition(".")
            path = [*SCHEDULE.split("."), job, name]
        level = tree
        for branch in path[:-1]:
            level = level.setdefault(branch, {})
        level[path[-1]] = value
    return tree
