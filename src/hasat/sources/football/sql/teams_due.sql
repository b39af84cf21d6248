-- Teams with a match that ended since they were last asked for, those first that wait longest.
SELECT f.league_id, f.season, side.team_id
  FROM core.fixtures AS f
  JOIN unnest(%(leagues)s::bigint[], %(seasons)s::bigint[]) AS s (league_id, season)
 USING (league_id, season)
 CROSS JOIN LATERAL unnest(ARRAY[f.home_team_id, f.away_team_id]) AS side (team_id)
  LEFT JOIN football.season_asked AS a
    ON a.endpoint = 'teams/statistics' AND a.league_id = f.league_id
   AND a.season = f.season AND a.team_id = side.team_id
 WHERE f.status_short = ANY (%(finished)s) AND side.team_id IS NOT NULL
   AND (a.asked_at IS NULL OR (f.changed_at > a.asked_at AND a.asked_at < %(before)s))
 GROUP BY f.league_id, f.season, side.team_id
 ORDER BY min(a.asked_at) NULLS FIRST, f.league_id, side.team_id
 LIMIT %(limit)s
