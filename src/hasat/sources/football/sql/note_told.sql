-- The API told of these matches just now; what was inferred about them ends.
WITH told AS (
    INSERT INTO football.fixture_told AS t (fixture_id, told_at, details_at, details_times)
    SELECT id, clock_timestamp(),
           CASE WHEN id = ANY (%(detailed)s) THEN clock_timestamp() END,
           CASE WHEN id = ANY (%(detailed)s) THEN 1 ELSE 0 END
      FROM unnest(%(told)s::bigint[]) AS id
        ON CONFLICT (fixture_id) DO UPDATE
       SET told_at = EXCLUDED.told_at,
           details_at = coalesce(EXCLUDED.details_at, t.details_at),
           details_times = t.details_times + EXCLUDED.details_times
)
DELETE FROM core.fixture_inferences WHERE fixture_id = ANY (%(told)s)
