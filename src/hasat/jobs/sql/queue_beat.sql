-- A worker's sign of life, and which of its runs shall stop; no row once the others gave it up.
WITH alive AS (
    UPDATE procrastinate_workers SET last_heartbeat = clock_timestamp() WHERE id = %(worker_id)s
    RETURNING id
)
SELECT ARRAY(SELECT (q.args ->> 'run_id')::bigint
               FROM procrastinate_jobs AS q
              WHERE q.worker_id = alive.id AND q.status = 'doing' AND q.abort_requested)
  FROM alive;
