"""The two datasets of this source."""

from hasat.feed.dataset import Dataset

SOURCE = "gib"

EINVOICE = Dataset("einvoice", SOURCE, "e-Fatura taxpayers (Document type Invoice)")
EDESPATCH = Dataset("edespatch", SOURCE, "e-İrsaliye taxpayers (Document type DespatchAdvice)")
DATASETS = (EINVOICE, EDESPATCH)
