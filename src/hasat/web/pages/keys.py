"""API keys: what each may read, its limit, and what it uses."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from hasat.api.keys import ApiKey, list_keys
from hasat.api.usage import Usage, list_usage
from hasat.pages import Page, PageRequest

_DAYS = 30


@dataclass(frozen=True)
class KeyRow:
    """A key, or a client that signs its requests, with its usage."""

    caller: str
    name: str
    scope: str | None
    """None for a signing client."""
    datasets: Sequence[str]
    """Empty for all."""
    state: str | None
    per_minute: int | None
    last_used_at: datetime | None
    today: int
    requests: int
    """Of the last 30 days, as the numbers below."""
    refused: int
    failed: int
    bytes: int


@dataclass(frozen=True)
class Keys:
    """The data of the page."""

    days: int
    per_minute: int
    """The limit of keys without one of their own; 0 for any number."""
    keys: Sequence[KeyRow]


async def keys(request: PageRequest) -> Keys:
    """Load the keys with their usage; a caller who may not operate sees its own."""
    settings = request.context.settings
    zone = settings.jobs.timezone
    usage = defaultdict[str, list[Usage]](list)
    for one in await list_usage(request.store, zone, days=_DAYS, caller=request.owned):
        usage[one.caller].append(one)
    today = (await request.store.now()).astimezone(request.context.zone).date()
    known = {f"key:{key.id}": key for key in await list_keys(request.store)}
    callers = list(known) + [caller for caller in usage if caller not in known]
    if request.owned is not None:
        callers = [caller for caller in callers if caller == request.owned]
    rows = [
        _row(
            caller,
            known.get(caller),
            usage[caller],
            sum(one.requests for one in usage[caller] if one.day == today),
        )
        for caller in callers
    ]
    rows.sort(key=lambda row: (row.state != "active", -row.requests, row.name))
    return Keys(_DAYS, settings.serve.requests_per_minute, rows)


def _row(caller: str, key: ApiKey | None, used: Sequence[Usage], today: int) -> KeyRow:
    return KeyRow(
        caller=caller,
        name=key.name if key else caller,
        scope=key.scope if key else None,
        datasets=(key.datasets or ()) if key else (),
        state=key.state if key else None,
        per_minute=key.per_minute if key else None,
        last_used_at=key.last_used_at if key else None,
        today=today,
        requests=sum(one.requests for one in used),
        refused=sum(one.refused for one in used),
        failed=sum(one.failed for one in used),
        bytes=sum(one.bytes for one in used),
    )


PAGES = (Page("/keys", "keys", keys, "keys", datasets=()),)
