-- An endpoint was asked just now.
INSERT INTO football.season_asked (endpoint, league_id, season, team_id, asked_at)
VALUES (%(endpoint)s, %(league)s, %(season)s, %(team)s, clock_timestamp())
    ON CONFLICT (endpoint, league_id, season, team_id) DO UPDATE SET asked_at = EXCLUDED.asked_at
