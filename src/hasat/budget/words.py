"""Why there is no grant, in sentences."""

from datetime import datetime

from hasat.budget.upstream import Upstream
from hasat.clock import zone
from hasat.errors import OutOfQuotaError
from hasat.messages import msg

_WHY = {
    "spent": "the day's requests are spent down to what is kept back from {lane}",
    "reserved": "what is left of the day is kept for lanes of more worth than {lane}",
    "exhausted": "the upstream says that the day's requests are used up",
    "endpoint_spent": "this endpoint's requests of the day are spent",
    "endpoint_exhausted": "this endpoint says that its requests of the day are used up",
    "minute": "as many requests as a minute allows are under way",
    "turn": "lanes of more worth than {lane} are waiting",
    "paused": "the upstream asked for a pause",
    "endpoint": "this endpoint was asked a moment ago or rests",
    "opening": "the first minutes of a quota day belong to other lanes than {lane}",
    "paced": "{lane} is spread over the day and had its part for now",
    "line": "others of this process are waiting for {lane} already",
}


def refusal(upstream: Upstream, lane: str, reason: str, until: datetime | None) -> OutOfQuotaError:
    """The error for a grant that cannot be had, or not in time."""
    why = _WHY[reason].format(lane=repr(lane))
    when = "in a while"
    if until is not None:
        there = until.astimezone(zone(upstream.zone))
        when = f"after {there:%Y-%m-%d %H:%M:%S} {there.tzname()}"
    return OutOfQuotaError(
        msg("No request to {upstream}: {why}.", upstream=upstream.name, why=why),
        remedy=msg("Try again {when}; `hasat quota` shows every window.", when=when),
        until=until,
    )
