-- A match that has not begun is never taken for finished, whatever thresholds a run is given.
CREATE OR REPLACE FUNCTION football.may_be_over(leagues bigint[], statuses text[], threshold interval, lag interval)
RETURNS TABLE (fixture_id bigint, date timestamptz, status_short text, told_at timestamptz)
LANGUAGE sql STABLE AS $$
    SELECT f.fixture_id, f.date, f.status_short, t.told_at
      FROM core.fixtures AS f
      LEFT JOIN football.fixture_told AS t USING (fixture_id)
     WHERE f.league_id = ANY (leagues) AND f.status_short = ANY (statuses)
       AND f.date < clock_timestamp() - greatest(threshold, interval '0')
       AND (t.told_at IS NULL OR t.told_at < clock_timestamp() - greatest(lag, interval '0'))
       AND NOT EXISTS (SELECT FROM core.fixture_inferences AS i WHERE i.fixture_id = f.fixture_id)
       AND (f.status_short <> 'NS'
            OR EXISTS (SELECT FROM core.leagues AS l,
                              jsonb_array_elements(CASE jsonb_typeof(l.seasons) WHEN 'array' THEN l.seasons ELSE '[]' END) AS s
                        WHERE l.league_id = f.league_id AND core.whole(s -> 'year') = f.season
                          AND s #> '{coverage,fixtures,events}' = 'true'))
$$;

DELETE FROM core.fixture_inferences AS i
 WHERE EXISTS (SELECT FROM core.fixtures AS f WHERE f.fixture_id = i.fixture_id AND f.date > clock_timestamp());
