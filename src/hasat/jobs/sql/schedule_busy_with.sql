-- The run of a job that is waiting or working. One that waits for a certain machine (its priority in
-- the queue is negative) does not count: that machine may be away for long.
SELECT r.id
  FROM jobs.run AS r
  LEFT JOIN procrastinate_jobs AS q ON q.id = r.queue_id
 WHERE r.job = %(job)s AND r.state <> 'finished'
   AND NOT (r.state = 'queued' AND coalesce(q.priority, 0) < 0)
 ORDER BY r.id
 LIMIT 1;
