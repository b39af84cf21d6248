-- How fresh the mirror is, and how the newest run of each job went.
SELECT told.told_at, extract(epoch FROM clock_timestamp() - told.told_at) / 3600 AS hours,
       coalesce((SELECT records FROM feed.head WHERE dataset = 'fixtures'), 0) AS fixtures,
       (SELECT count(*) FROM core.fixture_inferences) AS inferred,
       (SELECT count(*) FROM raw.set_aside WHERE source = 'football') AS set_aside,
       runs.last_runs
  FROM (SELECT max(told_at) AS told_at FROM football.fixture_told) AS told
 CROSS JOIN (SELECT coalesce(jsonb_agg(r ORDER BY r.finished_at DESC), '[]') AS last_runs
               FROM (SELECT DISTINCT ON (job) job, outcome, finished_at, requests, rows_changed AS "rowsChanged"
                       FROM jobs.run
                      WHERE state = 'finished' AND job = ANY (%(jobs)s)
                      ORDER BY job, finished_at DESC) AS r) AS runs
