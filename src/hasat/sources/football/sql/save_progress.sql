-- How far a league's season is.
INSERT INTO core.backfill_progress
       (job, league_id, season, first_date, next_date, completed, last_error, updated_at)
VALUES (%(job)s, %(league)s, %(season)s, %(first_date)s, %(next_date)s, %(completed)s,
        %(last_error)s, clock_timestamp())
    ON CONFLICT (job, league_id, season) DO UPDATE
   SET first_date = EXCLUDED.first_date, next_date = EXCLUDED.next_date,
       completed = EXCLUDED.completed, last_error = EXCLUDED.last_error,
       updated_at = EXCLUDED.updated_at
