-- How many matches the API counted of each season, where that got lost.
INSERT INTO football.season_listed (league_id, season, matches, listed_at)
SELECT * FROM unnest(%s::bigint[], %s::bigint[], %s::bigint[], %s::timestamptz[])
    ON CONFLICT DO NOTHING
