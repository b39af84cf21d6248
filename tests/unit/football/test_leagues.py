"""Leagues that are followed by name."""

import pytest
from pydantic import ValidationError

from hasat.sources.football.leagues import FollowedLeague, ListedLeague, find_league
from hasat.sources.football.settings import League

LISTED = [
    ListedLeague(39, "Premier League", "England", [2024, 2025]),
    ListedLeague(235, "Premier League", "Russia", [2024, 2025]),
    ListedLeague(333, "Premier League", "Ukraine", [2023]),
    ListedLeague(203, "Süper Lig", "Turkey", [2025]),
    ListedLeague(204, "1. Lig", "Turkey", [2025]),
    ListedLeague(1, "World Cup", "World", [2022, 2026]),
]


@pytest.mark.parametrize("name", ["Süper Lig", "SÜPER LİG", "super lig", " Süper  Lig "])
def test_case_and_diacritics_do_not_matter(name: str) -> None:
    assert find_league(League(name=name, season=2025), LISTED) == FollowedLeague(203, 2025)


def test_country_and_season_distinguish_leagues_of_one_name() -> None:
    english = League(name="Premier League", country="england", season=2025)
    assert find_league(english, LISTED) == FollowedLeague(39, 2025)
    assert find_league(League(name="Premier League", season=2023), LISTED) == FollowedLeague(
        333, 2023
    )


def test_ambiguous_name_is_reported_with_candidates() -> None:
    several = find_league(League(name="Premier League", season=2025), LISTED)
    assert several == (
        "2 leagues are named 'Premier League': Premier League (England, id 39), Premier League"
        " (Russia, id 235). Add the country or the id in tracked_leagues."
    )
    slip = find_league(League(name="Super Ligg", season=2025), LISTED)
    assert slip == "No league is named 'Super Ligg'. Did you mean Süper Lig (Turkey, id 203)?"
    elsewhere = find_league(League(name="Süper Lig", country="Greece", season=2025), LISTED)
    assert "No league in Greece" in str(elsewhere)
    assert "is unknown until" in str(find_league(League(name="Süper Lig", season=2025), []))


def test_a_league_has_an_id_or_a_name() -> None:
    with pytest.raises(ValidationError, match="id or a name"):
        League(season=2025)
