-- The API just counted so many matches of a whole season.
INSERT INTO football.season_listed (league_id, season, matches, listed_at)
VALUES (%(league)s, %(season)s, %(matches)s, clock_timestamp())
    ON CONFLICT (league_id, season) DO UPDATE
   SET matches = EXCLUDED.matches, listed_at = EXCLUDED.listed_at
