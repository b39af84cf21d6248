"""The states of a match."""

from enum import StrEnum


class State(StrEnum):
    """A group of status codes; a code that is not listed here is `unknown`."""

    SCHEDULED = "scheduled"
    LIVE = "live"
    FINISHED = "finished"
    POSTPONED = "postponed"
    CANCELLED = "cancelled"
    ABANDONED = "abandoned"
    NOT_PLAYED = "not_played"
    UNKNOWN = "unknown"


_CODES = {
    State.SCHEDULED: ("TBD", "NS"),
    State.LIVE: ("1H", "HT", "2H", "ET", "BT", "P", "SUSP", "INT", "LIVE"),
    State.FINISHED: ("FT", "AET", "PEN"),
    State.POSTPONED: ("PST",),
    State.CANCELLED: ("CANC",),
    State.ABANDONED: ("ABD",),
    State.NOT_PLAYED: ("AWD", "WO"),
}
_STATE_OF = {code: state for state, codes in _CODES.items() for code in codes}

FINISHED = _CODES[State.FINISHED]
SCHEDULED = _CODES[State.SCHEDULED]
LIVE = _CODES[State.LIVE]
RESTING = (*_CODES[State.POSTPONED], *_CODES[State.ABANDONED])
# A suspended match may continue on another day, so it is never inferred to be over.
MAY_BE_OVER = ("NS", *(code for code in LIVE if code != "SUSP"))


def codes_in(text: str | None) -> list[str] | None:
    """Parse status codes such as `FT-AET-PEN`, in any case."""
    return None if text is None else text.replace(",", "-").upper().split("-")


def state_of(code: str | None) -> State:
    return _STATE_OF.get(code or "", State.UNKNOWN)
