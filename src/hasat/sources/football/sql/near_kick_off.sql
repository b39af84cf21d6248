-- Matches that are about to begin and were not told of since they were about to: line-ups are out now.
SELECT f.fixture_id
  FROM core.fixtures AS f
  JOIN unnest(%(leagues)s::bigint[], %(seasons)s::bigint[]) AS s (league_id, season)
 USING (league_id, season)
  LEFT JOIN football.fixture_told AS t USING (fixture_id)
 WHERE f.status_short = 'NS'
   AND f.date BETWEEN %(now)s AND %(now)s + %(window)s::interval
   AND (t.details_at IS NULL OR t.details_at < f.date - %(window)s::interval)
   AND (t.missed_at IS NULL OR t.missed_at < f.date - %(window)s::interval)
 ORDER BY f.date, f.fixture_id
 LIMIT %(limit)s
