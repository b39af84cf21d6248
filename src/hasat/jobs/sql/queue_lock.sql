-- Lock the queue's row of a run against workers that take it or return it.
SELECT
  FROM procrastinate_jobs AS q
  JOIN jobs.run AS r ON r.queue_id = q.id
 WHERE r.id = %(run)s
   FOR UPDATE OF q;
