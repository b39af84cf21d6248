-- Matches in these states that began, and were not told of since the last moment worth a look.
SELECT f.fixture_id
  FROM core.fixtures AS f
  LEFT JOIN football.fixture_told AS t USING (fixture_id)
 WHERE f.league_id = ANY (%(leagues)s) AND f.status_short = ANY (%(statuses)s)
   AND f.date BETWEEN %(now)s - %(lookback)s AND %(now)s - %(silence)s
   AND (t.told_at IS NULL
        OR (t.told_at < %(now)s - %(silence)s
            AND (f.status_short <> ALL (ARRAY['NS', 'TBD'])
                 OR EXISTS (SELECT FROM unnest(%(looks)s::interval[]) AS look
                             WHERE f.date + look <= %(now)s AND t.told_at < f.date + look))))
 ORDER BY t.told_at NULLS FIRST, f.fixture_id
 LIMIT %(limit)s
