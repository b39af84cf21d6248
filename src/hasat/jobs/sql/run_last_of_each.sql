-- The newest run of each of the given jobs.
SELECT r.*
  FROM unnest(%(jobs)s::text[]) AS wanted (job)
 CROSS JOIN LATERAL (
       SELECT id, job, params, trigger, scheduled_for, queued_at, started_at, finished_at, state,
              outcome, attempt, worker, requests, rows_changed, message, error, detail, progress
         FROM jobs.run
        WHERE job = wanted.job
        ORDER BY id DESC
        LIMIT 1
 ) AS r;
