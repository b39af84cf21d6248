-- How many details of a match there are.
SELECT (SELECT count(*) FROM core.fixture_events WHERE fixture_id = %(fixture)s) AS events,
       (SELECT count(*) FROM core.fixture_lineups WHERE fixture_id = %(fixture)s) AS lineups,
       (SELECT count(*) FROM core.fixture_statistics WHERE fixture_id = %(fixture)s) AS statistics,
       (SELECT count(*) FROM core.fixture_players WHERE fixture_id = %(fixture)s) AS players
