-- When each thing was last asked for, where that got lost.
INSERT INTO football.season_asked (endpoint, league_id, season, team_id, asked_at)
SELECT * FROM unnest(%s::text[], %s::bigint[], %s::bigint[], %s::bigint[], %s::timestamptz[])
    ON CONFLICT DO NOTHING
