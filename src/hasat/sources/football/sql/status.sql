-- How fresh the mirror is, and how the newest run of each job went.
SELECT told.told_at, extract(epoch FROM clock_timestamp() - told.told_at) / 3600 AS hours,
       coalesce((SELECT records FROM feed.head WHERE dataset = 'fixtures'), 0) AS fixtures,
       (SELECT count(*) FROM core.fixture_inferences) AS inferred,
       (SELECT count(*) FROM raw.set_aside WHERE source = 'football') AS set_aside,
       runs.last_runs
  FROM (SELECT max(told_at) AS told_at FROM football.fixture_told) AS told
 CROSS JOIN (SELECT coalesce(jsonb_agg(r ORDER BY r.finished_at DESC), '[]') AS last_runs
               FROM unnest(%(jobs)s::text[]) AS wanted (name)
              CROSS JOIN LATERAL (
                    -- As in jobs/sql/run_last_of_each.sql: a job that has never run is found out at once.
                    SELECT job, outcome, finished_at, requests, rows_changed AS "rowsChanged"
                      FROM jobs.run
                     WHERE job >= wanted.name AND state = 'finished'
                     ORDER BY job, id DESC
                     LIMIT 1
                    ) AS r
              WHERE r.job = wanted.name) AS runs
