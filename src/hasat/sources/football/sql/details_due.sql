-- Finished matches whose details were never told, or not since the match was told otherwise (a
-- minute apart: one answer tells both), or not since they had a day or a week to settle. What was
-- left out of an answer is asked for again a day later. Of a named season all are due, these first.
SELECT f.fixture_id, f.league_id, f.season
  FROM core.fixtures AS f
  JOIN unnest(%(leagues)s::bigint[], %(seasons)s::bigint[]) AS s (league_id, season)
 USING (league_id, season)
  LEFT JOIN football.fixture_told AS t USING (fixture_id)
 WHERE f.status_short = ANY (%(finished)s)
   AND f.date BETWEEN %(since)s AND %(now)s
   AND (%(named)s OR t.missed_at IS NULL OR t.missed_at < %(now)s - interval '1 day')
   AND (%(named)s OR t.details_at IS NULL OR f.changed_at > t.details_at + interval '1 minute'
        OR (%(now)s >= f.date + interval '1 day' AND t.details_at < f.date + interval '1 day')
        OR (%(now)s >= f.date + interval '7 days' AND t.details_at < f.date + interval '7 days'
            AND f.date > %(now)s - interval '90 days'))
 ORDER BY t.details_at IS NOT NULL,
          extract(epoch FROM f.date) * CASE WHEN %(oldest_first)s THEN 1 ELSE -1 END, f.fixture_id
 LIMIT %(limit)s
