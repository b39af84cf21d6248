-- When the newest word about a finished match of each season came.
SELECT league_id, season, max(changed_at)
  FROM core.fixtures
 WHERE status_short = ANY (%(finished)s)
 GROUP BY league_id, season
