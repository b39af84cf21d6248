-- Jobs whose newest runs all began and were then skipped. Due times that were passed over behind a
-- working run never began and do not count.
SELECT s.job
  FROM jobs.schedule AS s
 CROSS JOIN LATERAL (
       SELECT count(*) AS runs, bool_and(newest.outcome = 'skipped') AS skipped
         FROM (SELECT outcome
                 FROM jobs.run
                WHERE job = s.job AND state = 'finished' AND started_at IS NOT NULL
                ORDER BY id DESC
                LIMIT %(times)s) AS newest
 ) AS of_job
 WHERE of_job.runs = %(times)s AND of_job.skipped
 ORDER BY s.job;
