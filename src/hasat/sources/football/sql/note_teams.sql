-- Whether the teams of a league's season are known.
INSERT INTO core.team_bootstrap_progress (league_id, season, completed, last_error, updated_at)
VALUES (%(league)s, %(season)s, %(completed)s, %(error)s, clock_timestamp())
    ON CONFLICT (league_id, season) DO UPDATE
   SET completed = EXCLUDED.completed, last_error = EXCLUDED.last_error,
       updated_at = EXCLUDED.updated_at
