"""The log lines of a run, which its page shows."""

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import psycopg
from psycopg.types.json import Jsonb

from hasat.jobs.connection import Connection
from hasat.logs import LogLine
from hasat.store import Store
from hasat.store.queries import load_query

MAX_LINES = 200
# The context of every line of a run says these, and so does its page.
_KNOWN = frozenset({"run", "job", "source"})


@dataclass(frozen=True)
class StoredLine:
    """A stored log line."""

    attempt: int
    number: int
    at: datetime
    level: str
    event: str
    fields: Mapping[str, Any]


class RunLog:
    """The lines of an attempt that are not stored yet; beyond a limit, only problems are."""

    def __init__(self, run: int, attempt: int, storable: Callable[[str], str]) -> None:
        self._run, self._attempt = run, attempt
        self._storable = storable
        self._lines: dict[int, LogLine] = {}
        self._count = 0

    def add(self, line: LogLine) -> None:
        """Take a line; also from other threads."""
        if self._count >= MAX_LINES and (line.level == "info" or self._count >= 2 * MAX_LINES):
            return
        self._count += 1
        self._lines[self._count] = line

    async def store(self, connection: Connection) -> Sequence[int]:
        """Store the lines inside a transaction; return their numbers for `forget`."""
        lines = dict(self._lines)
        if lines:
            values = {
                "run": self._run,
                "attempt": self._attempt,
                "numbers": list(lines),
                "times": [line.at for line in lines.values()],
                "levels": [line.level for line in lines.values()],
                "events": [self._storable(line.event) for line in lines.values()],
                "fields": [self._fields(line) for line in lines.values()],
            }
            # A line that cannot be stored must not fail the run.
            with suppress(psycopg.DataError):
                async with connection.transaction():
                    await connection.execute(load_query("hasat.jobs", "run_log_insert"), values)
        return list(lines)

    def forget(self, numbers: Sequence[int]) -> None:
        """Drop lines whose transaction has been committed."""
        for number in numbers:
            self._lines.pop(number, None)

    def _fields(self, line: LogLine) -> Jsonb:
        fields = {name: value for name, value in line.fields.items() if name not in _KNOWN}
        text = json.dumps(fields, ensure_ascii=False, default=str)
        # Masking works on text, so that it reaches values at any depth.
        try:
            cleaned = self._storable(text).replace("\\u0000", "")
            return Jsonb(json.loads(cleaned, parse_constant=str))
        except ValueError:
            return Jsonb({})


async def list_lines(store: Store, run: int) -> Sequence[StoredLine]:
    """Return the stored lines of a run, oldest first."""
    return await store.rows(StoredLine, load_query("hasat.jobs", "run_log"), {"run": run})
