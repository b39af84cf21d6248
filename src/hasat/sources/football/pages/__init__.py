"""The pages of football: an overview, a league's season, and a match."""

from importlib.resources import files

from hasat.messages import template
from hasat.pages import NavigationEntry, Page, SourcePages
from hasat.sources.football.pages.league import league
from hasat.sources.football.pages.match import match
from hasat.sources.football.pages.overview import football

PAGES = SourcePages(
    (
        Page("/football", "football", football, "football"),
        Page("/football/leagues/{league}/{season}", "league", league, "football"),
        Page("/football/matches/{fixture}", "match", match, "football"),
    ),
    files("hasat.sources.football") / "templates",
    (NavigationEntry("football", template("Football"), "/football", order=70),),
    static=files("hasat.sources.football") / "static",
    labels={
        "coverage": {
            "here": template("Available"),
            "offered": template("Not fetched yet"),
            "not_offered": template("Not offered"),
        },
        "match_data": {
            "events": template("Events"),
            "lineups": template("Line-ups"),
            "statistics": template("Statistics"),
            "players": template("Players"),
            "standings": template("Standings"),
            "injuries": template("Injuries"),
            "top_scorers": template("Top scorers"),
            "team_statistics": template("Team statistics"),
        },
        "match_state": {
            "scheduled": template("Not started"),
            "live": template("Live"),
            "finished": template("Full time"),
            "postponed": template("Postponed"),
            "cancelled": template("Cancelled"),
            "abandoned": template("Abandoned"),
            "not_played": template("Not played"),
            "unknown": template("Unknown"),
        },
        "match_group": {
            "live": template("Live"),
            "finished": template("Finished matches"),
            "others": template("Other matches"),
        },
        "match_event": {
            "goal": template("Goal"),
            "missed": template("Missed penalty"),
            "yellow": template("Yellow card"),
            "red": template("Red card"),
            "substitution": template("Substitution"),
            "var": template("Video review"),
            "other": template("Event"),
        },
        # Names that the API writes; others are shown as published.
        "event_detail": {
            "Normal Goal": template("Goal"),
            "Own Goal": template("Own goal"),
            "Penalty": template("Penalty"),
            "Missed Penalty": template("Missed penalty"),
            "Yellow Card": template("Yellow card"),
            "Second Yellow card": template("Second yellow card"),
            "Red Card": template("Red card"),
            **{f"Substitution {n}": template("Substitution") for n in range(1, 12)},
            "Goal cancelled": template("Goal cancelled"),
            "Goal Disallowed": template("Goal cancelled"),
            "Penalty confirmed": template("Penalty confirmed"),
        },
        "statistic": {
            "Shots on Goal": template("Shots on goal"),
            "Shots off Goal": template("Shots off goal"),
            "Total Shots": template("Shots"),
            "Blocked Shots": template("Blocked shots"),
            "Shots insidebox": template("Shots from inside the box"),
            "Shots outsidebox": template("Shots from outside the box"),
            "Fouls": template("Fouls"),
            "Corner Kicks": template("Corners"),
            "Offsides": template("Offsides"),
            "Ball Possession": template("Possession"),
            "Yellow Cards": template("Yellow cards"),
            "Red Cards": template("Red cards"),
            "Goalkeeper Saves": template("Saves"),
            "Total passes": template("Passes"),
            "Passes accurate": template("Accurate passes"),
            "Passes %": template("Accurate passes in percent"),
            "expected_goals": template("Expected goals"),
            "goals_prevented": template("Goals prevented"),
        },
        "match_result": {"W": template("Won"), "D": template("Drawn"), "L": template("Lost")},
    },
)
