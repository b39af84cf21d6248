"""workers.json: the endpoints that the operator declares, and their API key."""

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
from hasat.settings.types import check_api_url

_FIELDS = {"url", "daily", "min_interval_ms", "by_number"}
_PLACEHOLDERS = {"mahalleId", "adaNo", "parselNo"}
_MAX_POINTS = 1_000_000
_MAX_INTERVAL_MS = 60_000


@dataclass(frozen=True)
class Endpoint:
    """An address that accepts requests, with its points a day and minimum interval.

    `by_number` is the path of requests by parcel number, if the endpoint supports them.
    """

    url: str
    daily: int
    min_interval: float
    by_number: str | None = None

    def path_for(self, request: Request) -> str | None:
        """Return the path of a request at this endpoint; None if it does not support it."""
        if request.by_number is None:
            return request.path
        if self.by_number is None:
            return None
        numbers = {name: quote(value, safe="") for name, value in request.by_number.items()}
        return self.by_number.format_map(numbers)


@dataclass(frozen=True)
class WorkersFile:
    """The content of workers.json."""

    api_key: SecretStr
    endpoints: tuple[Endpoint, ...] = field(default=())


def read_workers(
    path: Path, *, setting: str = "workers_file", daily: int = 2000, min_interval_ms: int = 200
) -> WorkersFile:
    """Read the file that `setting` names, with defaults for missing fields of an entry.

    Raises one SettingsError that names every problem, and never the key.
    """
    try:
        content = json.loads(path.read_bytes())
    except OSError as error:
        raise SettingsError(
            msg("Cannot read {path}: {strerror}.", path=path, strerror=error.strerror or error),
            remedy=msg("Name your workers.json in {setting}.", setting=setting),
        ) from error
    except (ValueError, RecursionError) as error:
        where = f" (line {error.lineno})" if isinstance(error, json.JSONDecodeError) else ""
        raise SettingsError(
            msg("Cannot read {path}: it is not valid JSON{where}.", path=path, where=where),
            remedy=_HELP,
        ) from error
    reader = _Reader(daily, min_interval_ms / 1000)
    workers = reader.read(content)
    if workers is None:
        raise SettingsError("\n".join(f"{path}: {p}" for p in reader.problems), remedy=_HELP)
    return workers


_HELP = msg('Write {{"api_key": "...", "workers": ["https://one.example", ...]}}.')


class _Reader:
    def __init__(self, daily: int, min_interval: float) -> None:
        self._daily = daily
        self._min_interval = min_interval
        self.problems: list[str] = []

    def read(self, content: Any) -> WorkersFile | None:
        if not isinstance(content, dict):
            self.problems.append("the file must be an object with api_key and workers.")
            return None
        self._check_fields(content, {"api_key", "workers"}, "the file")
        key = content.get("api_key")
        # A header cannot contain other characters.
        if (
            not isinstance(key, str)
            or not key.strip()
            or not key.isascii()
            or not key.isprintable()
        ):
            self.problems.append("api_key must be text of printable ASCII characters.")
        entries = content.get("workers")
        if not isinstance(entries, list) or not entries:
            self.problems.append("workers must be a list of at least one URL.")
            entries = []
        endpoints = [self._endpoint(entry, n) for n, entry in enumerate(entries, start=1)]
        self._check_distinct([endpoint.url for endpoint in endpoints if endpoint])
        if self.problems:
            return None
        return WorkersFile(SecretStr(str(key).strip()), tuple(e for e in endpoints if e))

    def _endpoint(self, entry: Any, n: int) -> Endpoint | None:
        name = f"worker {n}"
        if isinstance(entry, str):
            entry = {"url": entry}
        if not isinstance(entry, dict):
            self.problems.append(f"{name} must be a URL or an object with url.")
            return None
        self._check_fields(entry, _FIELDS, name)
        daily = self._number(entry, "daily", self._daily, 1, _MAX_POINTS, name)
        interval = self._number(
            entry, "min_interval_ms", self._min_interval * 1000, 0, _MAX_INTERVAL_MS, name
        )
        by_number = self._by_number(entry.get("by_number"), name)
        url = self._url(entry.get("url"), name)
        return Endpoint(url, int(daily), interval / 1000, by_number) if url else None

    def _url(self, url: Any, name: str) -> str | None:
        try:
            checked = check_api_url(str(url or ""))
        except ValueError as error:
            self.problems.append(f"the url of {name} {error}.")
            return None
        if "?" in checked or "#" in checked:
            self.problems.append(f"the url of {name} must not have a query or fragment.")
            return None
        return checked

    def _number(
        self,
        entry: dict[str, Any],
        field: str,
        default: float,
        minimum: int,
        maximum: int,
        name: str,
    ) -> float:
        value = entry.get(field, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            value = minimum - 1
        if field in entry and not (minimum <= value <= maximum and value == int(value)):
            self.problems.append(
                f"{field} of {name} must be a whole number, {minimum} to {maximum}."
            )
        return float(value)

    def _by_number(self, path: Any, name: str) -> str | None:
        if path is None:
            return None
        placeholders = re.findall(r"{(\w*)}", path) if isinstance(path, str) else []
        if not str(path).startswith("/") or sorted(placeholders) != sorted(_PLACEHOLDERS):
            self.problems.append(
                f"by_number of {name} must be a path such as /parsel/{{mahalleId}}/{{adaNo}}"
                "/{parselNo}, with each of these three once."
            )
            return None
        return str(path)

    def _check_fields(self, content: dict[str, Any], known: set[str], name: str) -> None:
        if unknown := sorted(set(content) - known):
            self.problems.append(f"{name} has unknown fields: {', '.join(unknown)}.")

    def _check_distinct(self, urls: list[str]) -> None:
        for url in sorted({url for url in urls if urls.count(url) > 1}):
            self.problems.append(f"{url} is listed twice.")
