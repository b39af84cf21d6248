-- Mark matches as probably over; how many that are.
WITH candidate AS (
    SELECT *
      FROM football.may_be_over(%(leagues)s, %(statuses)s, %(threshold)s, %(lag)s)
     ORDER BY date, fixture_id
     LIMIT %(limit)s
), marked AS (
    INSERT INTO core.fixture_inferences (fixture_id, inferred_status, reason, inferred_at)
    SELECT fixture_id, 'FT',
           format('began %%s, last told as %%s %%s', date, status_short, coalesce(told_at::text, 'never')),
           clock_timestamp()
      FROM candidate
     WHERE NOT %(dry_run)s
        ON CONFLICT (fixture_id) DO NOTHING
    RETURNING fixture_id
)
SELECT CASE WHEN %(dry_run)s THEN (SELECT count(*) FROM candidate) ELSE (SELECT count(*) FROM marked) END
