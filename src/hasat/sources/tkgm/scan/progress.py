"""What a scan says of itself, for people and as JSON."""

from dataclasses import asdict
from typing import Any

from hasat.sources.tkgm.scan.runner import Course
from hasat.sources.tkgm.scan.scan_request import Forecast


def course_told(course: Course) -> dict[str, Any]:
    """How far a scan is, as the command and the job's record show it."""
    estimate = course.estimate
    return {
        "scan": course.scan,
        "complete": course.complete,
        "parcels": course.found,
        "questions": course.asked,
        "knownBefore": course.known_before,
        "checks": course.checks,
        "unanswered": course.unanswered,
        "quarantined": course.quarantined,
        "changes": {
            "added": course.changes.added,
            "modified": course.changes.modified,
            "removed": course.changes.removed,
        },
        "quotaLeft": course.quota_left,
        "estimate": None if estimate is None else asdict(estimate),
        "completeness": completeness(course),
    }


def completeness(course: Course) -> dict[str, float] | None:
    """The share of the area's parcels that was found, with the bounds of a 95 % interval; None
    where nothing is known, or nothing was found."""
    estimate, found = course.estimate, course.found
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


def note_of(course: Course) -> str:
    """A line for whoever watches."""
    parts = [f"{course.found:,} parcels", f"{course.asked:,} questions"]
    if course.estimate is not None:
        parts.append(f"{course.estimate.coverage:.0%} of the ground known")
    if course.unanswered:
        parts.append(f"{course.unanswered:,} questions nobody could answer")
    if course.quarantined:
        parts.append(f"{course.quarantined:,} responses quarantined")
    if course.per_second is not None:
        parts.append(f"{course.per_second:,.1f}/s")
    if course.quota_left is not None:
        parts.append(f"quota left {course.quota_left:,}")
    if course.seconds_left is not None:
        parts.append(f"about {_duration(course.seconds_left)} to go")
    return ", ".join(parts)


def forecast_text(forecast: Forecast, quota_left: int | None) -> str:
    """What a scan will cost, in a sentence or two."""
    text = (
        f"About {forecast.parcels:,.0f} parcels ({forecast.low:,.0f} to {forecast.high:,.0f}), "
        f"about {forecast.questions:,} questions, hardly more than {forecast.most_questions:,}."
    )
    if quota_left is not None:
        enough = "enough" if quota_left >= forecast.questions else "not enough"
        text += f" Today's quota leaves {quota_left:,}: {enough}."
    return text


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
