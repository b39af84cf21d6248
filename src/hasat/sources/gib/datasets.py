"""The two datasets of this source."""

from typing import Any

from hasat.feed.dataset import Dataset
from hasat.sources.gib.archive_xml import XML
from hasat.sources.gib.identifiers import check_identifier

SOURCE = "gib"

_FIELDS = ("title", "accountType", "type", "firstCreationTime", "aliases")


def spell(identifier: str, body: Any) -> dict[str, Any]:
    """A taxpayer in a change, in the form of the original service: all null after a removal."""
    return {
        "identifier": identifier,
        **{name: None if body is None else body[name] for name in _FIELDS},
    }


def columns() -> Any:
    """The fields of a taxpayer in Parquet; times stay text, for some are not legible as times."""
    import pyarrow as pa

    text = pa.string()
    alias = pa.struct([("alias", text), ("type", text), ("creationTime", text)])
    names = ("identifier", "title", "accountType", "type", "firstCreationTime")
    return pa.schema([*((name, text) for name in names), ("aliases", pa.list_(alias))])


def _taxpayers(name: str, summary: str) -> Dataset:
    return Dataset(
        name,
        SOURCE,
        summary,
        spell,
        flat=True,
        noun="users",
        xml=XML,
        columns=columns,
        check_key=check_identifier,
    )


EINVOICE = _taxpayers("einvoice", "e-Fatura taxpayers (Document type Invoice)")
EDESPATCH = _taxpayers("edespatch", "e-İrsaliye taxpayers (Document type DespatchAdvice)")
DATASETS = (EINVOICE, EDESPATCH)
