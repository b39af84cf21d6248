"""The datasets of this source, one for each kind of element, and the states of a match."""

from enum import StrEnum

from hasat.feed.dataset import Dataset

SOURCE = "football"

_SUMMARIES = {
    "timezones": "Time zones the API supports",
    "countries": "Countries with competitions, and the World",
    "leagues": "Leagues and cups with their seasons and coverage",
    "teams": "Teams and their venues",
    "fixtures": "Matches: when, who, state and score",
    "fixture_events": "Goals, cards, substitutions and video decisions",
    "fixture_lineups": "Line-ups by team",
    "fixture_statistics": "Shots, passes and possession by team",
    "fixture_players": "Statistics of each player in a match",
    "standings": "Lines of every group of a league's table",
    "injuries": "Injuries and suspensions",
    "top_scorers": "The top scorers of a league's season",
    "team_statistics": "Season statistics of teams",
}

DATASETS = {name: Dataset(name, SOURCE, summary) for name, summary in _SUMMARIES.items()}


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
