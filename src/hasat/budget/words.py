"""Why there is no grant, in sentences."""

from datetime import datetime

from hasat.budget.upstream import Upstream
from hasat.clock import zone
from hasat.errors import OutOfQuotaError
from hasat.messages import Message, msg, template

_WHY = {
    "spent": template("the day's requests are spent down to what is kept back from {lane}"),
    "reserved": template("what is left of the day is kept for lanes of more worth than {lane}"),
    "exhausted": template("the upstream says that the day's requests are used up"),
    "endpoint_spent": template("this endpoint's requests of the day are spent"),
    "endpoint_exhausted": template("this endpoint says that its requests of the day are used up"),
    "minute": template("as many requests as a minute allows are under way"),
    "turn": template("lanes of more worth than {lane} are waiting"),
    "paused": template("the upstream asked for a pause"),
    "endpoint": template("this endpoint was asked a moment ago or rests"),
    "opening": template("the first minutes of a quota day belong to other lanes than {lane}"),
    "paced": template("{lane} is spread over the day and had its part for now"),
    "line": template("others of this process are waiting for {lane} already"),
}


def refusal(upstream: Upstream, lane: str, reason: str, until: datetime | None) -> OutOfQuotaError:
    """The error for a grant that cannot be had, or not in time."""
    why = Message(_WHY[reason], {"lane": repr(lane)})
    when = msg("in a while")
    if until is not None:
        there = until.astimezone(zone(upstream.zone))
        when = msg("after {until:%Y-%m-%d %H:%M:%S} {zone}", until=there, zone=there.tzname() or "")
    return OutOfQuotaError(
        msg("No request to {upstream}: {why}.", upstream=upstream.name, why=why),
        remedy=msg("Try again {when}; `hasat quota` shows every window.", when=when),
        until=until,
    )
