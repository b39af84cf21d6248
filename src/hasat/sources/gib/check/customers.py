"""The check of a list of customers: a file in, the same file with the answers out."""

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

from hasat.messages import Language, Message, msg, translate
from hasat.sources.gib.check.answers import Check, check
from hasat.sources.gib.identifiers import (
    Malformation,
    find_malformation,
    has_valid_checksum,
    kind_of,
)
from hasat.store import Store
from hasat.tables import (
    Cell,
    FileFormat,
    OnProgress,
    Row,
    Table,
    cell_text,
    is_empty,
    read_table,
    write_table,
)
from hasat.text import fold

ADDED: Final = (
    "einvoice",
    "edespatch",
    "invoice_kind",
    "send_to",
    "despatch_send_to",
    "title_in_list",
    "note",
)
"""The columns that a checked list has after its own."""

_HEADING = re.compile("vkn|tckn|vergi|kimlik|tax|ident")
_HEADING_BONUS = 0.5
_ENOUGH = 0.3
_LONGEST, _FEWEST_DIGITS = 40, 6
# A mobile number is written as 0532 or 90532 and more.
_TRUNKS = ("05", "90")
_NOTHING = Malformation(msg("is empty"), None)


@dataclass
class CustomerCounts:
    """What became of the records of a list."""

    rows: int = 0
    einvoice: int = 0
    not_registered: int = 0
    malformed: int = 0
    empty: int = 0


@dataclass(frozen=True)
class CheckedCustomers:
    """The result of checking a list: counts, where the identifiers were, and the version."""

    counts: CustomerCounts
    column: str
    sheet: str | None
    other_sheets: tuple[str, ...]
    version: Mapping[str, Any]

    def as_json(self) -> dict[str, Any]:
        """Return the summary in the forms of the check."""
        return {
            "rows": self.counts.rows,
            "registered": self.counts.einvoice,
            "notRegistered": self.counts.not_registered,
            "malformed": self.counts.malformed,
            "empty": self.counts.empty,
            "column": self.column,
            "sheet": self.sheet,
            "otherSheets": list(self.other_sheets),
            "version": self.version,
        }


async def check_customers(
    store: Store,
    source: Path,
    target: IO[bytes],
    target_format: FileFormat,
    *,
    name: str | None = None,
    column: str | None = None,
    language: Language = "en",
    on_progress: OnProgress | None = None,
) -> CheckedCustomers:
    """Read a list, check each record's identifier, and write the list with the answers.

    All records are checked in one snapshot of the mirror.
    """
    reading = asyncio.to_thread(
        read_table,
        source,
        score=score_identifiers,
        looked_for=msg("VKNs or TCKNs"),
        name=name,
        column=column,
        on_progress=on_progress,
    )
    with await reading as table:
        checking = _Checking(table, language)
        writer = write_table(target, target_format)
        async with store.snapshot() as conn:
            found = await check(conn, [])
            for batch in table.batches():
                found = await check(conn, map(checking.identifier, batch))
                rows = await asyncio.to_thread(checking.answer, batch, found)
                await asyncio.to_thread(writer.add, rows)
                if on_progress is not None:
                    note = msg("checking {name}", name=table.name)
                    on_progress(checking.done, table.count, note)
        await asyncio.to_thread(writer.close)
        return CheckedCustomers(
            checking.counts,
            table.column_name,
            table.sheet,
            table.other_sheets,
            found.version_json(),
        )


class _Checking:
    """Adds the answers to the rows of a table, batch by batch."""

    def __init__(self, table: Table, language: Language) -> None:
        self._table = table
        self._language = language
        self.counts = CustomerCounts()
        self.done = 0

    def identifier(self, row: Sequence[Cell]) -> str:
        """Return the identifier of a row as text; empty if there is none."""
        cell = row[self._table.column] if self._table.column < len(row) else None
        return "" if is_empty(cell) else identifier_text(cell)

    def answer(self, batch: Sequence[Row], found: Check) -> list[Row]:
        """Return the rows with their answers; those above the records are as they were."""
        rows: list[Row] = []
        if self.done == 0 and self._table.heading is None:
            numbers = range(1, self._table.width + 1)
            rows.append([*(f"column_{number}" for number in numbers), *ADDED])
        for number, row in enumerate(batch, self.done + 1):
            heading = self._table.heading or 0
            if not row or number < heading:
                rows.append(row)
                continue
            added = ADDED if number == heading else self._record(row, found)
            rows.append([*row, *[None] * (self._table.width - len(row)), *added])
        self.done += len(batch)
        return rows

    def _record(self, row: Row, found: Check) -> Sequence[Cell]:
        self.counts.rows += 1
        text = self.identifier(row)
        if not text:
            self.counts.empty += 1
            return (*[None] * 6, self._say(msg("no identifier")))
        if (fault := found.find_malformation(text)) is not None:
            self.counts.malformed += 1
            reason = fault.reason
            if fault.likely:
                reason = msg("{reason}; likely {likely}", reason=reason, likely=fault.likely)
            return (*[None] * 6, self._say(reason))
        answer = found.answer(text)
        invoices, despatches = answer["einvoice"], answer["edespatch"]
        registered, despatched = invoices["registered"], despatches["registered"]
        self.counts.einvoice += registered
        self.counts.not_registered += not registered
        note: Message | None = None
        if not (registered or despatched) and not answer["valid"]:
            note = msg("wrong check digit")
        elif registered and invoices["sendTo"] is None:
            note = msg("no receiver alias")
        return (
            "yes" if registered else "no",
            "yes" if despatched else "no",
            answer["invoiceKind"],
            invoices["sendTo"],
            despatches["sendTo"],
            answer["title"],
            None if note is None else self._say(note),
        )

    def _say(self, note: Message) -> str:
        return translate(note, self._language)


def identifier_text(cell: Cell) -> str:
    """Return a cell as an identifier, without the decimals that a number does not have."""
    return repr(cell) if isinstance(cell, float) else cell_text(cell)


def score_identifiers(cells: Sequence[Cell]) -> float:
    """Return how likely a column has identifiers, ruined ones included; its heading counts."""
    texts = [identifier_text(cell) for cell in cells[:1000]]
    if len(texts) == 1:
        return _likelihood(texts[0])
    share = sum(map(_likelihood, texts)) / len(texts)
    named = not _likelihood(texts[0]) and _HEADING.search(fold(texts[0]))
    return share + _HEADING_BONUS if named and share > 0 else share if share > _ENOUGH else 0.0


def _likelihood(text: str) -> float:
    """Return how likely a text was meant as an identifier: phone numbers have ten digits too."""
    if kind_of(text) is not None:
        return 1.0 if has_valid_checksum(text) else 0.1 if text.startswith(_TRUNKS) else 0.5
    likely = None if len(text) > _LONGEST else (find_malformation(text) or _NOTHING).likely
    if likely is None:
        return 0.0
    digits = likely.lstrip("0")
    if len(digits) < _FEWEST_DIGITS:
        return 0.05
    return 0.8 if has_valid_checksum(likely) else 0.2
