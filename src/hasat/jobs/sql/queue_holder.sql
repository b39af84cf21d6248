-- Who holds a job's lock, and when its process last gave a sign of life.
SELECT r.id AS run, r.worker, coalesce(r.started_at, r.queued_at) AS since, q.worker_id,
       w.last_heartbeat AS beat
  FROM procrastinate_jobs AS q
  JOIN jobs.run AS r ON r.queue_id = q.id
  LEFT JOIN procrastinate_workers AS w ON w.id = q.worker_id
 WHERE q.lock = %(job)s AND q.status = 'doing';
