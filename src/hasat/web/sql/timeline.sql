-- When runs were at work since a moment, and those that still are.
SELECT id AS run, job, coalesce(outcome, state) AS how, started_at, finished_at
  FROM (SELECT * FROM jobs.run WHERE state = 'finished' AND finished_at > %(since)s
        UNION ALL
        SELECT * FROM jobs.run WHERE state <> 'finished') AS r
 WHERE started_at IS NOT NULL AND (%(job)s::text IS NULL OR job = %(job)s)
 ORDER BY id DESC
 LIMIT 1500
