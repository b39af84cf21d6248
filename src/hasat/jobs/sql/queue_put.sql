-- Put a waiting run into procrastinate's queue; the lock lets one run of a job work at a time.
WITH queued AS (
    SELECT unnest(procrastinate_defer_jobs_v1(ARRAY[
        ROW(%(queue)s, %(task)s, %(priority)s, %(job)s, NULL,
            jsonb_build_object('run_id', %(run)s::bigint), NULL)::procrastinate_job_to_defer_v1
    ])) AS id
)
UPDATE jobs.run SET queue_id = queued.id FROM queued WHERE jobs.run.id = %(run)s;
