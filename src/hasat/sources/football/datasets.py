"""The datasets of this source: one for every kind of element that the API publishes."""

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
