-- A run that ends before it begins, because another one of its job is going on.
INSERT INTO jobs.run
       (job, params, trigger, scheduled_for, state, outcome, finished_at, message, detail)
VALUES (%(job)s, %(params)s, %(trigger)s, %(scheduled_for)s, 'finished', 'skipped',
        clock_timestamp(), %(message)s, jsonb_build_object('behind', %(behind)s::bigint, 'times', 1))
ON CONFLICT (job, scheduled_for) WHERE trigger = 'schedule' DO NOTHING
RETURNING id;
