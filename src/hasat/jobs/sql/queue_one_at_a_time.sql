-- Let one caller at a time decide whether to queue a run of a job, until its transaction ends.
SELECT pg_advisory_xact_lock(hashtextextended('hasat.jobs.queue:' || %(job)s, 0));
