"""workers.json: the endpoints that the operator declares, and the key they ask for."""

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

from pydantic import SecretStr

from hasat.errors import SettingsError
from hasat.fetch.outcomes import Request
from hasat.messages import msg
from hasat.settings.kinds import check_api_url

_FIELDS = {"url", "daily", "min_interval_ms", "by_number"}
_BLANKS = {"mahalleId", "adaNo", "parselNo"}
_MOST_POINTS = 1_000_000
_MOST_INTERVAL = 60_000


@dataclass(frozen=True)
class Endpoint:
    """Where questions can be sent: so many points a day, so far apart.

    `by_number` is the path by which it answers questions for a parcel's number, if it does.
    """

    url: str
    daily: int
    min_interval: float
    by_number: str | None = None

    def path_for(self, question: Request) -> str | None:
        """The path that asks the question here; None if this endpoint cannot answer it."""
        if question.by_number is None:
            return question.path
        if self.by_number is None:
            return None
        numbers = {name: quote(value, safe="") for name, value in question.by_number.items()}
        return self.by_number.format_map(numbers)


@dataclass(frozen=True)
class Workers:
    """What workers.json says."""

    api_key: SecretStr
    endpoints: tuple[Endpoint, ...] = field(default=())


def read_workers(path: Path, *, daily: int = 2000, min_interval_ms: int = 200) -> Workers:
    """The endpoints in the file, with defaults for what an entry leaves out.

    Raises one SettingsError that names every problem, and never the key.
    """
    try:
        given = json.loads(path.read_bytes())
    except OSError as error:
        raise SettingsError(
            msg("{path} cannot be read: {strerror}.", path=path, strerror=error.strerror or error),
            remedy=msg("Set tkgm.workers_file to your workers.json."),
        ) from error
    except (ValueError, RecursionError) as error:
        where = f"line {error.lineno}" if isinstance(error, json.JSONDecodeError) else "its text"
        raise SettingsError(
            msg("{path} is not JSON: {where} cannot be understood.", path=path, where=where),
            remedy=_HELP,
        ) from error
    reader = _Reader(daily, min_interval_ms / 1000)
    workers = reader.read(given)
    if workers is None:
        raise SettingsError("\n".join(f"{path}: {p}" for p in reader.problems), remedy=_HELP)
    return workers


_HELP = msg('It looks like {{"api_key": "...", "workers": ["https://one.example", ...]}}.')


class _Reader:
    def __init__(self, daily: int, min_interval: float) -> None:
        self._daily = daily
        self._min_interval = min_interval
        self.problems: list[str] = []

    def read(self, given: Any) -> Workers | None:
        if not isinstance(given, dict):
            self.problems.append("there is no object with api_key and workers.")
            return None
        self._no_others(given, {"api_key", "workers"}, "it")
        key = given.get("api_key")
        # Bytes outside ASCII cannot stand in a header.
        if (
            not isinstance(key, str)
            or not key.strip()
            or not key.isascii()
            or not key.isprintable()
        ):
            self.problems.append("api_key must be text in plain letters, digits and signs.")
        entries = given.get("workers")
        if not isinstance(entries, list) or not entries:
            self.problems.append("workers must be a list of at least one address.")
            entries = []
        endpoints = [self._endpoint(entry, n) for n, entry in enumerate(entries, start=1)]
        self._distinct([endpoint.url for endpoint in endpoints if endpoint])
        if self.problems:
            return None
        return Workers(SecretStr(str(key).strip()), tuple(e for e in endpoints if e))

    def _endpoint(self, entry: Any, n: int) -> Endpoint | None:
        name = f"worker {n}"
        if isinstance(entry, str):
            entry = {"url": entry}
        if not isinstance(entry, dict):
            self.problems.append(f"{name} is neither an address nor an object with url.")
            return None
        self._no_others(entry, _FIELDS, name)
        daily = self._number(entry, "daily", self._daily, 1, _MOST_POINTS, name)
        apart = self._number(
            entry, "min_interval_ms", self._min_interval * 1000, 0, _MOST_INTERVAL, name
        )
        by_number = self._by_number(entry.get("by_number"), name)
        url = self._url(entry.get("url"), name)
        return Endpoint(url, int(daily), apart / 1000, by_number) if url else None

    def _url(self, url: Any, name: str) -> str | None:
        try:
            checked = check_api_url(str(url or ""))
        except ValueError as error:
            self.problems.append(f"the url of {name} {error}.")
            return None
        if "?" in checked or "#" in checked:
            self.problems.append(f"the url of {name} has a query; paths are appended to it.")
            return None
        return checked

    def _number(
        self, entry: dict[str, Any], field: str, default: float, least: int, most: int, name: str
    ) -> float:
        value = entry.get(field, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            value = least - 1
        if field in entry and not (least <= value <= most and value == int(value)):
            self.problems.append(f"{field} of {name} must be a whole number, {least} to {most}.")
        return float(value)

    def _by_number(self, path: Any, name: str) -> str | None:
        if path is None:
            return None
        blanks = re.findall(r"{(\w*)}", path) if isinstance(path, str) else []
        if not str(path).startswith("/") or sorted(blanks) != sorted(_BLANKS):
            self.problems.append(
                f"by_number of {name} must be a path such as /parsel/{{mahalleId}}/{{adaNo}}"
                "/{parselNo}, with each of these three once."
            )
            return None
        return str(path)

    def _no_others(self, given: dict[str, Any], known: set[str], name: str) -> None:
        if others := sorted(set(given) - known):
            self.problems.append(f"{name} has {', '.join(others)}, which nothing reads.")

    def _distinct(self, urls: list[str]) -> None:
        for url in sorted({url for url in urls if urls.count(url) > 1}):
            self.problems.append(f"{url} is there twice; an endpoint has one budget.")
