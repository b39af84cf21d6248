-- When runs were at work since a moment, and those that still are. Runs of a job that ended alike and
-- followed each other too closely to be told apart are one; what is drawn later lies above.
SELECT max(id) AS run, count(*)::int AS runs, job, how, min(started_at) AS started_at,
       nullif(max(coalesce(finished_at, 'infinity')), 'infinity') AS finished_at
  FROM (SELECT *, sum(apart) OVER (PARTITION BY job, how ORDER BY started_at, id) AS part
          FROM (SELECT *, ((started_at - lag(finished_at) OVER (PARTITION BY job, how ORDER BY started_at, id)
                            < %(close)s) IS NOT TRUE)::int AS apart
                  FROM (SELECT id, job, outcome AS how, started_at, finished_at FROM jobs.run
                         WHERE state = 'finished' AND finished_at > %(since)s
                        UNION ALL
                        SELECT id, job, state, started_at, NULL FROM jobs.run
                         WHERE state <> 'finished') AS ran
                 WHERE started_at IS NOT NULL AND (%(job)s::text IS NULL OR job = %(job)s)) AS r) AS r
 GROUP BY job, how, part
 ORDER BY runs DESC, run
