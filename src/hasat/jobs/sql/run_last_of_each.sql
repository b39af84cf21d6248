-- The newest run of each of the given jobs. Not `job = wanted.job` inside: for a job that has never
-- run, that may be looked for in all runs there are, from the newest to the oldest.
SELECT r.*
  FROM unnest(%(jobs)s::text[]) AS wanted (job)
 CROSS JOIN LATERAL (
       SELECT id, job, params, trigger, scheduled_for, queued_at, started_at, finished_at, state,
              outcome, attempt, worker, requests,
              CASE state WHEN 'running' THEN jobs.rows_stored(id)
                         ELSE rows_changed END AS rows_changed,
              message, error, detail, progress
         FROM jobs.run
        WHERE job >= wanted.job
        ORDER BY job, id DESC
        LIMIT 1
 ) AS r
 WHERE r.job = wanted.job;
