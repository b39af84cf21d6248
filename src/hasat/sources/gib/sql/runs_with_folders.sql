-- Runs that work.
SELECT id FROM jobs.run WHERE state <> 'finished'
