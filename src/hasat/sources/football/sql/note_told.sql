-- These matches were asked for just now: told of, with details, or in vain; what was inferred about
-- those that the API told of ends.
WITH told AS (
    INSERT INTO football.fixture_told AS t (fixture_id, told_at, details_at)
    SELECT id, clock_timestamp(),
           CASE WHEN id = ANY (%(detailed)s) THEN clock_timestamp() END
      FROM unnest(%(asked)s::bigint[]) AS id
     WHERE id = ANY (%(told)s) OR id = ANY (%(detailed)s)
        ON CONFLICT (fixture_id) DO UPDATE
       SET told_at = EXCLUDED.told_at,
           details_at = coalesce(EXCLUDED.details_at, t.details_at),
           missed_at = NULL
), missed AS (
    UPDATE football.fixture_told
       SET missed_at = clock_timestamp()
     WHERE fixture_id = ANY (%(asked)s) AND NOT fixture_id = ANY (%(told)s) AND NOT fixture_id = ANY (%(detailed)s)
)
DELETE FROM core.fixture_inferences WHERE fixture_id = ANY (%(told)s)
