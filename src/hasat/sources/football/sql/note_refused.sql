-- An endpoint refused to answer just now.
INSERT INTO football.refusal (endpoint, league_id, season, team_id, refused_at)
VALUES (%(endpoint)s, %(league)s, %(season)s, %(team)s, clock_timestamp())
    ON CONFLICT (endpoint, league_id, season, team_id) DO UPDATE SET refused_at = EXCLUDED.refused_at
