"""The events of this source: those of the original service, with its payloads, in Turkish."""

from collections.abc import Mapping
from typing import Any

from hasat.deliver import Event
from hasat.feed.guard import Counts, Measure
from hasat.sources.gib.datasets import EDESPATCH, EINVOICE

_MAX_ERROR = 500


def sync_completed(users: Mapping[str, int], counts: Mapping[str, Counts], seconds: float) -> Event:
    """Return the event of a committed sync, with or without changes."""
    text = duration(seconds)
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
    text = duration(seconds)
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
    text = duration(seconds)
    return Event(
        "SyncPartial",
        "Warning",
        f"GIB senkronizasyonu ATLANDI — başka bir senkronizasyon çalışıyor. Süre: {text}",
        {"Reason": "AdvisoryLockNotAcquired", "Duration": text, "Status": "Atlandı"},
    )


def guard_triggered(
    run: int, measures: list[Measure], counts: Mapping[str, Counts], seconds: float
) -> Event:
    """Return the event of a held run; the payload has removals first, as the original's has."""
    over = [measure for measure in measures if measure.exceeded]
    removal = next((one for one in over if one.what == "removed"), None)
    payload: dict[str, Any] = {"Run": run, "Duration": duration(seconds)}
    if removal is not None:
        count = counts[removal.subject]
        payload |= {
            "DocumentType": removal.subject,
            "RemovalCount": count.removed,
            "TotalCount": count.records,
            "RemovalRatio": f"{removal.value:.1f}%",
            "Threshold": f"{removal.limit:g}%",
        }
    payload["Measures"] = [
        {"Subject": one.subject, "What": one.what, "Percent": one.value, "Limit": one.limit}
        for one in over
    ]
    return Event(
        "RemovalGuardTriggered",
        "Warning",
        f"Koruma tetiklendi: {'; '.join(map(str, over))}. Hiçbir şey değiştirilmedi; "
        f"{run} numaralı çalıştırma onay bekliyor.",
        payload,
    )


def duration(seconds: float) -> str:
    """Return a duration as the original writes it: hh:mm:ss.fff."""
    rest, thousandths = divmod(round(seconds * 1000), 1000)
    minutes, second = divmod(rest, 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours:02d}:{minute:02d}:{second:02d}.{thousandths:03d}"


def _counts_json(count: Counts) -> dict[str, int]:
    return {
        "Added": count.added,
        "Modified": count.modified,
        "Removed": count.removed,
        "Total": count.added + count.modified,
        "TotalCount": count.records + count.added - count.removed,
    }
