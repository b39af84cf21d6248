"""The datasets of this source: one for every kind of element that the API publishes."""

from enum import StrEnum

from hasat.feed.dataset import Dataset

SOURCE = "football"

_SUMMARIES = {
    "timezones": "Time zones the API can answer in",
    "countries": "Countries with competitions, and the World",
    "leagues": "Leagues and cups with their seasons and coverage",
    "teams": "Teams and their venues",
    "fixtures": "Matches: when, who, state and score",
    "fixture_events": "Goals, cards, substitutions and video decisions",
    "fixture_lineups": "Who played, by team",
    "fixture_statistics": "Shots, passes, possession, by team",
    "fixture_players": "Each player's match",
    "standings": "Lines of every group of a league's table",
    "injuries": "Who misses or may miss a match, and why",
    "top_scorers": "The top scorers of a league's season",
    "team_statistics": "A team's season in a league",
}

DATASETS = {name: Dataset(name, SOURCE, summary) for name, summary in _SUMMARIES.items()}


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
