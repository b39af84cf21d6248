"""Why nobody can be asked, in sentences."""

from collections.abc import Collection
from datetime import datetime, timedelta

from hasat.clock import system_clock, zone
from hasat.errors import HasatError, OutOfQuotaError, SettingsError, UnavailableError
from hasat.fetch.outcome import Question
from hasat.fetch.standing import Standing


def refused(upstream: str, reason: str) -> SettingsError:
    """Everything stopped, because the key is not taken."""
    return SettingsError(
        f"{upstream} refuses the key: {reason or 'it says no more than that'}. "
        "Nothing more is asked with this key.",
        remedy="Correct the key; it is tried again at once. The old one is tried once in a while.",
    )


def all_alike(upstream: str, cause: str, seconds: float, zone_name: str) -> UnavailableError:
    """The upstream as a whole rests."""
    return UnavailableError(
        f"Every endpoint of {upstream} fails alike ({cause}), so the fault is behind them; "
        f"{upstream} rests until {_clock(seconds, zone_name)}.",
        remedy="It is tried again by itself.",
    )


def nobody(
    upstream: str,
    standings: Collection[Standing],
    question: Question,
    *,
    now: float,
    day_ends_in: float,
    zone_name: str,
) -> HasatError:
    """No endpoint can be asked: why, and when the first can be."""
    able = [s for s in standings if s.endpoint.path_for(question) is not None]
    if not able:
        return SettingsError(
            f"No endpoint of {upstream} answers questions by number.",
            remedy="Give one of them by_number in workers.json.",
        )
    in_service = [s for s in able if not s.day_is_over(question.points, now)]
    if not in_service:
        return OutOfQuotaError(
            f"Every endpoint of {upstream} has spent its day.",
            remedy=f"They can be asked again from {_clock(day_ends_in, zone_name)}.",
            until=system_clock() + timedelta(seconds=max(day_ends_in, 0.0)),
        )
    first = min(in_service, key=lambda s: s.rest_until)
    why = f" ({first.rest_cause})" if first.rest_cause else ""
    return UnavailableError(
        f"No endpoint of {upstream} can be asked now: all are busy, resting or have spent "
        f"their day.{f' {first.endpoint.url} is back first{why}.' if why else ''}",
        remedy=f"Try again from {_clock(first.rest_until - now, zone_name)}.",
    )


def _clock(seconds: float, zone_name: str) -> str:
    moment: datetime = system_clock() + timedelta(seconds=max(seconds, 0.0))
    there = moment.astimezone(zone(zone_name))
    return f"{there:%Y-%m-%d %H:%M:%S} {there.tzname()}"
