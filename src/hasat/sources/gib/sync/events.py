"""What this source announces: the original service's events, with its payloads, in Turkish."""

from collections.abc import Mapping
from typing import Any

from hasat.deliver import Event
from hasat.feed.guard import Counts, Measure
from hasat.sources.gib.datasets import EDESPATCH, EINVOICE

_MOST_ERROR = 500


def sync_completed(users: Mapping[str, int], counts: Mapping[str, Counts], seconds: float) -> Event:
    """Both lists were read and what they changed, perhaps nothing, is committed."""
    took = duration(seconds)
    return Event(
        "SyncCompleted",
        "Info",
        f"GIB mükellef listesi senkronizasyonu başarıyla tamamlandı. Süre: {took}",
        {
            "Duration": took,
            "Status": "Başarılı",
            "PkCount": users["PK"],
            "GbCount": users["GB"],
            "EInvoice": _counted(counts[EINVOICE.name]),
            "EDespatch": _counted(counts[EDESPATCH.name]),
        },
    )


def sync_failed(error: Exception, seconds: float) -> Event:
    took = duration(seconds)
    return Event(
        "SyncFailed",
        "Critical",
        f"GIB mükellef listesi senkronizasyonu HATALI olarak sonlandı. Süre: {took}",
        {
            "Duration": took,
            "Status": "Hatalı",
            "Error": str(error)[:_MOST_ERROR],
            "ExceptionType": type(error).__name__,
        },
    )


def sync_skipped(seconds: float) -> Event:
    took = duration(seconds)
    return Event(
        "SyncPartial",
        "Warning",
        f"GIB senkronizasyonu ATLANDI — başka bir senkronizasyon çalışıyor. Süre: {took}",
        {"Reason": "AdvisoryLockNotAcquired", "Duration": took, "Status": "Atlandı"},
    )


def guard_triggered(
    run: int, measures: list[Measure], counts: Mapping[str, Counts], seconds: float
) -> Event:
    """The guard holds the whole run; the payload tells of removals first, as the original's."""
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
        f"{run} numaralı çalışma onay bekliyor.",
        payload,
    )


def duration(seconds: float) -> str:
    """As the original writes it: hours, minutes, seconds and thousandths."""
    rest, thousandths = divmod(round(seconds * 1000), 1000)
    minutes, second = divmod(rest, 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours:02d}:{minute:02d}:{second:02d}.{thousandths:03d}"


def _counted(count: Counts) -> dict[str, int]:
    return {
        "Added": count.added,
        "Modified": count.modified,
        "Removed": count.removed,
        "Total": count.added + count.modified,
        "TotalCount": count.records + count.added - count.removed,
    }
