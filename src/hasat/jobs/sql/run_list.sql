-- Runs, newest first, narrowed by whatever is given; of one that works, what it committed so far.
SELECT id, job, params, trigger, scheduled_for, queued_at, started_at, finished_at, state, outcome,
       attempt, worker, requests,
       CASE state WHEN 'running' THEN jobs.rows_stored(id) ELSE rows_changed END AS rows_changed,
       message, error, detail, progress
  FROM jobs.run
 WHERE (%(id)s::bigint IS NULL OR id = %(id)s)
   AND (%(job)s::text IS NULL OR job = %(job)s)
   AND (%(before)s::bigint IS NULL OR id < %(before)s)
   AND (NOT %(open)s OR state <> 'finished')
   AND (NOT %(bad)s OR outcome IN ('failed', 'set_aside', 'interrupted'))
 ORDER BY id DESC
 LIMIT %(limit)s;
