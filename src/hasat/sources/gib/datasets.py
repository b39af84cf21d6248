"""The two datasets of this source."""

from typing import Any

from hasat.feed.dataset import Dataset

SOURCE = "gib"

_FIELDS = ("title", "accountType", "type", "firstCreationTime", "aliases")


def spell(identifier: str, body: Any) -> dict[str, Any]:
    """A taxpayer in a change, in the form of the original service: all null after a removal."""
    return {
        "identifier": identifier,
        **{name: None if body is None else body[name] for name in _FIELDS},
    }


EINVOICE = Dataset("einvoice", SOURCE, "e-Fatura taxpayers (Document type Invoice)", spell)
EDESPATCH = Dataset(
    "edespatch", SOURCE, "e-İrsaliye taxpayers (Document type DespatchAdvice)", spell
)
DATASETS = (EINVOICE, EDESPATCH)
