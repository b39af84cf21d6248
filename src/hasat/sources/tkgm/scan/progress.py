"""What a scan says of itself, for people and as JSON."""

from dataclasses import asdict
from typing import Any

from hasat.messages import Message, join, msg
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


def note_of(course: Course) -> Message:
    """A line for whoever watches."""
    parts = [
        msg("{count:,} parcels", count=course.found),
        msg("{count:,} questions", count=course.asked),
    ]
    if course.estimate is not None:
        parts.append(msg("{share:.0%} of the ground known", share=course.estimate.coverage))
    if course.unanswered:
        parts.append(msg("{count:,} questions nobody could answer", count=course.unanswered))
    if course.quarantined:
        parts.append(msg("{count:,} responses quarantined", count=course.quarantined))
    if course.per_second is not None:
        parts.append(msg("{count:,.1f}/s", count=course.per_second))
    if course.quota_left is not None:
        parts.append(msg("quota left {count:,}", count=course.quota_left))
    if course.seconds_left is not None:
        parts.append(msg("about {duration} to go", duration=_duration(course.seconds_left)))
    return join(parts, ", ")


def forecast_text(forecast: Forecast, quota_left: int | None) -> Message:
    """What a scan will cost, in a sentence or two."""
    text = msg(
        "About {parcels:,.0f} parcels ({low:,.0f} to {high:,.0f}), about {questions:,} questions, "
        "hardly more than {most:,}.",
        parcels=forecast.parcels,
        low=forecast.low,
        high=forecast.high,
        questions=forecast.questions,
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
