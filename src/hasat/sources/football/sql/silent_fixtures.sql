-- Matches in these states that began and were not told of, or asked for in vain, for so long. With
-- looks, one that began lately waits for the next of them; one that began long ago is asked for once
-- an hour at most. With `unknown`, states that nobody knows yet are among them.
SELECT f.fixture_id, f.date
  FROM core.fixtures AS f
  LEFT JOIN (SELECT fixture_id, greatest(told_at, missed_at) AS asked_at FROM football.fixture_told) AS t
 USING (fixture_id)
 WHERE f.league_id = ANY (%(leagues)s)
   AND (f.status_short = ANY (%(statuses)s) OR (%(unknown)s AND football.state_of(f.status_short) = 'unknown'))
   AND f.date BETWEEN %(now)s - %(lookback)s::interval AND %(now)s - least(%(silence)s, interval '1 hour')
   AND (t.asked_at IS NULL
        OR (t.asked_at < %(now)s - CASE WHEN f.date < %(now)s - %(late)s::interval
                                       THEN greatest(%(silence)s, interval '1 hour')
                                       ELSE %(silence)s END
            AND (cardinality(%(looks)s::interval[]) = 0
                 OR f.date < %(now)s - %(late)s::interval
                 OR EXISTS (SELECT FROM unnest(%(looks)s::interval[]) AS look
                             WHERE f.date + look <= %(now)s AND t.asked_at < f.date + look))))
 ORDER BY t.asked_at NULLS FIRST, f.fixture_id
 LIMIT %(limit)s
