"""What the codes of a match's state mean for whoever waits for its end."""

from enum import StrEnum


class State(StrEnum):
    """A family of codes; one that is not known yet is `unknown` and never stops anything."""

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
# A suspended match may go on another day: nobody can know that it is over.
MAY_BE_OVER = ("NS", *(code for code in LIVE if code != "SUSP"))


def codes_in(text: str | None) -> list[str] | None:
    """The codes that somebody wants, written as `FT-AET-PEN` in any case."""
    return None if text is None else text.replace(",", "-").upper().split("-")


def state_of(code: str | None) -> State:
    return _STATE_OF.get(code or "", State.UNKNOWN)
