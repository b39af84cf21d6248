"""Why nobody can be asked, in sentences."""

from collections.abc import Collection
from datetime import datetime, timedelta

from hasat.clock import system_clock, zone
from hasat.errors import HasatError, OutOfQuotaError, SettingsError, UnavailableError
from hasat.fetch.outcome import Question
from hasat.fetch.standing import Standing
from hasat.messages import msg


def refused(upstream: str, reason: str) -> SettingsError:
    """Everything stopped, because the key is not taken."""
    return SettingsError(
        msg(
            "{upstream} refuses the key: {reason}. Nothing more is asked with this key.",
            upstream=upstream,
            reason=reason or "it says no more than that",
        ),
        remedy=msg(
            "Correct the key; it is tried again at once. The old one is tried once in a while."
        ),
    )


def all_alike(upstream: str, cause: str, seconds: float, zone_name: str) -> UnavailableError:
    """The upstream as a whole rests."""
    return UnavailableError(
        msg(
            "Every endpoint of {upstream} fails alike ({cause}), so the fault is "
            "behind them; {upstream} rests until {seconds}.",
            upstream=upstream,
            cause=cause,
            seconds=_clock(seconds, zone_name),
        ),
        remedy=msg("It is tried again by itself."),
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
            msg("No endpoint of {upstream} answers questions by number.", upstream=upstream),
            remedy=msg("Give one of them by_number in workers.json."),
        )
    in_service = [s for s in able if not s.day_is_over(question.points, now)]
    if not in_service:
        return OutOfQuotaError(
            msg("Every endpoint of {upstream} has spent its day.", upstream=upstream),
            remedy=msg(
                "They can be asked again from {day_ends_in}.",
                day_ends_in=_clock(day_ends_in, zone_name),
            ),
            until=system_clock() + timedelta(seconds=max(day_ends_in, 0.0)),
        )
    first = min(in_service, key=lambda s: s.rest_until)
    why = f" ({first.rest_cause})" if first.rest_cause else ""
    return UnavailableError(
        msg(
            "No endpoint of {upstream} can be asked now: all are busy, resting or "
            "have spent their day.{next}",
            upstream=upstream,
            next=(
                msg(" {url} is back first{why}.", url=first.endpoint.url, why=why) if why else ""
            ),
        ),
        remedy=msg("Try again from {clock}.", clock=_clock(first.rest_until - now, zone_name)),
    )


def _clock(seconds: float, zone_name: str) -> str:
    moment: datetime = system_clock() + timedelta(seconds=max(seconds, 0.0))
    there = moment.astimezone(zone(zone_name))
    return f"{there:%Y-%m-%d %H:%M:%S} {there.tzname()}"
