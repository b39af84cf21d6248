"""The progress of a scan: values, and how they are shown to people and as JSON."""

from dataclasses import asdict, dataclass
from typing import Any

from hasat.feed.guard import Counts
from hasat.messages import Message, join, msg


@dataclass(frozen=True)
class Forecast:
    """Expected parcels (with a 95 % interval) and queries of a scan, from a small random sample."""

    parcels: float
    low: float
    high: float
    questions: int
    most_questions: int


@dataclass(frozen=True)
class Estimate:
    """Parcels found and expected (with a 95 % interval), the share of the area that is known, and
    roughly how many queries are left."""

    found: int
    expected: float
    low: float
    high: float
    coverage: float
    questions_left: int


@dataclass(frozen=True)
class ScanProgress:
    """The progress of a scan.

    `checks` are queries about parcels and points known before; `unanswered` are queries without a
    response, which the scan skips; `quarantined` are responses that cannot be read.
    """

    scan: int
    found: int
    queries: int
    known_before: int
    checks: int
    changes: Counts
    estimate: Estimate | None
    complete: bool
    unanswered: int = 0
    per_second: float | None = None
    quota_left: int | None = None
    quarantined: int = 0

    @property
    def total_queries(self) -> float | None:
        """Queries sent and left: all parcels may be found long before the whole area is known."""
        return None if self.estimate is None else self.queries + self.estimate.questions_left

    @property
    def seconds_left(self) -> float | None:
        """The time left at the present rate, if the quota suffices."""
        if self.estimate is None or not self.per_second:
            return None
        return self.estimate.questions_left / self.per_second

    @property
    def completeness(self) -> dict[str, float] | None:
        """The share of the area's parcels that was found, with a 95 % interval.

        None without an estimate, or if nothing was found.
        """
        estimate, found = self.estimate, self.found
        if estimate is None or not found:
            return None

        def share(of: float) -> float:
            return round(found / max(of, found), 5)

        return {
            "share": share(estimate.expected),
            "low": share(estimate.high),
            "high": share(estimate.low),
            "confidence": 0.95,
        }


def progress_document(progress: ScanProgress) -> dict[str, Any]:
    """Return the progress as JSON for the command and the run."""
    estimate = progress.estimate
    return {
        "scan": progress.scan,
        "complete": progress.complete,
        "parcels": progress.found,
        "questions": progress.queries,
        "knownBefore": progress.known_before,
        "checks": progress.checks,
        "unanswered": progress.unanswered,
        "quarantined": progress.quarantined,
        "changes": {
            "added": progress.changes.added,
            "modified": progress.changes.modified,
            "removed": progress.changes.removed,
        },
        "quotaLeft": progress.quota_left,
        "estimate": None if estimate is None else asdict(estimate),
        "completeness": progress.completeness,
    }


def progress_note(progress: ScanProgress) -> Message:
    """Return the progress in one line."""
    parts = [
        msg("{count:,} parcels", count=progress.found),
        msg("{count:,} queries", count=progress.queries),
    ]
    if progress.estimate is not None:
        parts.append(msg("{share:.0%} of the area known", share=progress.estimate.coverage))
    if progress.unanswered:
        parts.append(msg("{count:,} queries without response", count=progress.unanswered))
    if progress.quarantined:
        parts.append(msg("{count:,} responses quarantined", count=progress.quarantined))
    if progress.per_second is not None:
        parts.append(msg("{count:,.1f}/s", count=progress.per_second))
    if progress.quota_left is not None:
        parts.append(msg("quota left {count:,}", count=progress.quota_left))
    if progress.seconds_left is not None:
        parts.append(msg("about {duration} to go", duration=_duration(progress.seconds_left)))
    return join(parts, ", ")


def forecast_text(forecast: Forecast, quota_left: int | None) -> Message:
    """Return the forecast in one or two sentences."""
    text = msg(
        "About {parcels:,.0f} parcels ({low:,.0f} to {high:,.0f}), about {queries:,} queries, "
        "at most about {most:,}.",
        parcels=forecast.parcels,
        low=forecast.low,
        high=forecast.high,
        queries=forecast.questions,
        most=forecast.most_questions,
    )
    if quota_left is None:
        return text
    quota = (
        msg("Today's quota leaves {count:,}: enough.", count=quota_left)
        if quota_left >= forecast.questions
        else msg("Today's quota leaves {count:,}: not enough.", count=quota_left)
    )
    return join((text, quota))


def _duration(seconds: float) -> Message:
    if seconds < 90:
        return msg("{count:.0f} s", count=seconds)
    if seconds < 5400:
        return msg("{count:.0f} min", count=seconds / 60)
    return msg("{count:.1f} h", count=seconds / 3600)
