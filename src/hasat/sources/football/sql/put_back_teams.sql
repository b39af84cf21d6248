-- The seasons whose teams were asked for, where that got lost.
INSERT INTO core.team_bootstrap_progress (league_id, season, completed, updated_at)
SELECT league_id, season, true, at
  FROM unnest(%s::bigint[], %s::bigint[], %s::timestamptz[]) AS t (league_id, season, at)
    ON CONFLICT DO NOTHING
