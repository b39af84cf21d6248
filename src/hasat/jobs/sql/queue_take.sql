-- Enter a run as already being worked on by this process; nothing if its job's lock is held.
WITH taken AS (
    INSERT INTO procrastinate_jobs (queue_name, task_name, lock, args, status, worker_id)
    VALUES (%(queue)s, %(task)s, %(job)s, jsonb_build_object('run_id', %(run)s::bigint), 'doing',
            %(worker_id)s)
    ON CONFLICT (lock) WHERE status = 'doing' DO NOTHING
    RETURNING id
)
UPDATE jobs.run SET queue_id = taken.id FROM taken WHERE jobs.run.id = %(run)s
RETURNING queue_id;
