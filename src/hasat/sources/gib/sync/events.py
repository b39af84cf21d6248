"""The events of this source: those of the original service, with its payloads, in Turkish."""

from collections.abc import Mapping

from hasat.deliver import Event
from hasat.deliver.events import format_duration
from hasat.feed.guard import Counts
from hasat.settings.events import EventKind
from hasat.sources.gib.datasets import EDESPATCH, EINVOICE

KINDS = (
    EventKind(
        "SyncCompleted",
        "✅ GİB Senkronizasyon Raporu",
        {"EInvoice": "🧾 e-Fatura Kullanıcıları", "EDespatch": "📦 e-İrsaliye Kullanıcıları"},
    ),
    EventKind("SyncFailed", "❌ GİB Senkronizasyon Hatası"),
    EventKind("SyncPartial", "⚠️ GİB Senkronizasyon Kısmi"),
)

_MAX_ERROR = 500


def sync_completed(users: Mapping[str, int], counts: Mapping[str, Counts], seconds: float) -> Event:
    """Return the event of a committed sync, with or without changes."""
    text = format_duration(seconds)
    return Event(
        "SyncCompleted",
        "Info",
        f"GIB mükellef listesi senkronizasyonu başarıyla tamamlandı. Süre: {text}",
        {
            "Duration": text,
            "Status": "Başarılı",
            "PkCount": users["PK"],
            "GbCount": users["GB"],
            "EInvoice": _counts_json(counts[EINVOICE.name]),
            "EDespatch": _counts_json(counts[EDESPATCH.name]),
        },
    )


def sync_failed(error: Exception, seconds: float) -> Event:
    text = format_duration(seconds)
    return Event(
        "SyncFailed",
        "Critical",
        f"GIB mükellef listesi senkronizasyonu HATALI olarak sonlandı. Süre: {text}",
        {
            "Duration": text,
            "Status": "Hatalı",
            "Error": str(error)[:_MAX_ERROR],
            "ExceptionType": type(error).__name__,
        },
    )


def sync_skipped(seconds: float) -> Event:
    text = format_duration(seconds)
    return Event(
        "SyncPartial",
        "Warning",
        f"GIB senkronizasyonu ATLANDI — başka bir senkronizasyon çalışıyor. Süre: {text}",
        {"Reason": "AdvisoryLockNotAcquired", "Duration": text, "Status": "Atlandı"},
    )


def _counts_json(count: Counts) -> dict[str, int]:
    return {
        "Added": count.added,
        "Modified": count.modified,
        "Removed": count.removed,
        "Total": count.added + count.modified,
        "TotalCount": count.records + count.added - count.removed,
    }
