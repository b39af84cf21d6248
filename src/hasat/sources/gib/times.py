"""Times as the lists write them: local to Turkey, kept as text, compared as moments."""

from datetime import datetime

from hasat.clock import ISTANBUL

_OTHER_FORMS = ("%d.%m.%Y %H:%M:%S", "%d.%m.%Y %H:%M", "%d.%m.%Y")
# Later than anything legible, so that a legible time beats an illegible one.
_NEVER = datetime.max  # noqa: DTZ901 - the lists write no zone


def moment(text: str | None) -> datetime | None:
    """The moment a published time means, without zone and in Turkish time; None if illegible."""
    if not text:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return _otherwise(text)
    if found.tzinfo is None:
        return found
    try:
        return found.astimezone(ISTANBUL).replace(tzinfo=None)
    except OverflowError:
        return None


def _otherwise(text: str) -> datetime | None:
    for form in _OTHER_FORMS:
        try:
            return datetime.strptime(text, form)  # noqa: DTZ007 - the lists write no zone
        except ValueError:
            continue
    return None


def earlier(one: str | None, other: str | None) -> str | None:
    """The earlier of two published times, in whichever order they come; any time beats none."""
    if one == other or other is None:
        return one
    if one is None:
        return other
    return min(one, other, key=lambda text: (moment(text) or _NEVER, text))
