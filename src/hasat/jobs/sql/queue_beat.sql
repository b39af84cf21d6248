-- A worker's sign of life; no row once the others have given it up.
UPDATE procrastinate_workers SET last_heartbeat = clock_timestamp() WHERE id = %(worker_id)s
RETURNING id;
