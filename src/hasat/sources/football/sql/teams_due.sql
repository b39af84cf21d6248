-- Teams with a match that has had time to be counted and ended since they were last asked for, those
-- first that wait longest. One that was awarded counts as well. Of a named season all teams are due.
SELECT f.league_id, f.season, side.team_id
  FROM core.fixtures AS f
  JOIN unnest(%(leagues)s::bigint[], %(seasons)s::bigint[]) AS s (league_id, season)
 USING (league_id, season)
 CROSS JOIN LATERAL unnest(ARRAY[f.home_team_id, f.away_team_id]) AS side (team_id)
 CROSS JOIN LATERAL (
        SELECT f.changed_at + CASE WHEN football.is_news(f.changed_at, f.first_seen_at, f.date)
                                   THEN %(settling)s ELSE interval '0' END AS at
       ) AS counted
  LEFT JOIN football.season_asked AS a
    ON a.endpoint = 'teams/statistics' AND a.league_id = f.league_id
   AND a.season = f.season AND a.team_id = side.team_id
 WHERE (%(named)s OR f.status_short = ANY (%(finished)s) OR football.state_of(f.status_short) = 'not_played')
   AND side.team_id IS NOT NULL
   AND NOT EXISTS (SELECT FROM football.refusal AS r
                    WHERE r.endpoint = 'teams/statistics' AND r.league_id = f.league_id
                      AND r.season = f.season AND r.team_id = side.team_id
                      AND r.refused_at > %(refused_since)s)
   AND (%(named)s OR counted.at <= %(now)s)
   AND (%(named)s OR a.asked_at IS NULL OR (a.asked_at < counted.at AND a.asked_at < %(before)s))
 GROUP BY f.league_id, f.season, side.team_id
 ORDER BY min(a.asked_at) NULLS FIRST, f.league_id, side.team_id
 LIMIT %(limit)s
