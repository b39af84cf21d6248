"""Changes: the newest changes of a dataset, of one kind, field or record."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from psycopg.rows import dict_row

from hasat.errors import NotFoundError
from hasat.feed.changes import KINDS, Change
from hasat.feed.dataset import Dataset
from hasat.http.routes import check_dataset_access
from hasat.messages import msg
from hasat.pages import Page, PageContext, PageRequest
from hasat.pages.differences import ChangeRow, describe_change
from hasat.store.queries import load_query

_PAGE_SIZE = 50
# A filter reads at most this many changes for one page; the next page continues after them.
_MAX_READ = 20_000
_NUMBER_OF: Mapping[str, int] = {kind: number for number, kind in KINDS.items()}


@dataclass(frozen=True)
class DatasetName:
    """A dataset that can be selected."""

    name: str
    source: str


@dataclass(frozen=True)
class Changes:
    """The data of the page."""

    datasets: Sequence[DatasetName]
    dataset: str
    kind: str
    field: str
    key: str
    fields: Sequence[str]
    """The fields that can be selected."""
    records: int | None
    head: int | None
    floor: int | None
    committed_at: datetime | None
    changes: Sequence[ChangeRow]
    older_than: int | None
    """The sequence number from which the next page continues."""
    follows: bool
    """Whether the page has the newest changes, and gets new ones while it is open."""


async def changes(request: PageRequest) -> Changes:
    """Load the newest changes of a dataset, or those before a sequence number."""
    context = request.context
    names = [
        DatasetName(one.name, source.name)
        for source in context.sources
        for one in source.datasets
        if request.may_read(one.name)
    ]
    chosen = (
        request.text("dataset")
        or await _latest_dataset(context, [one.name for one in names])
        or (names[0].name if names else "")
    )
    if not names:
        return Changes([], "", "", "", "", [], None, None, None, None, [], None, False)
    dataset = readable_dataset(request, chosen)
    kind, field, key = request.text("kind"), request.text("field"), request.text("key")
    before = request.number("before")
    head, rows = await _load(context, dataset, kind=kind, field=field, key=key, before=before)
    shown = [_row(dataset, row) for row in rows[:_PAGE_SIZE]]
    older = shown[-1].seq if len(rows) > _PAGE_SIZE else None
    if older is None and head and not key and (rest := head["lowest"]) > head["floor"]:
        older = rest + 1
    return Changes(
        datasets=names,
        dataset=dataset.name,
        kind=kind,
        field=field,
        key=key,
        fields=_field_names(dataset, shown, field),
        records=head["records"] if head else None,
        head=head["head"] if head else None,
        floor=head["floor"] if head else None,
        committed_at=head["committed_at"] if head else None,
        changes=shown,
        older_than=older,
        follows=before is None,
    )


def find_dataset(context: PageContext, name: str) -> Dataset:
    """Return the dataset of a name; the NotFoundError lists those that exist."""
    known = {one.name: one for source in context.sources for one in source.datasets}
    if name not in known:
        raise NotFoundError(
            msg("There is no dataset named {name!r}.", name=name),
            remedy=msg("Known datasets: {known}.", known=", ".join(known)),
        )
    return known[name]


def readable_dataset(request: PageRequest, name: str) -> Dataset:
    """Return a dataset that the caller may read."""
    check_dataset_access(request.caller, name)
    return find_dataset(request.context, name)


async def _load(
    context: PageContext, dataset: Dataset, *, kind: str, field: str, key: str, before: int | None
) -> tuple[Mapping[str, Any] | None, Sequence[Mapping[str, Any]]]:
    """Return the head of a dataset and its newest changes that match, one more than a page."""
    if kind and kind not in _NUMBER_OF:
        raise NotFoundError(
            msg("There is no kind of change named {kind!r}.", kind=kind),
            remedy=msg("Choose one of: {names}.", names=", ".join(_NUMBER_OF)),
        )
    values = {
        "dataset": dataset.name,
        "before": before,
        "limit": _PAGE_SIZE + 1,
        "kind": _NUMBER_OF.get(kind),
        "field": field.split(".") if field else None,
        "key": key or None,
        "reads": _MAX_READ,
    }
    async with context.store.connection() as conn, conn.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(load_query("hasat.web", "newest_changes"), values)
        rows = await cursor.fetchall()
    return (rows[0] if rows else None), [row for row in rows if row["seq"] is not None]


def _row(dataset: Dataset, row: Mapping[str, Any]) -> ChangeRow:
    change = Change(
        row["seq"],
        KINDS[row["kind"]],
        row["key"],
        row["body"],
        row["before"],
        row["changed_at"],
        row["version"],
    )
    body = change.before if change.body is None else change.body
    return describe_change(change, dataset.title_of(body))


def _field_names(dataset: Dataset, shown: Sequence[ChangeRow], chosen: str) -> Sequence[str]:
    """Return the fields of the shown changes and of the columns, and the chosen one."""
    names = {one.path for row in shown for one in row.fields if one.path}
    names |= {".".join(column.steps) for column in dataset.columns if column.key_part is None}
    return sorted((names | {chosen}) - {""})


async def _latest_dataset(context: PageContext, names: Sequence[str]) -> str | None:
    """Return that of the datasets with the latest commit."""
    async with context.store.connection() as conn:
        cursor = await conn.execute(
            "SELECT dataset FROM feed.head WHERE seq > 0 AND dataset = ANY (%s)"
            " ORDER BY committed_at DESC, seq DESC LIMIT 1",
            [list(names)],
        )
        row = await cursor.fetchone()
    return row[0] if row else None


PAGES = (Page("/changes", "changes", changes, "changes", datasets=()),)
