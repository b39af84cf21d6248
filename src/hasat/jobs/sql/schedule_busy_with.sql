-- The run of a job that is waiting or working.
SELECT id FROM jobs.run WHERE job = %(job)s AND state <> 'finished' ORDER BY id LIMIT 1;
